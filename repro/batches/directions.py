"""The false-negative filter for a loss that contrasts in four directions: query and document, each with both kinds.

For query q with document d, and f the surrogate: 1. Query to documents: as `mask_false_negatives` says. 2. A query with
q's text, or whose own document has d's text, is no negative for q nor for d. 3. A document with d's text is none for d.
4. Any other is none where f(q, q′), f(q′, d) or f(d, d′) ≥ f(q, d) + margin. Of d itself and its own hard negatives, no
terms of the sum for d, nothing is said. One threshold for all directions, as GISTEmbed has it (Solatorio 2024).

Shapes: B pairs, M = B (1 + H) documents in the order of `repro.batches.mask`, K = 2 (B + M), D size of a vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Directions:
    """The surrogate's scores in each direction: queries with documents and queries, own documents with documents."""

    queries_documents_BM: np.ndarray
    queries_queries_BB: np.ndarray
    documents_documents_BM: np.ndarray

    @classmethod
    def of(cls, queries_BD: np.ndarray, documents_MD: np.ndarray) -> Directions:
        """Return the inner products of a batch's vectors."""
        own_BD = documents_MD[: len(queries_BD)]
        return cls(queries_BD @ documents_MD.T, queries_BD @ queries_BD.T, own_BD @ documents_MD.T)


def mask_directions(
    query_keys_B: np.ndarray,
    content_keys_M: np.ndarray,
    masked_BM: np.ndarray,
    scores: Directions | None,
    *,
    margin: float = 0.0,
    num_hard_negatives: int = 0,
) -> np.ndarray:
    """Return what a pair's loss leaves out, bool (B, K): of query to documents, to queries, document to queries, to
    documents; `masked_BM` is the first. Without scores, only repeated texts. A pair's own entries are never masked.
    """
    num_pairs = len(query_keys_B)
    own_keys_B = content_keys_M[:num_pairs]
    same_BB = (query_keys_B[:, None] == query_keys_B) | (own_keys_B[:, None] == own_keys_B)
    same_BM = own_keys_B[:, None] == content_keys_M
    to_queries_BB, from_queries_BB, to_documents_BM = same_BB, same_BB, same_BM
    itself_BB = np.eye(num_pairs, dtype=bool)
    own_BM = np.concatenate([itself_BB, itself_BB.repeat(num_hard_negatives, axis=1)], axis=1)
    if scores is not None:
        threshold_B1 = np.diagonal(scores.queries_documents_BM)[:, None] + margin
        to_queries_BB = same_BB | (scores.queries_queries_BB >= threshold_B1)
        documents_queries_BB = scores.queries_documents_BM[:, :num_pairs].T
        from_queries_BB = same_BB | (documents_queries_BB >= threshold_B1)
        to_documents_BM = same_BM | (scores.documents_documents_BM >= threshold_B1)
    blocks = [masked_BM, to_queries_BB & ~itself_BB, from_queries_BB & ~itself_BB, to_documents_BM & ~own_BM]
    return np.concatenate(blocks, axis=1)
