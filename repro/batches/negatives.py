"""Hard negatives: for each pair, documents of its domain that a surrogate finds near its query, but not too near.

1. Within a domain, every document is scored for every query by the surrogate f.
2. Left out are the pair's own text and S(q, d) = {d' : f(q, d') >= f(q, d)}, likely positives (eq. 4),
   unless they are asked for. Documents of other pairs of an equal query are left out in any case, if they are given.
3. The nearest of the rest are taken; a domain that has too few gives other documents of it, drawn with a seed.

Paper: §5, supervised phase. Shapes: N pairs, D dimensions, H hard negatives, M pairs of a domain.
"""

from __future__ import annotations

import numpy as np

from repro.batches.known_positives import KnownPositives
from repro.seeds import generator_for
from repro.storage.arrays import iter_blocks, rows_by_code, taken

ROWS_AT_ONCE = 512
ROUNDING = 1e-6
"""By how much the score of one vector, as float32 sums it in one order or another, may lie below itself: a share of the
lengths of both vectors."""
GROUPS = 16
"""Groups of columns for each hard negative: with more, fewer keys are sorted, and more of their minima."""


def mine_negatives(
    queries_ND: np.ndarray,
    documents_ND: np.ndarray,
    domains_N: np.ndarray,
    keys_N: np.ndarray,
    *,
    num_hard_negatives: int,
    with_near: bool = False,
    known: KnownPositives | None = None,
    seed: int,
) -> np.ndarray:
    """Return for each pair the rows of its hard negatives, int64 (N, H), nearest first; `keys_N` tell texts apart.

    `with_near` keeps S(q, d) among those that may be taken. ValueError when a domain does not even have so many other
    texts.
    """
    negatives_NH = np.empty((len(keys_N), num_hard_negatives), np.int64)
    for members_M in rows_by_code(domains_N)[1]:
        _, first, text_M = np.unique(keys_N[members_M], return_index=True, return_inverse=True)
        order = np.argsort(first)
        pool_M = members_M[first[order]]  # each text once
        own_M = np.argsort(order)[text_M]  # where in it each pair's own is
        if len(pool_M) <= num_hard_negatives:
            raise ValueError(
                f"num_hard_negatives={num_hard_negatives}: a domain of {len(members_M)} pairs has {len(pool_M)} "
                "different documents; ask for fewer, or leave small domains out"
            )
        documents_MD = np.asarray(taken(documents_ND, pool_M), np.float32)
        for part in iter_blocks(len(members_M), ROWS_AT_ONCE):
            rows = members_M[part]
            scores_RM = np.asarray(queries_ND[rows], np.float32) @ documents_MD.T
            near_RM = None
            if not with_near:
                queries_RD, positives_RD = (np.asarray(each[rows], np.float32) for each in (queries_ND, documents_ND))
                near_RM = as_near(scores_RM, queries_RD[:, None], positives_RD[:, None])
            never_RM = known.among(rows, keys_N[pool_M]) if known else np.zeros(scores_RM.shape, bool)
            never_RM[np.arange(len(rows)), own_M[part]] = True
            _check_enough(never_RM, num_hard_negatives)
            negatives_NH[rows] = pool_M[_nearest(scores_RM, never_RM, near_RM, num_hard_negatives, seed)]
    return negatives_NH


def as_near(scores: np.ndarray, query_D: np.ndarray, positive_D: np.ndarray) -> np.ndarray:
    """Return which scores f(q, d') are not below f(q, d), eq. 4; a document with the very vector of d never is.

    Vectors lie along the last axis. The tolerance grows with their lengths: a common factor changes nothing.
    """
    positive = np.einsum("...d,...d->...", query_D, positive_D, dtype=np.float32)
    lengths = np.linalg.norm(query_D, axis=-1) * np.linalg.norm(positive_D, axis=-1)
    with np.errstate(divide="ignore"):
        # of unit vectors, which may be rounded to float16, exactly 1
        size = np.exp2(np.round(np.log2(lengths.astype(np.float64)))).astype(np.float32)
    near: np.ndarray = scores >= positive - np.float32(ROUNDING) * size
    return near


def _check_enough(never_RM: np.ndarray, num: int) -> None:
    left = never_RM.shape[1] - int(np.count_nonzero(never_RM, axis=1).max(initial=0))
    if left < num:
        raise ValueError(
            f"num_hard_negatives={num}: a query has {left} documents of its domain that are not its known positives; "
            "ask for fewer, or set known_positives='ignore'"
        )


def _nearest(
    scores_RM: np.ndarray, never_RM: np.ndarray, near_RM: np.ndarray | None, num: int, seed: int
) -> np.ndarray:
    """Return the columns of each row's hard negatives: by falling score; what is too near by lot, after all others.

    `never_RM`: the own document and known positives, which are never taken.
    """
    keys_RM = np.negative(scores_RM, out=scores_RM)
    np.copyto(keys_RM, np.inf, where=never_RM)
    if near_RM is None:
        return _first(keys_RM, num)
    near_RM &= ~never_RM
    np.copyto(keys_RM, np.inf, where=near_RM)
    num_left_R = np.count_nonzero(~(never_RM | near_RM), axis=1)
    columns_RN = np.empty((len(keys_RM), num), np.int64)
    has_few_R = num_left_R < num
    columns_RN[~has_few_R] = _first(keys_RM[~has_few_R] if has_few_R.any() else keys_RM, num)
    if has_few_R.any():
        lot_M: np.ndarray = generator_for(seed, "hard negatives").random((scores_RM.shape[1],))
        keys_FM = keys_RM[has_few_R].astype(np.float64)
        largest = float(np.abs(keys_FM, where=np.isfinite(keys_FM), out=np.zeros_like(keys_FM)).max())
        keys_FM /= max(largest, np.finfo(np.float32).tiny)  # those too near come after all others: after 1
        columns_RN[has_few_R] = _first(np.where(near_RM[has_few_R], 10.0 + lot_M, keys_FM), num)
    return columns_RN


def _first(keys_RM: np.ndarray, num: int) -> np.ndarray:
    """Return the columns of the `num` smallest of each row, in order, of equal ones the leftmost.

    At least `num` columns are not above the `num`-th smallest of the least keys of groups of columns: those are sorted.
    """
    width = keys_RM.shape[1] // (GROUPS * num)
    least_RG = np.minimum.reduceat(keys_RM, np.arange(0, keys_RM.shape[1], width), axis=1) if width > 1 else keys_RM
    bound_R = np.partition(least_RG, num - 1, axis=1)[:, num - 1]
    rows, columns = np.divmod(np.flatnonzero(keys_RM <= bound_R[:, None]), keys_RM.shape[1])
    order = np.lexsort((columns, keys_RM[rows, columns], rows))
    starts_R = np.searchsorted(rows, np.arange(len(keys_RM)))
    found_RN: np.ndarray = columns[order][starts_R[:, None] + np.arange(num)]
    return found_RN


def list_document_rows(pairs_B: np.ndarray, negatives_NH: np.ndarray | None) -> np.ndarray:
    """Return the rows of a batch's documents, int64 (M,): the positives, then the hard negatives of pair after pair."""
    if negatives_NH is None:
        return pairs_B
    return np.concatenate([pairs_B, np.asarray(negatives_NH[pairs_B]).reshape(-1)])
