"""Sampling of training pairs such that large domains do not dominate."""

from __future__ import annotations

import numpy as np

from repro.data.pairs import Pairs
from repro.seeds import make_rng

MAX_LOT = 256
ALPHA = 0.5
"""Exponent of the shares. With 1 the proportions of the corpus stay, with 0 all domains get the same share."""


def select_pairs(pairs: Pairs, num_pairs: int, seed: int, *, lot: int = MAX_LOT) -> np.ndarray:
    """Return the sorted indices (int64) of `num_pairs` pairs, or of all pairs if there are fewer.

    Pairs are selected in lots, so that each domain fills batches of `lot` pairs or a divisor of it. Domains with fewer
    pairs are dropped. A domain of n lots gets a share proportional to n^`ALPHA`, and at most n lots (GTE §3.4, eq. 4).
    Within a domain the choice is uniform. The lot is halved until lots of this size add up to `num_pairs`.
    """
    codes = pairs.domain_codes
    if num_pairs >= len(codes):
        return np.arange(len(codes), dtype=np.int64)
    domains, sizes = np.unique(codes, return_counts=True)
    while num_pairs % lot or (sizes // lot).sum() * lot < num_pairs:
        lot //= 2
    quotas = shares(sizes // lot, num_pairs // lot, ALPHA) * lot
    order = np.argsort(codes, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)])
    selected = []
    for index in np.flatnonzero(quotas):
        rng = make_rng(seed, "select pairs", pairs.domain_names[domains[index]])
        rows = order[starts[index] : starts[index + 1]]
        selected.append(rng.choice(rows, quotas[index], replace=False))
    return np.sort(np.concatenate(selected)).astype(np.int64)


def shares(sizes: np.ndarray, total: int, alpha: float) -> np.ndarray:
    """Split `total` over domains in proportion to size^alpha, but at most the size. Return integers with this sum."""
    assert total <= sizes.sum(), "a share cannot be larger than its domain"
    weights = np.where(sizes > 0, sizes.astype(np.float64) ** alpha, 0.0)
    low, high = 0.0, float((sizes / np.maximum(weights, 1.0)).max())
    # bisection for the factor whose capped shares add up to the total
    for _ in range(100):
        middle = (low + high) / 2
        if np.minimum(sizes, middle * weights).sum() > total:
            high = middle
        else:
            low = middle
    exact = np.minimum(sizes, low * weights)
    quotas = np.floor(exact).astype(np.int64)
    # The parts lost to rounding go to the domains that lost most and are not exhausted.
    is_exhausted = quotas >= sizes
    order = np.lexsort((np.arange(len(sizes)), -(exact - quotas), is_exhausted))
    quotas[order[: total - quotas.sum()]] += 1
    return quotas


def select_source_rows(pairs: Pairs, sources: str | None) -> np.ndarray:
    """Return the rows of sources given as "a+b", int64 (N,). None selects all rows. ValueError for unknown sources."""
    if sources is None:
        return np.arange(len(pairs))
    unknown = sorted(set(sources.split("+")) - set(pairs.source_names))
    if unknown:
        raise ValueError(f"sources={sources!r}: {unknown} are not in this corpus; it has {list(pairs.source_names)}")
    selected = [pairs.source_names.index(name) for name in sources.split("+")]
    return np.flatnonzero(np.isin(pairs.source_codes, selected))
