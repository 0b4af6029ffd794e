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
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from repro.storage.arrays import ArrayWriter

if TYPE_CHECKING:
    import torch

Array = TypeVar("Array", np.ndarray, "torch.Tensor")


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

    `scores_BM` None: only repeated texts and known positives, `known_BM` (`repro.batches.known_positives`). The margin
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
    is_known_M = np.asarray(scores_BM.any(axis=0))
    is_known_B = scores_BM.any(axis=1) & is_known_M[: len(scores_BM)]
    return is_known_B[:, None] & is_known_M


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
