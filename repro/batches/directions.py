"""The false-negative filter for a loss that contrasts in four directions: query and document, each with both kinds.

For query q with document d, and f the surrogate:
1. Query to documents: as `mask_false_negatives` says.
2. A query with q's text, or whose own document has d's text, is no negative for q nor for d. The same holds for a query
   whose own document is a known positive of q, and for one that has d as a known positive.
3. A document with d's text, or a known positive of q, is no negative for d.
4. Any other is none where f(q, q′), f(q′, d) or f(d, d′) ≥ f(q, d) + margin. Of d itself and its own hard negatives, no
   terms of the sum for d, nothing is said. One threshold for all directions, as GISTEmbed has it (Solatorio 2024).

Shapes: B pairs, M = B (1 + H) documents in the order of `repro.batches.mask`, K = 2 (B + M), D size of a vector.
"""

from __future__ import annotations

import numpy as np


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
        known_B = np.asarray(queries_BD.any(axis=1))
        known_M = np.asarray(documents_MD.any(axis=1))
        threshold_B = np.where(known_B & known_M[:num_pairs], np.diagonal(scores_BM) + margin, np.inf)
        threshold_B1 = threshold_B[:, None]
        to_queries_BB = same_BB | ((queries_BD @ queries_BD.T >= threshold_B1) & known_B)
        documents_queries_BB = scores_BM[:, :num_pairs].T
        from_queries_BB = same_BB | ((documents_queries_BB >= threshold_B1) & known_B)
        to_documents_BM = same_BM | ((documents_MD[:num_pairs] @ documents_MD.T >= threshold_B1) & known_M)
    blocks = [masked_BM, to_queries_BB & ~itself_BB, from_queries_BB & ~itself_BB, to_documents_BM & ~own_BM]
    return np.concatenate(blocks, axis=1)
