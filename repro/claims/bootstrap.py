"""The interval of a score over its queries: a paired bootstrap, for the card of one model.

A metric is the mean over strata (datasets) of the mean over units (queries). A resample draws, with replacement, the
seeds (when there are two or more) and, inside every stratum, the units; both systems get the same draw, so what they
share cancels. The draw of units is kept as counts, so a resample is one row of a matrix product.

Shapes: S seeds, Q units, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from repro.seeds import generator_for

RESAMPLES_PER_BLOCK = 250


def paired_bootstrap(
    better: Sequence[np.ndarray],
    worse: Sequence[np.ndarray],
    strata_Q: np.ndarray,
    *,
    num_samples: int = 2000,
    seed: int = 0,
) -> np.ndarray:
    """Return resampled differences better − worse, float64 (R,).

    Each system is a list over seeds of arrays (Q,), paired by place. The same seed and shapes give the same draws, so
    two calls can be compared resample by resample. ValueError when the two do not pair up.
    """
    if len(better) != len(worse) or not better:
        raise ValueError(f"{len(better)} and {len(worse)} seeds do not pair up")
    shapes = {np.shape(values) for values in (*better, *worse, strata_Q)}
    if len(shapes) != 1:
        raise ValueError(f"units do not pair up: shapes {sorted(shapes)}")
    differences_SQ = np.stack([np.subtract(b, w, dtype=np.float64) for b, w in zip(better, worse, strict=True)])
    num_seeds = len(differences_SQ)
    seed_weights_RS = _draw_seeds(num_samples, seed, num_seeds)
    names, codes_Q, sizes = np.unique(strata_Q, return_inverse=True, return_counts=True)
    shares_SQ = differences_SQ / (sizes[codes_Q] * len(names))
    counts_RQ = _draw_counts(codes_Q.astype("<i8").tobytes(), num_samples, seed)
    blocks = [counts_RQ[start : start + RESAMPLES_PER_BLOCK] for start in range(0, num_samples, RESAMPLES_PER_BLOCK)]
    resampled_RS = np.concatenate([block.astype(np.float64) @ shares_SQ.T for block in blocks])
    return (resampled_RS * seed_weights_RS).sum(axis=1)


def _draw_seeds(num_samples: int, seed: int, num_seeds: int) -> np.ndarray:
    """Return what each seed counts in each resample, (R, S); a row sums to 1."""
    if num_seeds == 1:
        return np.ones((num_samples, 1))
    even = np.full(num_seeds, 1 / num_seeds)
    return generator_for(seed, "bootstrap", "seeds").multinomial(num_seeds, even, num_samples) / num_seeds


@lru_cache(maxsize=2)
def _draw_counts(codes: bytes, num_samples: int, seed: int) -> np.ndarray:
    """Return how often each unit is drawn in each resample, (R, Q), as many units of each stratum as it has.

    Kept, since all comparisons of one suite share it: drawing takes far longer than multiplying.
    """
    codes_Q = np.frombuffer(codes, dtype="<i8")
    generator = generator_for(seed, "bootstrap")
    members = [np.flatnonzero(codes_Q == code) for code in range(codes_Q.max() + 1)]
    counts_RQ = np.zeros((num_samples, len(codes_Q)), dtype=np.uint16)
    for start in range(0, num_samples, RESAMPLES_PER_BLOCK):
        block_RQ = counts_RQ[start : start + RESAMPLES_PER_BLOCK]
        for places in members:
            size, count = len(block_RQ), len(places)
            draws_RQ = generator.integers(0, count, (size, count)) + count * np.arange(size)[:, None]
            block_RQ[:, places] = np.bincount(draws_RQ.ravel(), minlength=size * count).reshape(size, count)
    return counts_RQ


def percentile_interval(samples: np.ndarray, level: float = 0.05) -> tuple[float, float]:
    """Return the interval that leaves out a share `level` of the resamples, half on each side."""
    low, high = np.quantile(samples, [level / 2, 1 - level / 2])
    return float(low), float(high)
