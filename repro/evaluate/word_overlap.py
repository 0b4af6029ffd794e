"""Word overlap: BM25's formula over WordPiece tokens as an inner product, its words weighted by an IDF of any text.

A word in a share p of documents weighs −log p. A share counted in n documents is mixed with a prior share, that of the
training text, which counts as `PRIOR` documents more.

Shapes: Q queries, D documents, N texts, V words of the vocabulary, W words that some query has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from repro.data.beir import Retrieval
from repro.data.tokens import Tokens, load_tokenizer, tokenize
from repro.evaluate.retrieval import Matrix

PRIOR = 8.0
"""Documents that the training text counts as, where shares of few documents would say that most words never occur."""
K1, B = 0.9, 0.4  # as BM25's reference has them
MOST_TOKENS = 512

Vectors = tuple[Matrix, Matrix]
"""Vectors of queries and documents, float32 (Q, H) and (D, H), dense or sparse, to be compared by inner product."""


@dataclass(frozen=True)
class Shares:
    """In which share of a text's documents each word is, (V,), and how many documents those are."""

    counts_V: np.ndarray
    num_documents: int

    @classmethod
    def of(cls, documents: Sequence[str]) -> Shares:
        """Count the words of some documents."""
        return cls(document_frequency([documents]), len(documents))

    def idf(self, prior_V: np.ndarray) -> np.ndarray:
        """Return −log of the share of each word, mixed with a prior share, float32 (V,)."""
        share_V = (self.counts_V + PRIOR * prior_V) / (self.num_documents + PRIOR)
        return -np.log(share_V).astype(np.float32)

    def as_prior(self) -> np.ndarray:
        """Return the share of each word, half a document more and so above 0, float64 (V,)."""
        prior_V: np.ndarray = (self.counts_V + 0.5) / (self.num_documents + 1)
        return prior_V


def document_frequency(blocks: Iterable[Sequence[str]]) -> np.ndarray:
    """Return in how many of the texts each word is, int64 (V,)."""
    tokenizer = load_tokenizer("minilm")
    size = tokenizer.get_vocab_size()
    frequency_V = np.zeros(size, np.int64)
    for texts in blocks:
        tokens = tokenize(list(texts), tokenizer, MOST_TOKENS)
        text_of_token = np.repeat(np.arange(len(tokens)), tokens.lengths)
        distinct = np.unique(text_of_token * size + tokens.ids)
        frequency_V += np.bincount(distinct % size, minlength=size)
    return frequency_V


def word_overlap(retrieval: Retrieval) -> Callable[[np.ndarray], Vectors]:
    """Return BM25 as an inner product: counts of a query's words, and their saturated counts in documents by weight.

    Sparse arrays (Q, W) and (D, W): memory holds a few numbers for each word of a document that some query has.
    """
    queries, documents = tokenize_words(retrieval.queries), tokenize_words(retrieval.documents)
    words_W = np.unique(queries.ids)
    queries_QW, counts_DW = _counts(queries, words_W), _counts(documents, words_W)
    lengths_D = documents.lengths / max(1.0, float(documents.lengths.mean()))
    norms = np.repeat(K1 * (1 - B + B * lengths_D), np.diff(counts_DW.indptr))
    saturated = (counts_DW.data / (counts_DW.data + norms)).astype(np.float32)
    words = words_W[counts_DW.indices]

    def under(weights_V: np.ndarray) -> Vectors:
        values = saturated * weights_V[words]
        return queries_QW, csr_array((values, counts_DW.indices, counts_DW.indptr), shape=counts_DW.shape)

    return under


def _counts(tokens: Tokens, words_W: np.ndarray) -> csr_array:
    """Return how often each text has each of the sorted words, float32 (N, W)."""
    rows, known = np.repeat(np.arange(len(tokens)), tokens.lengths), np.isin(tokens.ids, words_W)
    columns = np.searchsorted(words_W, tokens.ids[known])
    counts = coo_array((np.ones(len(columns), np.float32), (rows[known], columns)), shape=(len(tokens), len(words_W)))
    return counts.tocsr()


def tokenize_words(texts: Sequence[str]) -> Tokens:
    """Return the words of whole texts without special tokens."""
    tokens = tokenize(list(texts), load_tokenizer("minilm"), MOST_TOKENS)
    inside = np.ones(len(tokens.ids), bool)
    inside[tokens.offsets[:-1]] = inside[tokens.offsets[1:] - 1] = False
    return Tokens(tokens.ids[inside], np.concatenate([[0], np.cumsum(tokens.lengths - 2)]).astype(np.int64))
