"""The parts of a claim: a selection of runs, a metric, and the unit in which differences are printed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from repro.spec.run import Run, check_fields
from repro.spec.scales import get_scale


@dataclass(frozen=True)
class ByScale:
    """A value that depends on the scale, such as the largest batch size."""

    values: tuple[tuple[str, Any], ...]

    def at(self, scale: str) -> Any:
        """Return the value at a scale, or an empty tuple, which matches no run, at a scale without one."""
        return dict(self.values).get(scale, ())

    def __str__(self) -> str:
        return " or ".join(f"{value} at {scale}" for scale, value in self.values)


def by_scale(values: Mapping[str, Any]) -> ByScale:
    """Return a scale-dependent value for `pick` and `term`. Raises ValueError for an unknown scale."""
    for scale in values:
        get_scale(scale)
    return ByScale(tuple(values.items()))


@dataclass(frozen=True)
class RunFilter:
    """A selection of runs by the values of their fields. A tuple matches any of its values."""

    wanted: tuple[tuple[str, Any], ...]  # field names with the values that match

    def matches(self, run: Run) -> bool:
        """Return whether a run is selected."""
        return all(_matches_value(getattr(run, name), value, run.scale) for name, value in self.wanted)

    def at(self, scale: str) -> RunFilter:
        """Return the same selection with the values of one scale."""
        fields = ((name, value.at(scale) if isinstance(value, ByScale) else value) for name, value in self.wanted)
        return RunFilter(tuple(fields))

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.wanted)


def _matches_value(actual: Any, expected: Any, scale: str) -> bool:
    if isinstance(expected, ByScale):
        expected = expected.at(scale)
    return actual in expected if isinstance(expected, tuple) else actual == expected


def pick(**fields: Any) -> RunFilter:
    """Select the runs with these values. Raises ValueError for an unknown field."""
    check_fields(fields, "pick()")
    return RunFilter(tuple(sorted(fields.items())))


@dataclass(frozen=True, kw_only=True)
class Term:
    """One number of a claim: a metric path, averaged over the selected runs."""

    metric: str
    runs: RunFilter


def term(metric: str, **fields: Any) -> Term:
    """Return the term for a metric of the selected runs."""
    return Term(metric=metric, runs=pick(**fields))


@dataclass(frozen=True)
class Unit:
    """A unit for printed numbers: its name, the factor that is applied first, and the number of decimals."""

    name: str
    factor: float = 1.0
    decimals: int = 2


POINTS_OF_100 = Unit("points", 100.0)
LOG2 = "log2 "
"""Prefix of a metric path for the logarithm of the metric. A difference of two is a ratio, in doublings."""
COSINES = (
    "train/difficulty",
    "batches/difficulty",
    "cluster/similarity",
    "nearest/similarity",
    "domain/similarity",
)
POINTS = ("runs", "datasets")
"""Kinds of points of a correlation."""


def get_display_unit(metric: str) -> Unit:
    """Return the unit for differences of a metric."""
    if metric.startswith(LOG2):
        return Unit("doublings")
    if metric == "train/loss":
        return Unit("nats")
    if metric.startswith("spread/"):
        return Unit("distance", decimals=3)
    return Unit("cosine", decimals=3) if metric.startswith(COSINES) else POINTS_OF_100
