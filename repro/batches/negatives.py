"""Hard negatives of the supervised phase (§5): mined ones, or those that were given with the pairs.

Mining finds documents of the same domain that a surrogate model places near the query:

1. The surrogate f scores every document of a domain for every query.
2. The pair's own text is excluded. S(q, d) = {d' : f(q, d') >= f(q, d)} contains likely positives (eq. 4) and is
   excluded unless `with_near` is set. Known positives of the query are always excluded if they are passed.
3. The highest-scoring remaining documents become the hard negatives. If too few remain, random documents of S(q, d)
   fill the list.

Shapes: N pairs, D dimensions, H hard negatives, M pairs or distinct documents of a domain, R rows of a block, F rows
that need near documents, G column groups.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from repro.batches.mask import ROUNDING, KnownPositives
from repro.data.pairs import Pairs, Row, write_pairs
from repro.seeds import make_rng
from repro.storage.arrays import group_rows_by_code, iter_blocks, take_rows

ROWS_PER_CHUNK = 512
PAIRS_PER_READ = 8_192
GROUPS_PER_NEGATIVE = 16
"""Column groups per hard negative. With more groups, fewer keys but more group minima are sorted."""


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
    """Return the rows of the hard negatives of each pair, int64 (N, H), nearest first.

    `keys_N` identifies equal texts. With `with_near`, S(q, d) is not excluded.

    Raises ValueError if a domain has too few different texts.
    """
    negatives_NH = np.empty((len(keys_N), num_hard_negatives), np.int64)
    for members_M in group_rows_by_code(domains_N)[1]:
        # The pool holds each distinct text once, in order of first appearance.
        _, first_index, text_index_M = np.unique(keys_N[members_M], return_index=True, return_inverse=True)
        # `np.unique` sorts by key, which is a hash. `order` restores the order of the data.
        order = np.argsort(first_index)
        pool_M = members_M[first_index[order]]
        # The argsort of a permutation is its inverse: the column of each pair's own text in the pool.
        own_column_M = np.argsort(order)[text_index_M]
        if len(pool_M) <= num_hard_negatives:
            raise ValueError(f"num_hard_negatives={num_hard_negatives}: a domain has {len(pool_M)} different documents")
        # One domain's documents are in memory. Queries are scored in blocks of rows.
        documents_MD = np.asarray(take_rows(documents_ND, pool_M), np.float32)
        for part in iter_blocks(len(members_M), ROWS_PER_CHUNK):
            rows = members_M[part]
            queries_RD = np.asarray(queries_ND[rows], np.float32)
            scores_RM = queries_RD @ documents_MD.T
            near_RM = None
            if not with_near:
                positives_RD = np.asarray(documents_ND[rows], np.float32)
                near_RM = as_near(scores_RM, queries_RD[:, None], positives_RD[:, None])
            excluded_RM = known.find_in_batch(rows, keys_N[pool_M]) if known else np.zeros(scores_RM.shape, bool)
            excluded_RM[np.arange(len(rows)), own_column_M[part]] = True
            num_available = len(pool_M) - int(np.count_nonzero(excluded_RM, axis=1).max(initial=0))
            if num_available < num_hard_negatives:
                found = f"a query has {num_available} documents to choose from"
                raise ValueError(f"num_hard_negatives={num_hard_negatives}: {found}")
            negatives_NH[rows] = pool_M[_choose_nearest(scores_RM, excluded_RM, near_RM, num_hard_negatives, seed)]
    return negatives_NH


def as_near(scores: np.ndarray, query_D: np.ndarray, positive_D: np.ndarray) -> np.ndarray:
    """Return which scores f(q, d') reach f(q, d) (eq. 4).

    Vectors lie along the last axis. A score at the limit counts as near within a rounding tolerance. The tolerance
    grows with the vector lengths, so a common factor changes nothing.
    """
    positive = np.einsum("...d,...d->...", query_D, positive_D, dtype=np.float32)
    lengths = np.linalg.norm(query_D, axis=-1) * np.linalg.norm(positive_D, axis=-1)
    with np.errstate(divide="ignore"):
        # Round the lengths to a power of two. For unit vectors, even after rounding to float16, it is exactly 1.
        scale = np.exp2(np.round(np.log2(lengths.astype(np.float64)))).astype(np.float32)
    near: np.ndarray = scores >= positive - np.float32(ROUNDING) * scale
    return near


def _choose_nearest(
    scores_RM: np.ndarray, excluded_RM: np.ndarray, near_RM: np.ndarray | None, num_negatives: int, seed: int
) -> np.ndarray:
    """Return the columns of each row's hard negatives, ordered by falling score.

    `excluded_RM` marks the own document and known positives, which are excluded. Documents in `near_RM` come last, in
    random order.
    """
    # in place, because the block of scores is the largest array here
    keys_RM = np.negative(scores_RM, out=scores_RM)
    np.copyto(keys_RM, np.inf, where=excluded_RM)
    if near_RM is None:
        return _find_smallest(keys_RM, num_negatives)
    # The own document and known positives must not fill the list either.
    near_RM &= ~excluded_RM
    np.copyto(keys_RM, np.inf, where=near_RM)
    num_left_R = np.count_nonzero(~(excluded_RM | near_RM), axis=1)
    columns_RH = np.empty((len(keys_RM), num_negatives), np.int64)
    has_few_R = num_left_R < num_negatives
    # Masking with all rows True would copy the block, so pass it as it is.
    columns_RH[~has_few_R] = _find_smallest(keys_RM[~has_few_R] if has_few_R.any() else keys_RM, num_negatives)
    if has_few_R.any():
        # One random key per document, drawn again from the same seed for each block. The result does not depend on the
        # block size.
        random_M: np.ndarray = make_rng(seed, "hard negatives").random((scores_RM.shape[1],))
        # float64, because random keys added to 10 would lose digits in float32 and tie.
        keys_FM = keys_RM[has_few_R].astype(np.float64)
        largest = float(np.abs(keys_FM, where=np.isfinite(keys_FM), out=np.zeros_like(keys_FM)).max())
        # Scale the keys to at most 1, so that the near documents (keys from 10) come after all others.
        keys_FM /= max(largest, np.finfo(np.float32).tiny)
        columns_RH[has_few_R] = _find_smallest(np.where(near_RM[has_few_R], 10.0 + random_M, keys_FM), num_negatives)
    return columns_RH


def _find_smallest(keys_RM: np.ndarray, num_negatives: int) -> np.ndarray:
    """Return the columns of the H smallest keys of each row, in order, int64 (R, H). Ties go to the leftmost column.

    Columns are grouped, and each group is reduced to its minimum. The H-th smallest minimum is an upper bound of the
    H smallest keys, so only keys up to this bound are sorted.
    """
    width = keys_RM.shape[1] // (GROUPS_PER_NEGATIVE * num_negatives)
    minima_RG = np.minimum.reduceat(keys_RM, np.arange(0, keys_RM.shape[1], width), axis=1) if width > 1 else keys_RM
    # At least H groups have their minimum within the bound. So at least H keys of each row pass, and the slices
    # below stay inside their row.
    bound_R = np.partition(minima_RG, num_negatives - 1, axis=1)[:, num_negatives - 1]
    rows, columns = np.divmod(np.flatnonzero(keys_RM <= bound_R[:, None]), keys_RM.shape[1])
    # The last key is the primary one: by row, then by key, then by column.
    order = np.lexsort((columns, keys_RM[rows, columns], rows))
    starts_R = np.searchsorted(rows, np.arange(len(keys_RM)))
    smallest_RH: np.ndarray = columns[order][starts_R[:, None] + np.arange(num_negatives)]
    return smallest_RH


def write_given_negatives(
    pairs: Pairs, domain_codes_N: np.ndarray, path: Path, *, num_hard_negatives: int, seed: int
) -> np.ndarray:
    """Write the given negatives of pairs to a file of pairs without queries, and return their rows, int64 (N, H).

    Row N + k is text k of the file. Of more than H negatives of a pair, the first ones are used. A pair with fewer gets
    documents of random pairs of its domain.

    Raises:
        ValueError: if no pair has a negative.
    """
    generator = make_rng(seed, "given negatives")
    rows_NH = np.empty((len(pairs), num_hard_negatives), np.int64)
    for members in group_rows_by_code(domain_codes_N)[1]:
        rows_NH[members] = generator.choice(members, (len(members), num_hard_negatives))
    if not write_pairs(path, _iter_given(pairs, rows_NH)):
        raise ValueError("mined_negatives='given': no pair of this corpus has negatives: choose 'below'")
    return rows_NH


def _iter_given(pairs: Pairs, rows_NH: np.ndarray) -> Iterator[Row]:
    """Yield the given negatives as rows without a query, and store their numbers in `rows_NH`."""
    num_texts = 0
    for block in iter_blocks(len(pairs), PAIRS_PER_READ):
        indices = np.arange(block.start, block.stop)
        domains, sources = pairs.domain_codes[block].tolist(), pairs.source_codes[block].tolist()
        for index, domain, source, texts in zip(indices, domains, sources, pairs.negatives(indices), strict=True):
            for place, text in enumerate((texts or ())[: rows_NH.shape[1]]):
                rows_NH[index, place] = len(pairs) + num_texts
                yield Row(str(num_texts), "", text, pairs.domain_names[domain], pairs.source_names[source])
                num_texts += 1
        pairs.release_pages()


def list_document_rows(pairs_B: np.ndarray, negatives_NH: np.ndarray | None) -> np.ndarray:
    """Return the rows of a batch's documents, int64 (M,): all positives, then the hard negatives pair by pair."""
    if negatives_NH is None:
        return pairs_B
    return np.concatenate([pairs_B, np.asarray(negatives_NH[pairs_B]).reshape(-1)])
