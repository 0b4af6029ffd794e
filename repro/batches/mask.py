"""Detect false negatives: documents that the loss must not treat as negatives of a query (§4.1, eq. 4).

For query q with positive d and another document d′ of the batch, in this order:
1. If d′ has the text of d, it is a copy of the positive and is masked, with or without a surrogate.
2. If d′ is one of q's own hard negatives, the surrogate does not mask it.
3. If another training pair has the text of q and the document d′, then d′ is a known positive. It is masked, even as a
   hard negative.
4. If the surrogate f gives f(q, d′) ≥ f(q, d) + margin, up to rounding, then d′ belongs to S(q, d) and is masked.
The positive itself is never masked. As a control, `mask_at_random` replaces the documents of rule 4 by random ones.

Known positives are not in the paper. The filter of eq. 4 is a heuristic that may miss them, whereas the pairs are
facts. Texts are compared by content keys, so documents with equal text count as one.

The columns of the scores are documents: the positives of the B pairs, then H hard negatives of the first pair, H of the
second, and so on.

Shapes: N pairs of the data set, B pairs of a batch, H hard negatives per pair, M = B·(1 + H) documents, Q queries and K
columns of a loss, L links between a query and a document, D surrogate dimensions.
"""

from __future__ import annotations

import hashlib
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from repro.data.wording import identify_text
from repro.seeds import make_rng
from repro.storage.arrays import ArrayWriter, load_array

if TYPE_CHECKING:
    import torch

Array = TypeVar("Array", np.ndarray, "torch.Tensor")
ROUNDING = 1e-6
"""Tolerance for the score of two unit vectors, because float32 sums depend on their order. Without it, whether a document
with the vector of the positive is masked would depend on the processor and the number of threads. Mining scales it with
the lengths of both vectors.
"""
QUERIES_FILE, LINKS_FILE, COUNTS_FILE = "queries.npy", "links.npy", "pairs_with_several.npy"


def compute_content_keys(texts: Iterable[str], corpus: str = "") -> np.ndarray:
    """Return a 64-bit hash of each text, int64 (N,).

    Texts that differ only in case, white space or Unicode form (composed or decomposed accents) share a key. Those of an
    imported corpus share one if they have the same identity, as in its hold-out (`identify_text`).
    """
    # only names of imported corpora have a digest
    if "@" in corpus:
        texts = map(identify_text, texts)
    # NFC comes last, because case folding may decompose a letter
    folded = (text.casefold() for text in texts)
    composed = (text if text.isascii() else unicodedata.normalize("NFC", text) for text in folded)
    normalised = (" ".join(text.split()).encode() for text in composed)
    # Not Python's `hash`, which differs from process to process. Keys are stored and compared across runs.
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in normalised)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)


def write_content_keys(path: Path, blocks: Iterable[Sequence[str]], corpus: str) -> None:
    """Write the keys of blocks of texts to one .npy file, int64 (N,). Memory holds one block."""
    with ArrayWriter(path, "int64") as keys:
        for block in blocks:
            keys.append(compute_content_keys(block, corpus))


def mask_false_negatives(
    content_keys_M: np.ndarray,
    scores_BM: np.ndarray | None,
    *,
    known_BM: np.ndarray | None = None,
    margin: float = 0.0,
    num_hard_negatives: int = 0,
) -> np.ndarray:
    """Return the documents to exclude from the loss of each query, bool (B, M).

    Args:
        content_keys_M: Content keys of the documents.
        scores_BM: Surrogate scores. If None, only repeated texts and known positives are masked.
        known_BM: Known positives, from `KnownPositives.find_in_batch`.
        margin: Added to the positive's score, so a larger margin masks less. Scores may be negative.
        num_hard_negatives: Hard negatives per pair.
    """
    num_documents = len(content_keys_M)
    num_pairs = num_documents // (1 + num_hard_negatives)
    is_positive_BM = np.eye(num_pairs, num_documents, dtype=bool)
    # rule 1: copies of the positive
    masked_BM: np.ndarray = content_keys_M == content_keys_M[:num_pairs, None]
    if scores_BM is not None:
        # rule 4 (eq. 4), without a pair's own hard negatives (rule 2)
        is_near_BM = (scores_BM >= np.diagonal(scores_BM)[:, None] + margin - ROUNDING) & _has_scores(scores_BM)
        masked_BM |= is_near_BM & ~_find_own_negatives(masked_BM.shape, num_hard_negatives)
    # rule 3 comes last, because it masks hard negatives too
    if known_BM is not None:
        masked_BM |= known_BM
    return masked_BM & ~is_positive_BM


def _find_own_negatives(shape: tuple[int, ...], num_hard_negatives: int) -> np.ndarray:
    """Return whether a document is a hard negative of the query's own pair, bool (B, M)."""
    num_pairs, num_documents = shape
    # the pair of each hard negative, and a negative number for the columns of positives
    owner_M = (np.arange(num_documents) - num_pairs) // max(1, num_hard_negatives)
    return np.equal(owner_M, np.arange(num_pairs)[:, None])


def mask_at_random(
    masked_BM: np.ndarray, unfiltered_BM: np.ndarray, generator: np.random.Generator, *, num_hard_negatives: int = 0
) -> np.ndarray:
    """Return a control of the filter, bool (B, M): it masks as many documents of each query, drawn at random.

    They are drawn uniformly from the negatives that rules 1 to 3 keep, except a pair's own hard negatives.

    Args:
        masked_BM: The mask with the filter.
        unfiltered_BM: The mask of rules 1 to 3 alone. Its entries stay masked.
        generator: Source of the draws.
        num_hard_negatives: Hard negatives per pair.
    """
    may_draw_BM = ~unfiltered_BM & ~_find_own_negatives(masked_BM.shape, num_hard_negatives)
    # the positive is not a negative
    np.fill_diagonal(may_draw_BM, False)
    num_drawn_B = (masked_BM & may_draw_BM).sum(axis=1)
    order_BM = np.where(may_draw_BM, generator.random(masked_BM.shape), 2.0)
    ranks_BM = order_BM.argsort(axis=1).argsort(axis=1)
    return unfiltered_BM | (ranks_BM < num_drawn_B[:, None])


def make_batch_rng(seed: int, pairs_B: np.ndarray) -> np.random.Generator:
    """Return a generator that depends on the seed and the pairs of a batch, so that a resumed run draws the same."""
    return make_rng(seed, "random filter", hashlib.blake2b(pairs_B.astype("<i8").tobytes(), digest_size=8).hexdigest())


def _has_scores(scores_BM: np.ndarray) -> np.ndarray:
    """Return which pairs and documents have a meaningful surrogate score, bool (B, M).

    A text without any known token has a zero vector. All its scores are 0 and carry no information.
    """
    has_scores_M = np.asarray(scores_BM.any(axis=0))
    has_scores_B = scores_BM.any(axis=1) & has_scores_M[: len(scores_BM)]
    return has_scores_B[:, None] & has_scores_M


def mask_directions(
    query_keys_B: np.ndarray,
    content_keys_M: np.ndarray,
    masked_BM: np.ndarray,
    vectors: tuple[np.ndarray, np.ndarray] | None,
    *,
    known_BM: np.ndarray | None = None,
    margin: float = 0.0,
    num_hard_negatives: int = 0,
) -> np.ndarray:
    """Return the entries to exclude from a loss that contrasts in four directions, bool (B, K) with K = 2 (B + M).

    The blocks of columns are query to documents (`masked_BM`), query to queries, document to queries, and document to
    documents. For query q with document d:
    1. Query to documents: `mask_false_negatives`.
    2. A query is masked for q and d if it has the text of q or if its own document has the text of d. It is also masked
       if its own document is a known positive of q, or if d is a known positive of that query.
    3. A document is masked for d if it has the text of d or is a known positive of q.
    4. Any other entry is masked if f(q, q′), f(q′, d) or f(d, d′) ≥ f(q, d) + margin. All directions share one
       threshold, as in GISTEmbed (Solatorio 2024).

    `vectors` holds the surrogate vectors of the queries (B, D) and documents (M, D). Without it, only repeated texts and
    known positives are masked. The entries of a pair itself are never masked, and its own hard negatives are not masked
    in the last block, where they are not terms of the sum.
    """
    num_pairs = len(query_keys_B)
    own_keys_B = content_keys_M[:num_pairs]
    same_BB = (query_keys_B[:, None] == query_keys_B) | (own_keys_B[:, None] == own_keys_B)
    # Pairs with the same query or the same document are positives of each other.
    same_BM = own_keys_B[:, None] == content_keys_M
    if known_BM is not None:
        known_BB = known_BM[:, :num_pairs]
        # In both directions: q knows the other document, or the other query knows d.
        same_BB = same_BB | known_BB | known_BB.T
        same_BM = same_BM | known_BM
    is_own_BB = np.eye(num_pairs, dtype=bool)
    is_own_BM = np.concatenate([is_own_BB, is_own_BB.repeat(num_hard_negatives, axis=1)], axis=1)
    # Query to queries, document to queries, document to documents. The filter only adds entries.
    blocks = [(same_BB, is_own_BB), (same_BB, is_own_BB), (same_BM, is_own_BM)]
    if vectors is not None:
        queries_BD, documents_MD = vectors
        own_BD = documents_MD[:num_pairs]
        scores = [queries_BD @ queries_BD.T, (queries_BD @ documents_MD.T)[:, :num_pairs].T, own_BD @ documents_MD.T]
        # A text without any known token has a zero vector. It masks nothing and is not masked. An infinite threshold
        # disables the row of such a pair.
        has_vector_B, has_vector_M = (np.asarray(each.any(axis=1)) for each in vectors)
        own_scores_B = np.diagonal(scores[1])
        threshold_B = np.where(has_vector_B & has_vector_M[:num_pairs], own_scores_B + margin - ROUNDING, np.inf)
        has_vector = [has_vector_B, has_vector_B, has_vector_M]
        blocks = [
            (same | ((each >= threshold_B[:, None]) & has), own)
            for (same, own), each, has in zip(blocks, scores, has_vector, strict=True)
        ]
    return np.concatenate([masked_BM, *(masked & ~own for masked, own in blocks)], axis=1)


def compute_masked_fraction(masked_QK: Array, num_documents: int | None = None) -> Array:
    """Return the masked share of all terms of the loss except the target, 0 … 1. It is 0 if there are no other terms.

    If `num_documents` is set, the columns are the four directions of the improved contrastive loss. That sum contains
    the own pair a second time. This term is never masked and counts as one of the others.
    """
    num_queries, num_columns = masked_QK.shape
    num_others = num_columns - 1
    # No terms of the sum: the query with itself, its document with itself and with its own hard negatives.
    if num_documents is not None:
        num_others -= 1 + num_documents // num_queries
    return masked_QK.sum() / max(1, num_queries * num_others)


def compute_batch_difficulty(scores_BM: np.ndarray) -> float:
    """Return the mean surrogate similarity between a query and the other documents of its batch (Figure 6).

    Raises ValueError for a batch with one document.
    """
    num_queries, num_documents = scores_BM.shape
    if num_documents < 2:
        raise ValueError("a batch of one document has no negatives, so no difficulty")
    return float(scores_BM.sum() - np.diagonal(scores_BM).sum()) / (num_queries * (num_documents - 1))


def find_links(query_keys_N: np.ndarray, document_keys_N: np.ndarray) -> tuple[np.ndarray, int]:
    """Find all queries with several documents.

    Returns:
        Links, int64 (2, L): query keys and document keys, unique and in ascending order. Also returns the number of
            pairs that these queries have.
    """
    # sorted by query, then by document, so equal links and links of one query are adjacent
    order = np.lexsort((document_keys_N, query_keys_N))
    queries, documents = np.asarray(query_keys_N)[order], np.asarray(document_keys_N)[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (queries[1:] != queries[:-1]) | (documents[1:] != documents[:-1])
    links_2L = np.stack([queries[is_new], documents[is_new]])
    # Links are unique, so a query has several documents if a neighbouring link has the same query.
    has_several_L = np.zeros(links_2L.shape[1], bool)
    repeats_query = links_2L[0, 1:] == links_2L[0, :-1]
    has_several_L[1:] |= repeats_query
    has_several_L[:-1] |= repeats_query
    links_2L = np.ascontiguousarray(links_2L[:, has_several_L])
    return links_2L, int(np.isin(queries, np.unique(links_2L[0])).sum())


def write_known_positives(folder: Path, document_keys_N: np.ndarray) -> None:
    """Compute the links of all pairs and write them to a folder that contains the query keys."""
    query_keys_N = load_array(folder / QUERIES_FILE, kind="i", shape=(len(document_keys_N),), mapped=True)
    links_2L, num_pairs = find_links(query_keys_N, document_keys_N)
    np.save(folder / LINKS_FILE, links_2L)
    np.save(folder / COUNTS_FILE, np.array([num_pairs]))


def _expand_ranges(starts_n: np.ndarray, counts_n: np.ndarray) -> np.ndarray:
    """Return the numbers of all ranges, one after the other: starts 5 and 9 with counts 2 and 1 give 5, 6, 9."""
    ends_n = np.cumsum(counts_n)
    return np.repeat(starts_n - ends_n + counts_n, counts_n) + np.arange(ends_n[-1] if len(ends_n) else 0)


@dataclass(frozen=True)
class KnownPositives:
    """Known positives of the training pairs of a run."""

    query_keys_N: np.ndarray
    links_2L: np.ndarray
    num_pairs_with_several: int

    @classmethod
    def load(cls, folder: Path, num_pairs: int) -> KnownPositives:
        """Load the files that `write_known_positives` wrote. Raises ValueError if a file is damaged."""
        return cls(
            load_array(folder / QUERIES_FILE, kind="i", shape=(num_pairs,), mapped=True),
            load_array(folder / LINKS_FILE, kind="i", shape=(2, None), mapped=True),
            int(load_array(folder / COUNTS_FILE, kind="i", shape=(1,))[0]),
        )

    def find_in_batch(self, pairs_B: np.ndarray, document_keys_M: np.ndarray) -> np.ndarray:
        """Return which documents are known positives of each pair's query, bool (B, M).

        Its own document is included if the query has several. A document with the text of the query is one, too: no
        other document can be nearer to the query.
        """
        # Each query once, because the links of a frequent one are many.
        keys_U, unique_B = np.unique(np.asarray(self.query_keys_N[pairs_B]), return_inverse=True)
        known_UM: np.ndarray = keys_U[:, None] == document_keys_M
        # Links are sorted by query key, so two binary searches find the links of each query.
        link_queries_L, link_documents_L = self.links_2L
        starts_U = np.searchsorted(link_queries_L, keys_U, "left")
        counts_U = np.searchsorted(link_queries_L, keys_U, "right") - starts_U
        links_l = link_documents_L[_expand_ranges(starts_U, counts_U)]
        # The document of a link may occur several times in the batch.
        order_M = np.argsort(document_keys_M, kind="stable")
        firsts_l = np.searchsorted(document_keys_M, links_l, "left", sorter=order_M)
        counts_l = np.searchsorted(document_keys_M, links_l, "right", sorter=order_M) - firsts_l
        rows_k = np.repeat(np.repeat(np.arange(len(keys_U)), counts_U), counts_l)
        known_UM[rows_k, order_M[_expand_ranges(firsts_l, counts_l)]] = True
        return known_UM[unique_B]

    def describe(self) -> str:
        """Return a one-line summary: the number of queries with several documents and of their pairs."""
        return (
            f"known positives: {len(np.unique(self.links_2L[0])):,} queries have several documents "
            f"({self.num_pairs_with_several:,} of {len(self.query_keys_N):,} pairs), which are not negatives of each other"
        )
