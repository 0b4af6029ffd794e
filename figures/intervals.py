"""Compute means over repetitions with their intervals, and describe the intervals."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from pandas.core.groupby import SeriesGroupBy
from scipy import stats

LEVEL = 0.95
MIN_SEEDS_FOR_INTERVAL = 3


def summarise_seeds(frame: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Return mean, low, high and n of `y` at each `x`, in the order of `x`. Several rows of one seed count once.

    With at least three seeds, low and high are Student's 95 % interval of the mean, otherwise the range.
    """
    return compute_intervals(frame.groupby([x, "seed"], sort=False)[y].mean().groupby(level=0, sort=True))


def compute_intervals(seeds: SeriesGroupBy) -> pd.DataFrame:
    """Return mean, low, high and n of each group of values, one value per seed. Missing values do not count."""
    mean, count = seeds.mean(), seeds.count()
    # a group of one seed has no degree of freedom: its width is not used, but must not divide by zero
    half_width = stats.t.ppf((1 + LEVEL) / 2, np.maximum(count - 1, 1)) * seeds.std() / np.sqrt(count)
    is_interval = count >= MIN_SEEDS_FOR_INTERVAL
    low = seeds.min().where(~is_interval, mean - half_width)
    high = seeds.max().where(~is_interval, mean + half_width)
    return pd.DataFrame({"mean": mean, "low": low, "high": high, "n": count})


def describe_interval(counts: Iterable[int], marks: str) -> str:
    """Describe the bands or bars of points with these numbers of seeds."""
    distinct = set(counts)
    if distinct <= {1}:
        return "one seed: no interval"
    if min(distinct) >= MIN_SEEDS_FOR_INTERVAL:
        return f"{marks}: 95 % interval of the mean over n seeds (Student's t)"
    if max(distinct) < MIN_SEEDS_FOR_INTERVAL:
        return f"{marks}: range over seeds"
    return (
        f"{marks}: 95 % interval of the mean (Student's t) where n ≥ {MIN_SEEDS_FOR_INTERVAL} seeds, else their range"
    )


def format_counts(counts: Iterable[int]) -> str:
    """Return "n = 3" or "n = 1–3"."""
    distinct = set(counts)
    low, high = min(distinct), max(distinct)
    return f"n = {low}" if low == high else f"n = {low}–{high}"
