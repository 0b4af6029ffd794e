"""Hard negatives: for each pair, documents of its domain that a surrogate finds near its query, but not too near.

1. Within a domain, every document is scored for every query by the surrogate f.
2. Left out are the pair's own text and S(q, d) = {d' : f(q, d') >= f(q, d)}, likely positives (eq. 4),
   unless they are asked for.
3. The nearest of the rest are taken; a domain that has too few gives other documents of it, drawn with a seed.

Paper: §5, supervised phase. Shapes: N pairs, D dimensions, H hard negatives, M pairs of a domain.
"""

from __future__ import annotations

import numpy as np

from repro.seeds import generator_for
from repro.storage.arrays import rows_by_code, taken

ROWS_AT_ONCE = 512


def mine_negatives(
    queries_ND: np.ndarray,
    documents_ND: np.ndarray,
    domains_N: np.ndarray,
    keys_N: np.ndarray,
    *,
    num_hard_negatives: int,
    with_near: bool = False,
    seed: int,
) -> np.ndarray:
    """Return for each pair the rows of its hard negatives, int64 (N, H), nearest first; `keys_N` tell texts apart.

    `with_near` keeps S(q, d) among those that may be taken. ValueError when a domain does not even have so many other
    texts.
    """
    negatives_NH = np.empty((len(keys_N), num_hard_negatives), np.int64)
    for members_M in rows_by_code(domains_N)[1]:
        _, first = np.unique(keys_N[members_M], return_index=True)
        pool_M = members_M[np.sort(first)]  # each text once
        if len(pool_M) <= num_hard_negatives:
            raise ValueError(
                f"num_hard_negatives={num_hard_negatives}: a domain of {len(members_M)} pairs has {len(pool_M)} "
                "different documents; ask for fewer, or leave small domains out"
            )
        documents_MD = np.asarray(taken(documents_ND, pool_M), np.float32)
        for start in range(0, len(members_M), ROWS_AT_ONCE):
            rows = members_M[start : start + ROWS_AT_ONCE]
            scores_RM = np.asarray(queries_ND[rows], np.float32) @ documents_MD.T
            if not with_near:
                own_R = np.einsum("rd,rd->r", queries_ND[rows], documents_ND[rows], dtype=np.float32)
                scores_RM[scores_RM >= own_R[:, None]] = np.nan
            scores_RM[keys_N[pool_M][None] == keys_N[rows][:, None]] = -np.inf
            negatives_NH[rows] = pool_M[_first(_falling(scores_RM, seed), num_hard_negatives)]
    return negatives_NH


def _falling(scores_RM: np.ndarray, seed: int) -> np.ndarray:
    """Return what to sort by: falling score; those that are NaN (too near) late, by lot; -inf (the same text) last."""
    lot_M: np.ndarray = generator_for(seed, "hard negatives").random((scores_RM.shape[1],))
    return np.where(np.isnan(scores_RM), 10.0 + lot_M[None], -scores_RM)


def _first(keys_RM: np.ndarray, num: int) -> np.ndarray:
    """Return the columns of the `num` smallest of each row, in order, of equal ones the leftmost; sorts no more."""
    columns_RN = np.empty((len(keys_RM), num), np.int64)
    last_R = np.partition(keys_RM, num - 1, axis=1)[:, num - 1]
    for row, (keys_M, last) in enumerate(zip(keys_RM, last_R, strict=True)):
        near = np.flatnonzero(keys_M <= last)
        columns_RN[row] = near[np.argsort(keys_M[near], kind="stable")][:num]
    return columns_RN


def document_rows(pairs_B: np.ndarray, negatives_NH: np.ndarray | None) -> np.ndarray:
    """Return the rows of a batch's documents, int64 (M,): the positives, then the hard negatives of pair after pair."""
    if negatives_NH is None:
        return pairs_B
    return np.concatenate([pairs_B, np.asarray(negatives_NH[pairs_B]).reshape(-1)])
