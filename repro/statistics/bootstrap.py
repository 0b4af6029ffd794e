"""Compute 95 % intervals over queries, within each dataset.

A metric is the mean over strata (datasets) of the mean over units (queries).

1. If every stratum has at least `MANY_UNITS` units, the interval is that of a paired bootstrap. A resample draws units
   with replacement inside every stratum. Both systems get the same draw, so their common variance cancels.
2. The bootstrap is too narrow for fewer units: over two it excludes zero in half of the draws without a difference.
   Student's t interval is used instead.
3. There is no interval below `MIN_UNITS` units, or if the units of each stratum are all equal. An interval of zero width
   would claim certainty.

Shapes: Q units, R resamples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np

from repro.seeds import make_rng

RESAMPLES_PER_BLOCK = 250
MIN_UNITS, MANY_UNITS = 3, 20

Interval = tuple[float, float]


def compute_interval(better_Q: np.ndarray, worse_Q: np.ndarray, strata_Q: np.ndarray) -> Interval | None:
    """Return the interval of the mean difference better − worse, or None if there is none."""
    differences_Q = np.subtract(better_Q, worse_Q, dtype=np.float64)
    parts = [differences_Q[strata_Q == stratum] for stratum in np.unique(strata_Q)]
    weights = np.full(len(parts), 1 / len(parts))
    return choose_interval(parts, weights, lambda: paired_bootstrap(better_Q, worse_Q, strata_Q))


def choose_interval(
    parts: Sequence[np.ndarray], weights: np.ndarray, resample: Callable[[], np.ndarray]
) -> Interval | None:
    """Return the interval of a weighted sum of the means of strata, or None if there is none.

    Args:
        parts: the differences of the units of each stratum.
        weights: the weight of each stratum, float64.
        resample: returns the bootstrap resamples of the sum, (R,). They are drawn only if they are needed.
    """
    if not any(np.ptp(part) > 0 for part in parts):
        return None
    if min(map(len, parts)) >= MANY_UNITS:
        return percentile_interval(resample())
    return _compute_t_interval(parts, weights)


def _compute_t_interval(parts: Sequence[np.ndarray], weights: np.ndarray) -> Interval | None:
    """Return the t interval of the weighted sum of the means of strata that vary. None for too few units.

    The degrees of freedom are those of Welch and Satterthwaite. A stratum with fewer than `MIN_UNITS` units has the
    variance of the pooled units.
    """
    from scipy.stats import t

    sizes = np.array(list(map(len, parts)))
    freedom = sizes - 1
    if freedom.sum() < MIN_UNITS - 1:
        return None
    squares = np.array([((part - part.mean()) ** 2).sum() for part in parts])
    shares = weights**2 / sizes
    has_own = sizes >= MIN_UNITS
    # The variance of the sum has one component per stratum with its own variance, and one of all others together.
    components = [*(shares * squares / np.maximum(freedom, 1))[has_own]]
    freedoms = [*freedom[has_own]]
    if not has_own.all():
        components.append(shares[~has_own].sum() * squares.sum() / freedom.sum())
        freedoms.append(freedom.sum())
    variance = np.sum(components)
    num_degrees = variance**2 / np.sum(np.square(components) / freedoms)
    centre = sum(weight * part.mean() for weight, part in zip(weights, parts, strict=True))
    low, high = t.interval(0.95, num_degrees, centre, np.sqrt(variance))
    return float(low), float(high)


def paired_bootstrap(
    better_Q: np.ndarray, worse_Q: np.ndarray, strata_Q: np.ndarray, *, num_samples: int = 2000, seed: int = 0
) -> np.ndarray:
    """Return resampled differences better − worse, float64 (R,).

    The same seed and strata give the same draws, so two calls can be compared resample by resample.

    Raises:
        ValueError: if the shapes differ.
    """
    shapes = {np.shape(values) for values in (better_Q, worse_Q, strata_Q)}
    if len(shapes) != 1:
        raise ValueError(f"units do not pair up: shapes {sorted(shapes)}")
    # each unit has weight 1 / (size of its stratum * number of strata)
    names, codes_Q, sizes = np.unique(strata_Q, return_inverse=True, return_counts=True)
    # float64, because differences of scores are small and are summed over thousands of units.
    shares_Q = np.subtract(better_Q, worse_Q, dtype=np.float64) / (sizes[codes_Q] * len(names))
    counts_RQ = _draw_counts(codes_Q.astype("<i8").tobytes(), num_samples, seed)
    blocks = [counts_RQ[start : start + RESAMPLES_PER_BLOCK] for start in range(0, num_samples, RESAMPLES_PER_BLOCK)]
    return np.concatenate([block.astype(np.float64) @ shares_Q for block in blocks])


@lru_cache(maxsize=2)
def _draw_counts(codes: bytes, num_samples: int, seed: int) -> np.ndarray:
    """Return how often each unit is drawn in each resample, uint16 (R, Q). Each stratum keeps its number of units.

    The result is cached for further comparisons with the same units and seed. Drawing takes far longer than the
    product.
    """
    codes_Q = np.frombuffer(codes, dtype="<i8")
    generator = make_rng(seed, "bootstrap")
    members = [np.flatnonzero(codes_Q == code) for code in range(codes_Q.max() + 1)]
    counts_RQ = np.zeros((num_samples, len(codes_Q)), dtype=np.uint16)
    for start in range(0, num_samples, RESAMPLES_PER_BLOCK):
        block_RQ = counts_RQ[start : start + RESAMPLES_PER_BLOCK]
        for units in members:
            num_rows, num_units = block_RQ.shape[0], len(units)
            # row r counts into the bins from r * num_units on, so one bincount serves the whole block
            draws_RQ = generator.integers(0, num_units, (num_rows, num_units))
            draws_RQ += num_units * np.arange(num_rows)[:, None]
            counts = np.bincount(draws_RQ.ravel(), minlength=num_rows * num_units)
            block_RQ[:, units] = counts.reshape(num_rows, num_units)
    return counts_RQ


def percentile_interval(samples: np.ndarray) -> Interval:
    """Return the 95 % percentile interval, which excludes 2.5 % of the resamples on each side."""
    low, high = np.quantile(samples, [0.05 / 2, 1 - 0.05 / 2])
    return float(low), float(high)
