"""Intervals for differences of systems: a paired bootstrap over seeds and queries, and Holm's correction.

A metric is the mean over strata (datasets) of the mean over units (queries). A resample draws, with replacement, the
seeds (when there are two or more) and, inside every stratum, the units; both systems get the same draw, so what they
share cancels. The draw of units is kept as counts, so a resample is one row of a matrix product.

Shapes: S seeds, Q units, R resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from scipy.stats import rankdata

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
    """Gives resampled differences better − worse, float64 (R,).

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


def stratified_mean(values_Q: np.ndarray, strata_Q: np.ndarray) -> float:
    """Gives the mean over strata of the mean over their units."""
    return float(np.mean([values_Q[strata_Q == stratum].mean() for stratum in np.unique(strata_Q)]))


def _draw_seeds(num_samples: int, seed: int, num_seeds: int) -> np.ndarray:
    """Gives what each seed counts in each resample, (R, S); a row sums to 1."""
    if num_seeds == 1:
        return np.ones((num_samples, 1))
    even = np.full(num_seeds, 1 / num_seeds)
    return generator_for(seed, "bootstrap", "seeds").multinomial(num_seeds, even, num_samples) / num_seeds


@lru_cache(maxsize=2)
def _draw_counts(codes: bytes, num_samples: int, seed: int) -> np.ndarray:
    """Gives how often each unit is drawn in each resample, (R, Q), as many units of each stratum as it has.

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
    """Gives the interval that leaves out a share `level` of the resamples, half on each side."""
    low, high = np.quantile(samples, [level / 2, 1 - level / 2])
    return float(low), float(high)


def two_sided_p(samples: np.ndarray) -> float:
    """Gives twice the share of resampled differences on the rarer side of zero; never 0, as resamples are finite."""
    rarer = min(int((samples <= 0).sum()), int((samples >= 0).sum()))
    return min(1.0, 2 * (rarer + 1) / (len(samples) + 1))


def correlation_bootstrap(
    x: np.ndarray, y: np.ndarray, *, kind: str = "pearson", num_samples: int = 2000, seed: int = 0
) -> tuple[float, np.ndarray]:
    """Gives the correlation of paired values (one pair a run) and its resamples over the pairs, float64 (R,).

    `kind` is "pearson", or "spearman": Pearson's of the ranks, which each resample ranks anew. A resample in which a
    side does not vary has no correlation and is left out. ValueError for under three pairs or a side that is constant.
    """
    if kind not in ("pearson", "spearman"):
        raise ValueError(f"unknown correlation {kind!r}; choose one of ['pearson', 'spearman']")
    if np.shape(x) != np.shape(y) or len(x) < 3 or np.ptp(x) == 0 or np.ptp(y) == 0:
        raise ValueError(f"{len(x)} and {len(y)} values have no correlation: it takes three pairs, not all equal")
    draws = generator_for(seed, "bootstrap of a correlation").integers(0, len(x), (num_samples, len(x)))
    rows_RN = [np.vstack([side, np.asarray(side)[draws]]).astype(np.float64) for side in (x, y)]
    if kind == "spearman":
        rows_RN = [rankdata(side, axis=1) for side in rows_RN]
    with np.errstate(invalid="ignore", divide="ignore"):
        centred = [side - side.mean(axis=1, keepdims=True) for side in rows_RN]
        norms = np.sqrt((centred[0] ** 2).sum(axis=1) * (centred[1] ** 2).sum(axis=1))
        correlations = np.where(norms > 0, (centred[0] * centred[1]).sum(axis=1) / norms, np.nan)
    return float(correlations[0]), correlations[1:][np.isfinite(correlations[1:])]


def holm_levels(p_values: Sequence[float], alpha: float = 0.05) -> list[float]:
    """Gives the level each p-value is compared with under Holm's step-down procedure, in the order given.

    A test is significant when its p-value is at or below its level. Once one fails, all larger ones fail too: their
    level becomes that of the first that failed.
    """
    if not len(p_values):
        return []
    order = np.argsort(p_values, kind="stable")
    levels = np.empty(len(p_values))
    level, failed = 0.0, False
    for place, test in enumerate(order):
        if not failed:
            level = alpha / (len(p_values) - place)
            failed = p_values[test] > level
        levels[test] = level
    return [float(level) for level in levels]
