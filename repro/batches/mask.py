"""The false-negative filter: which documents of a batch a query must not be pushed away from (eq. 4, §4.1).

Steps, for query q with positive d and every other document d′ of the batch:
1. d′ has the text of d: it is a positive under another id, and is masked, with or without a surrogate.
2. d′ is one of q's own hard negatives: it was chosen as a negative, and is kept.
3. The surrogate f says f(q, d′) ≥ f(q, d) + margin: d′ belongs to S(q, d), and is masked.
The positive is never masked.

Documents are the columns of the scores: first the positives of the B pairs of the batch, then their hard negatives, H
for the first pair, H for the second, … Works on numpy arrays and on torch tensors alike.

Shapes: Q queries, B pairs, H hard negatives a pair, M = B·(1 + H) documents.
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


def content_keys(texts: Sequence[str]) -> np.ndarray:
    """Return an int64 key for each text; texts that differ only in case or white space have the same key."""
    normal = (" ".join(text.casefold().split()).encode() for text in texts)
    digests = b"".join(hashlib.blake2b(text, digest_size=8).digest() for text in normal)
    return np.frombuffer(digests, dtype="<i8").astype(np.int64)


def write_content_keys(path: Path, blocks: Iterable[Sequence[str]]) -> None:
    """Write the keys of blocks of texts as one .npy file, int64 (N,); memory holds one block."""
    with ArrayWriter(path, "int64") as keys:
        for block in blocks:
            keys.append(content_keys(block))


def mask_false_negatives(
    positive_columns_Q: Array,
    content_keys_M: Array,
    *,
    scores_QM: Array | None,
    margin: float = 0.0,
    num_hard_negatives: int = 0,
) -> Array:
    """Return the documents that query's loss leaves out, bool (Q, M); `scores_QM` None: only repeated texts.

    The margin is added to the positive's score, so a larger one masks less; scores may be negative. ValueError when the
    columns cannot be B pairs with `num_hard_negatives` each.
    """
    num_documents = len(content_keys_M)
    if num_documents % (1 + num_hard_negatives):
        raise ValueError(f"{num_documents} documents are no pairs with {num_hard_negatives} hard negatives each")
    # Counted from the keys themselves, so the result is of their library and on their device.
    columns_M = (content_keys_M == content_keys_M).cumsum(0) - 1
    positives_Q1 = positive_columns_Q[:, None]
    is_positive_QM = columns_M == positives_Q1
    masked_QM = content_keys_M == content_keys_M[positive_columns_Q][:, None]
    if scores_QM is not None:
        own_scores_Q1 = scores_QM[columns_M[: len(positive_columns_Q)], positive_columns_Q][:, None]
        is_near_QM = scores_QM >= own_scores_Q1 + margin
        num_pairs = num_documents // (1 + num_hard_negatives)
        masked_QM = masked_QM | (is_near_QM & ~_is_own(columns_M, positives_Q1, num_pairs, num_hard_negatives))
    return masked_QM & ~is_positive_QM


def masked_fraction(masked_QK: Array, num_documents: int | None = None) -> Array:
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


def batch_difficulty(scores_QM: Array, positive_columns_Q: Array) -> float:
    """Return the mean surrogate similarity of a query to the other documents of its batch (Figure 6)."""
    num_queries, num_documents = scores_QM.shape
    if num_documents < 2:
        raise ValueError("a batch of one document has no negatives, so no difficulty")
    rows_Q = (positive_columns_Q == positive_columns_Q).cumsum(0) - 1
    own_Q = scores_QM[rows_Q, positive_columns_Q]
    return float(scores_QM.sum() - own_Q.sum()) / (num_queries * (num_documents - 1))


def _is_own(columns_M: Array, positives_Q1: Array, num_pairs: int, num_hard_negatives: int) -> Array:
    """Return which columns are a query's own hard negatives."""
    owner_M = (columns_M - num_pairs) // max(1, num_hard_negatives)
    return (columns_M >= num_pairs) & (owner_M == positives_Q1)
