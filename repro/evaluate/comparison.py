"""Compare two rankings of a suite by collection, by family and in the mean, each with a confidence interval.

1. Queries are paired. The difference of a collection is the mean over its queries. Those of a family and of the suite
   are means over collections.
2. The interval is the middle 95 % of 2000 bootstrap resamples of the queries within each collection. Collections are
   resampled independently. The resamples of a family are therefore the means of those of its collections.
3. If a collection has few queries, the interval is Student's t interval or None (`statistics/bootstrap.py`).

The interval covers other queries. It does not cover other training seeds or other draws of context documents.

Shapes: Q queries of all collections in the order of the collections, R resamples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from repro.data.beir import group_datasets
from repro.statistics.bootstrap import Interval, choose_interval, paired_bootstrap


@dataclass(frozen=True)
class Gap:
    """A difference, its interval or None, and its bootstrap resamples, float64 (R,).

    `num_units` is the number of queries of its smallest collection.
    """

    difference: float
    interval: Interval | None
    samples_R: np.ndarray
    num_units: int

    def as_metrics(self, path: str, name: str = "difference") -> dict[str, float]:
        """Return the difference and the ends of its interval, if it has one, as metrics below a path."""
        ends = {} if self.interval is None else dict(zip((f"{path}/low", f"{path}/high"), self.interval, strict=True))
        return {f"{path}/{name}": self.difference} | ends


def paired_gaps(first_Q: np.ndarray, second_Q: np.ndarray, datasets: Sequence[Mapping[str, Any]]) -> dict[str, Gap]:
    """Return first − second by group (`group_datasets`). Rows of `datasets` have `name`, `family` and `num_queries`.

    Equal shapes get equal draws, so gaps of two calls can be compared resample by resample. Raises ValueError if the
    queries do not pair up.
    """
    sizes = [int(row["num_queries"]) for row in datasets]
    if len(first_Q) != sum(sizes) or len(second_Q) != sum(sizes):
        raise ValueError(f"{len(first_Q)} and {len(second_Q)} queries do not pair up with {sum(sizes)} of the suite")
    ends = np.cumsum(sizes)[:-1]
    pairs = list(zip(np.split(first_Q, ends), np.split(second_Q, ends), strict=True))
    parts = [np.subtract(first, second, dtype=np.float64) for first, second in pairs]
    # the index of a collection is the seed of its resamples
    samples = [
        paired_bootstrap(first, second, np.zeros(len(first), np.int64), seed=index)
        for index, (first, second) in enumerate(pairs)
    ]
    gaps_by_group = {}
    for group, members in group_datasets(datasets).items():
        difference = float(np.mean([float(np.mean(parts[index])) for index in members]))
        # A single collection has its own resamples, larger groups average theirs.
        samples_R = samples[members[0]]
        if len(members) > 1:
            samples_R = np.mean([samples[index] for index in members], axis=0)
        # A member that occurs twice counts twice.
        counts = Counter(members)
        weights = np.array([*counts.values()]) / len(members)
        interval = choose_interval([parts[index] for index in counts], weights, partial(np.asarray, samples_R))
        gaps_by_group[group] = Gap(difference, interval, samples_R, min(sizes[index] for index in members))
    return gaps_by_group
