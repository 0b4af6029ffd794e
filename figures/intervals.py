"""Means over repetitions with their intervals, and the words that say which interval it is."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pandas as pd
from scipy import stats

LEVEL = 0.95
ENOUGH_SEEDS = 3


def over_seeds(frame: pd.DataFrame, x: str, y: str) -> pd.DataFrame:
    """Gives mean, low, high and n of `y` at each `x`, in the order of `x`; several rows of one seed count once.

    From three seeds on, low and high are Student's 95 % interval of the mean; of fewer, their range.
    """
    seeds = frame.groupby([x, "seed"], sort=False)[y].mean().groupby(level=0, sort=True)
    mean, count = seeds.mean(), seeds.count()
    half = stats.t.ppf((1 + LEVEL) / 2, np.maximum(count - 1, 1)) * seeds.std() / np.sqrt(count)
    is_interval = count >= ENOUGH_SEEDS
    low, high = seeds.min().where(~is_interval, mean - half), seeds.max().where(~is_interval, mean + half)
    return pd.DataFrame({"mean": mean, "low": low, "high": high, "n": count})


def interval_words(counts: Iterable[int], what: str) -> str:
    """Says what the bands or bars of points with so many seeds are."""
    different = set(counts)
    if different <= {1}:
        return "one seed each: no interval"
    if min(different) >= ENOUGH_SEEDS:
        return f"{what}: 95 % interval of the mean over seeds"
    if max(different) < ENOUGH_SEEDS:
        return f"{what}: range of two seeds"
    return f"{what}: 95 % interval of the mean where n ≥ {ENOUGH_SEEDS}, else range"


def count_words(counts: Iterable[int]) -> str:
    """Gives "n = 3" or "n = 1–3"."""
    low, high = min(counts := list(counts)), max(counts)
    return f"n = {low}" if low == high else f"n = {low}–{high}"
