"""Compute intervals over queries by a paired bootstrap that resamples within each dataset.

A metric is the mean over strata (datasets) of the mean over units (queries). A resample draws units with replacement
inside every stratum. Both systems get the same draw, so their common variance cancels. Draws are stored as counts per
unit, which turns all resamples into one matrix product.

Shapes: Q units, R resamples.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from repro.seeds import make_rng

RESAMPLES_PER_BLOCK = 250


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


def can_resample(strata_Q: np.ndarray) -> bool:
    """Return whether resamples can differ. With one unit per stratum all are equal, and an interval has no width."""
    return len(strata_Q) > len(np.unique(strata_Q))


def percentile_interval(samples: np.ndarray) -> tuple[float, float]:
    """Return the 95 % percentile interval, which excludes 2.5 % of the resamples on each side."""
    low, high = np.quantile(samples, [0.05 / 2, 1 - 0.05 / 2])
    return float(low), float(high)
