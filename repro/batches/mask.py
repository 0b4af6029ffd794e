"""The false-negative filter: which documents of a batch a query must not be pushed away from (eq. 4, §4.1).

Steps, for query q with positive d and every other document d′ of the batch:
1. d′ has the text of d: it is a positive under another id, and is masked, with or without a surrogate.
2. d′ is one of q's own hard negatives: it was chosen as a negative, and is kept.
3. d′ is the document of another training pair of q's text, a known positive: it is masked, even as a hard negative.
4. The surrogate f says f(q, d′) ≥ f(q, d) + margin: d′ belongs to S(q, d), and is masked.
The positive is never masked. Each query is that of a pair of the batch, in the order of the pairs.

Documents are the columns of the scores: first the positives of the B pairs of the batch, then their hard negatives, H
for the first pair, H for the second, …

Shapes: B pairs, H hard negatives a pair, M = B·(1 + H) documents; Q queries and K columns of a loss.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from repro.storage.arrays import ArrayWriter, load_array

if TYPE_CHECKING:
    import torch

Array = TypeVar("Array", np.ndarray, "torch.Tensor")
QUERIES_FILE, LINKS_FILE, COUNTS_FILE = "queries.npy", "links.npy", "pairs_with_several.npy"


def compute_content_keys(texts: Sequence[str]) -> np.ndarray:
    """Return an int64 key for each text; texts that differ only in case or white space have the same key."""
    normal = (" ".join(text.casefold().split()).encode() for text in texts)
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in normal)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)


def write_content_keys(path: Path, blocks: Iterable[Sequence[str]]) -> None:
    """Write the keys of blocks of texts as one .npy file, int64 (N,); memory holds one block."""
    with ArrayWriter(path, "int64") as keys:
        for block in blocks:
            keys.append(compute_content_keys(block))


def mask_false_negatives(
    content_keys_M: np.ndarray,
    scores_BM: np.ndarray | None,
    *,
    known_BM: np.ndarray | None = None,
    margin: float = 0.0,
    num_hard_negatives: int = 0,
) -> np.ndarray:
    """Return the documents that the loss of each pair's query leaves out, bool (B, M).

    `scores_BM` None: only repeated texts and known positives, `known_BM` (`repro.batches.mask`). The margin
    is added to the positive's score, so a larger one masks less; scores may be negative. ValueError when the
    columns cannot be B pairs with `num_hard_negatives` each.
    """
    num_documents = len(content_keys_M)
    if num_documents % (1 + num_hard_negatives):
        raise ValueError(f"{num_documents} documents are no pairs with {num_hard_negatives} hard negatives each")
    num_pairs = num_documents // (1 + num_hard_negatives)
    is_positive_BM = np.eye(num_pairs, num_documents, dtype=bool)
    masked_BM: np.ndarray = content_keys_M == content_keys_M[:num_pairs, None]
    if scores_BM is not None:
        is_near_BM = (scores_BM >= np.diagonal(scores_BM)[:, None] + margin) & _has_scores(scores_BM)
        owner_M = (np.arange(num_documents) - num_pairs) // max(1, num_hard_negatives)  # negative for positives
        masked_BM |= is_near_BM & (owner_M != np.arange(num_pairs)[:, None])
    if known_BM is not None:
        masked_BM |= known_BM
    return masked_BM & ~is_positive_BM


def _has_scores(scores_BM: np.ndarray) -> np.ndarray:
    """Return for which pairs and documents the surrogate has a score, bool (B, M).

    A text of which it knows no token has the zero vector, and every score of it is 0, which says nothing.
    """
    is_known_M = scores_BM.any(axis=0)
    is_known_B = scores_BM.any(axis=1) & is_known_M[: len(scores_BM)]
    return is_known_B[:, None] & is_known_M


def mask_directions(
    query_keys_B: np.ndarray,
    content_keys_M: np.ndarray,
    masked_BM: np.ndarray,
    seen: tuple[np.ndarray, np.ndarray] | None,
    *,
    known_BM: np.ndarray | None = None,
    margin: float = 0.0,
    num_hard_negatives: int = 0,
) -> np.ndarray:
    """Return what a pair's loss leaves out, bool (B, K): of query to documents, to queries, document to queries, to
    documents; `masked_BM` is the first. `seen`: the surrogate's vectors of the queries (B, D) and documents (M, D);
    without, only repeated texts. A pair's own entries are never masked.
    """
    num_pairs = len(query_keys_B)
    own_keys_B = content_keys_M[:num_pairs]
    same_BB = (query_keys_B[:, None] == query_keys_B) | (own_keys_B[:, None] == own_keys_B)
    same_BM = own_keys_B[:, None] == content_keys_M
    if known_BM is not None:
        known_BB = known_BM[:, :num_pairs]
        same_BB = same_BB | known_BB | known_BB.T
        same_BM = same_BM | known_BM
    to_queries_BB, from_queries_BB, to_documents_BM = same_BB, same_BB, same_BM
    itself_BB = np.eye(num_pairs, dtype=bool)
    own_BM = np.concatenate([itself_BB, itself_BB.repeat(num_hard_negatives, axis=1)], axis=1)
    if seen is not None:
        queries_BD, documents_MD = seen
        scores_BM = queries_BD @ documents_MD.T
        # a zero vector is that of a text of which the surrogate knows no token: it masks nothing and is not masked
        known_B, known_M = queries_BD.any(axis=1), documents_MD.any(axis=1)
        threshold_B = np.where(known_B & known_M[:num_pairs], np.diagonal(scores_BM) + margin, np.inf)
        threshold_B1 = threshold_B[:, None]
        to_queries_BB = same_BB | ((queries_BD @ queries_BD.T >= threshold_B1) & known_B)
        documents_queries_BB = scores_BM[:, :num_pairs].T
        from_queries_BB = same_BB | ((documents_queries_BB >= threshold_B1) & known_B)
        to_documents_BM = same_BM | ((documents_MD[:num_pairs] @ documents_MD.T >= threshold_B1) & known_M)
    blocks = [masked_BM, to_queries_BB & ~itself_BB, from_queries_BB & ~itself_BB, to_documents_BM & ~own_BM]
    return np.concatenate(blocks, axis=1)


def compute_masked_fraction(masked_QK: Array, num_documents: int | None = None) -> Array:
    """Return the share that is masked of all terms of the sum but the target, 0 … 1; 0 for a batch that has no others.

    `num_documents`: the columns are the four directions of the improved contrastive loss over so many documents, whose
    sum has the own pair a second time: a term that the filter never masks, and that counts among the others here.
    Without, they are documents. A text and itself stand in no sum.
    """
    num_queries, num_columns = masked_QK.shape
    num_others = num_columns - 1
    if num_documents is not None:  # no other: the query itself, its document, and that with its own hard negatives
        num_others -= 1 + num_documents // num_queries
    return masked_QK.sum() / max(1, num_queries * num_others)


def compute_batch_difficulty(scores_BM: np.ndarray) -> float:
    """Return the mean surrogate similarity of a query to the other documents of its batch (Figure 6)."""
    num_queries, num_documents = scores_BM.shape
    if num_documents < 2:
        raise ValueError("a batch of one document has no negatives, so no difficulty")
    return float(scores_BM.sum() - np.diagonal(scores_BM).sum()) / (num_queries * (num_documents - 1))


def find_links(query_keys_N: np.ndarray, document_keys_N: np.ndarray) -> tuple[np.ndarray, int]:
    """Return the documents of all queries that have several, and how many pairs these queries have.

    Returns:
        Links, int64 (2, L): query keys and document keys, each combination once, in rising order.
    """
    order = np.lexsort((document_keys_N, query_keys_N))
    queries, documents = np.asarray(query_keys_N)[order], np.asarray(document_keys_N)[order]
    is_new = np.ones(len(order), bool)
    is_new[1:] = (queries[1:] != queries[:-1]) | (documents[1:] != documents[:-1])
    links_2L = np.stack([queries[is_new], documents[is_new]])
    has_several_L = np.zeros(links_2L.shape[1], bool)
    is_equal = links_2L[0, 1:] == links_2L[0, :-1]
    has_several_L[1:] |= is_equal
    has_several_L[:-1] |= is_equal
    links_2L = np.ascontiguousarray(links_2L[:, has_several_L])
    return links_2L, int(np.isin(queries, np.unique(links_2L[0])).sum())


def write_known_positives(folder: Path, document_keys_N: np.ndarray) -> None:
    """Write the links of all pairs into a folder that holds the keys of their queries."""
    query_keys_N = load_array(folder / QUERIES_FILE, kind="i", shape=(len(document_keys_N),), mapped=True)
    links_2L, num_pairs = find_links(query_keys_N, document_keys_N)
    np.save(folder / LINKS_FILE, links_2L)
    np.save(folder / COUNTS_FILE, np.array([num_pairs]))


@dataclass(frozen=True)
class KnownPositives:
    """The known positives of the pairs of a run."""

    query_keys_N: np.ndarray
    links_2L: np.ndarray
    num_pairs_with_several: int

    @classmethod
    def load(cls, folder: Path, num_pairs: int) -> KnownPositives:
        """Read what `write_known_positives` wrote; ValueError names a damaged file."""
        return cls(
            load_array(folder / QUERIES_FILE, kind="i", shape=(num_pairs,), mapped=True),
            load_array(folder / LINKS_FILE, kind="i", shape=(2, None), mapped=True),
            int(load_array(folder / COUNTS_FILE, kind="i", shape=(1,))[0]),
        )

    def among(self, pairs_B: np.ndarray, document_keys_M: np.ndarray) -> np.ndarray:
        """Return which documents are known positives of each pair's query, bool (B, M); the pair's own is one."""
        known_BM = np.zeros((len(pairs_B), len(document_keys_M)), bool)
        keys_B = np.asarray(self.query_keys_N[pairs_B])
        first_B, last_B = (np.searchsorted(self.links_2L[0], keys_B, side) for side in ("left", "right"))
        for row in np.flatnonzero(last_B > first_B):
            known_BM[row] = np.isin(document_keys_M, self.links_2L[1, first_B[row] : last_B[row]])
        return known_BM

    def describe(self) -> str:
        """Return one line with the number of queries that have several documents, and of their pairs."""
        return (
            f"known positives: {len(np.unique(self.links_2L[0])):,} queries have several documents "
            f"({self.num_pairs_with_several:,} of {len(self.query_keys_N):,} pairs): no negatives of each other"
        )
