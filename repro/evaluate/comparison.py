"""Compare two rankings of a suite by collection, by family and in the mean, each with a confidence interval.

1. Queries are paired. The difference of a collection is the mean over its queries. Those of a family and of the suite
   are means over collections.
2. The interval is the middle 95 % of 2000 bootstrap resamples of the queries within each collection
   (`statistics/bootstrap.py`). Collections are resampled independently. The resamples of a family are therefore the
   means of those of its collections.

The interval covers other queries. It does not cover other training seeds or other draws of context documents.

Shapes: Q queries of all collections in the order of the collections, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.data.beir import group_datasets
from repro.statistics.bootstrap import paired_bootstrap, percentile_interval


@dataclass(frozen=True)
class Gap:
    """A difference, its interval, and the resamples that give the interval, float64 (R,)."""

    difference: float
    low: float
    high: float
    samples_R: np.ndarray

    @classmethod
    def of(cls, difference: float, samples_R: np.ndarray) -> Gap:
        """Return a difference with the interval of its resamples."""
        return cls(difference, *percentile_interval(samples_R), samples_R)

    def as_metrics(self, path: str) -> dict[str, float]:
        """Return the difference and the ends of its interval as metrics below a path."""
        return {f"{path}/difference": self.difference, f"{path}/low": self.low, f"{path}/high": self.high}


def paired_gaps(first_Q: np.ndarray, second_Q: np.ndarray, datasets: Sequence[Mapping[str, Any]]) -> dict[str, Gap]:
    """Return first − second by group (`group_datasets`). Rows of `datasets` have `name`, `family` and `num_queries`.

    Equal shapes get equal draws, so gaps of two calls can be compared resample by resample. Raises ValueError if the
    queries do not pair up.
    """
    sizes = [int(row["num_queries"]) for row in datasets]
    if len(first_Q) != sum(sizes) or len(second_Q) != sum(sizes):
        raise ValueError(f"{len(first_Q)} and {len(second_Q)} queries do not pair up with {sum(sizes)} of the suite")
    ends = np.cumsum(sizes)[:-1]
    pairs = zip(np.split(first_Q, ends), np.split(second_Q, ends), strict=True)
    # the index of a collection is the seed of its resamples
    gaps = [_compare_collection(first, second, index) for index, (first, second) in enumerate(pairs)]
    gaps_by_group = {}
    for group, members in group_datasets(datasets).items():
        difference = float(np.mean([gaps[index].difference for index in members]))
        # A single collection has its own resamples, larger groups average theirs.
        samples_R = gaps[members[0]].samples_R
        if len(members) > 1:
            samples_R = np.mean([gaps[index].samples_R for index in members], axis=0)
        gaps_by_group[group] = Gap.of(difference, samples_R)
    return gaps_by_group


def _compare_collection(first_Q: np.ndarray, second_Q: np.ndarray, seed: int) -> Gap:
    samples_R = paired_bootstrap(first_Q, second_Q, np.zeros(len(first_Q), np.int64), seed=seed)
    return Gap.of(float(np.mean(np.subtract(first_Q, second_Q, dtype=np.float64))), samples_R)
