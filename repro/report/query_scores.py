"""Scores of one system by query: means over collections, and their intervals.

An interval is the middle 95 % of 2000 bootstrap resamples of the queries within each collection. Those of a difference are
paired. It covers other queries, not other training seeds, collections or draws of context documents.

Shapes: Q queries of all collections.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np

from repro.data.beir import compute_mean_weights
from repro.report.scores import POINTS
from repro.statistics.bootstrap import compute_interval
from repro.statistics.units import stratified_mean


@dataclass(frozen=True)
class QueryScores:
    """NDCG@10 of one system per query, (Q,), and the index of each query's collection, (Q,).

    `weights` are those of the collections in the mean, 1 on average. Parts of one dataset count once together. Empty if
    all collections count alike.
    """

    label: str
    values_Q: np.ndarray
    strata_Q: np.ndarray
    datasets: tuple[str, ...]
    weights: tuple[float, ...]

    @classmethod
    def of(cls, label: str, values_Q: np.ndarray, rows: Sequence[Mapping[str, Any]]) -> QueryScores:
        """Return the scores on collections, whose `rows` are those of a record's provenance."""
        strata_Q = np.repeat(np.arange(len(rows)), [row["num_queries"] for row in rows])
        names, weights = tuple(row["name"] for row in rows), tuple(compute_mean_weights(rows))
        return QueryScores(label, np.asarray(values_Q), strata_Q, names, weights)

    @property
    def weighted_values(self) -> np.ndarray:
        """The values times the weights of their collections, (Q,)."""
        return self.values_Q * np.array(self.weights)[self.strata_Q] if self.weights else self.values_Q

    @property
    def mean(self) -> float:
        """Mean over collections, in points."""
        return POINTS * stratified_mean(self.weighted_values, self.strata_Q)

    @property
    def points(self) -> list[float]:
        """Mean of each collection, in points."""
        return [POINTS * float(self.values_Q[self.strata_Q == index].mean()) for index in range(len(self.datasets))]

    def select(self, index: int) -> Self:
        """Return the scores on one collection."""
        chosen_Q = self.strata_Q == index
        strata_Q = np.zeros(int(chosen_Q.sum()), np.int64)
        names = self.datasets[index : index + 1]
        return replace(self, values_Q=self.values_Q[chosen_Q], strata_Q=strata_Q, datasets=names, weights=())

    def interval(self, other: QueryScores | None = None) -> tuple[float, float] | None:
        """Return the 95 % interval of the mean, or of the lead over another system, in points.

        None if there are too few queries, or if all have the same score or lead.
        """
        # Weighting the values before resampling weights the collections in every resample.
        other_Q = np.zeros_like(self.values_Q) if other is None else other.weighted_values
        bounds = compute_interval(self.weighted_values, other_Q, self.strata_Q)
        return None if bounds is None else (POINTS * bounds[0], POINTS * bounds[1])
