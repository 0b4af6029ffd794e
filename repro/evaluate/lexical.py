"""Word overlap: the BM25 formula over WordPiece tokens as an inner product, with IDF weights from any text.

The weight of a word is −log p, where p is the share of documents that contain it. A share counted in n documents is mixed
with a prior, the share in the training text. The prior counts as `PRIOR` additional documents.

Shapes: Q queries, D documents, N texts, V words of the vocabulary, W words of the queries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csr_array

from repro.data.beir import Retrieval
from repro.data.tokens import Tokens, load_tokenizer, tokenize
from repro.evaluate.retrieval import BM25_PARAMETERS, Matrix

PRIOR = 8.0
"""Weight of the training text in documents. Without it, a few documents would suggest that most words never occur."""
K1, B = BM25_PARAMETERS["k1"], BM25_PARAMETERS["b"]
MAX_TOKENS = 512
"""Tokens of a text that count. The rest of a longer text is ignored."""

Vectors = tuple[Matrix, Matrix]
"""Vectors of queries and documents, float32 (Q, H) and (D, H), dense or sparse, compared by inner product."""


@dataclass(frozen=True)
class DocumentFrequencies:
    """Document counts of each word, (V,), and the total number of documents."""

    counts_V: np.ndarray
    num_documents: int

    @classmethod
    def count(cls, documents: Sequence[str]) -> DocumentFrequencies:
        """Count the words of some documents."""
        return cls(count_document_frequency([documents]), len(documents))

    def idf(self, prior_V: np.ndarray) -> np.ndarray:
        """Return −log of the share of each word, mixed with a prior share, float32 (V,)."""
        # A Bayesian mean: the prior counts as `PRIOR` documents, so it fades as the corpus grows.
        share_V = (self.counts_V + PRIOR * prior_V) / (self.num_documents + PRIOR)
        return -np.log(share_V).astype(np.float32)

    def compute_prior(self) -> np.ndarray:
        """Return the share of each word, float64 (V,). Half a document is added, so every share is above 0."""
        prior_V: np.ndarray = (self.counts_V + 0.5) / (self.num_documents + 1)
        return prior_V


def count_document_frequency(blocks: Iterable[Sequence[str]]) -> np.ndarray:
    """Return the number of texts that contain each word in their first `MAX_TOKENS` tokens, int64 (V,)."""
    tokenizer = load_tokenizer("minilm")
    size = tokenizer.get_vocab_size()
    frequency_V = np.zeros(size, np.int64)
    for texts in blocks:
        tokens = tokenize(list(texts), tokenizer, MAX_TOKENS)
        # Encode (text, word) as one integer, so that `unique` counts a word once per text.
        text_of_token = np.repeat(np.arange(len(tokens)), tokens.lengths)
        text_words = np.unique(text_of_token * size + tokens.ids)
        frequency_V += np.bincount(text_words % size, minlength=size)
    return frequency_V


def build_word_overlap(retrieval: Retrieval) -> Callable[[np.ndarray], Vectors]:
    """Return BM25 as an inner product: word counts of queries, and weighted saturated word counts of documents.

    The result maps weights (V,) to sparse arrays (Q, W) and (D, W). Memory holds one value per query word of a
    document.
    """
    queries, documents = tokenize_words(retrieval.queries), tokenize_words(retrieval.documents)
    words_W = np.unique(queries.ids)
    queries_QW, counts_DW = _count_words(queries, words_W), _count_words(documents, words_W)
    # The lower bound prevents a division by zero if all documents are empty.
    lengths_D = documents.lengths / max(1.0, float(documents.lengths.mean()))
    # BM25's saturation tf / (tf + k1 (1 − b + b · length / mean length)), without the constant factor k1 + 1
    norms = np.repeat(K1 * (1 - B + B * lengths_D), np.diff(counts_DW.indptr))
    saturated = (counts_DW.data / (counts_DW.data + norms)).astype(np.float32)
    words = words_W[counts_DW.indices]

    def weight_words(weights_V: np.ndarray) -> Vectors:
        values = saturated * weights_V[words]
        # Only the values change with the weights. The sparsity pattern is shared between calls.
        return queries_QW, csr_array((values, counts_DW.indices, counts_DW.indptr), shape=counts_DW.shape)

    return weight_words


def _count_words(tokens: Tokens, words_W: np.ndarray) -> csr_array:
    """Return the count of each of the sorted words in each text, float32 (N, W)."""
    # Words that occur in no query add nothing to an inner product.
    is_query_word = np.isin(tokens.ids, words_W)
    rows = np.repeat(np.arange(len(tokens)), tokens.lengths)[is_query_word]
    columns = np.searchsorted(words_W, tokens.ids[is_query_word])
    # The conversion to CSR adds up repeated entries, which gives the counts.
    ones = np.ones(len(columns), np.float32)
    return coo_array((ones, (rows, columns)), shape=(len(tokens), len(words_W))).tocsr()


def tokenize_words(texts: Sequence[str]) -> Tokens:
    """Return the tokens of texts up to `MAX_TOKENS`, without special tokens."""
    tokens = tokenize(list(texts), load_tokenizer("minilm"), MAX_TOKENS)
    # The first and the last token of each text are special tokens.
    is_word = np.ones(len(tokens.ids), bool)
    is_word[tokens.offsets[:-1]] = False
    is_word[tokens.offsets[1:] - 1] = False
    offsets = np.concatenate([[0], np.cumsum(tokens.lengths - 2)]).astype(np.int64)
    return Tokens(tokens.ids[is_word], offsets)
