"""The words a claim is made of: which runs, which metric of them, and the unit its differences are printed in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from repro.spec.run import Run, check_fields
from repro.spec.scales import get_scale


@dataclass(frozen=True)
class ByScale:
    """A value of a field that is another at each scale, such as the largest batch."""

    values: tuple[tuple[str, Any], ...]

    def at(self, scale: str) -> Any:
        """Return the value at a scale; the empty tuple, which no run has, at one that is not named."""
        return dict(self.values).get(scale, ())

    def __str__(self) -> str:
        return " or ".join(f"{value} at {scale}" for scale, value in self.values)


def by_scale(values: Mapping[str, Any]) -> ByScale:
    """Return a value for `pick` and `term` that depends on the scale; ValueError names an unknown scale."""
    for scale in values:
        get_scale(scale)
    return ByScale(tuple(values.items()))


@dataclass(frozen=True)
class Pick:
    """Which runs are meant: those whose fields have these values (a tuple: any of them; `by_scale`: the scale's own)"""

    wanted: tuple[tuple[str, Any], ...]

    def matches(self, run: Run) -> bool:
        """Return whether a run is meant."""
        return all(_is_one_of(getattr(run, name), value, run.scale) for name, value in self.wanted)

    def at(self, scale: str) -> Pick:
        """Return the same choice with the values of one scale."""
        known = ((name, value.at(scale) if isinstance(value, ByScale) else value) for name, value in self.wanted)
        return Pick(tuple(known))

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.wanted)


def _is_one_of(found: Any, value: Any, scale: str) -> bool:
    meant = value.at(scale) if isinstance(value, ByScale) else value
    return found in meant if isinstance(meant, tuple) else found == meant


def pick(**wanted: Any) -> Pick:
    """Return the choice of runs with these values; ValueError names an unknown field."""
    check_fields(wanted, "pick()")
    return Pick(tuple(sorted(wanted.items())))


@dataclass(frozen=True, kw_only=True)
class Term:
    """One number a claim speaks of: a metric path over the picked runs."""

    metric: str
    of: Pick


def term(metric: str, **wanted: Any) -> Term:
    """Return the metric of the picked runs."""
    return Term(metric=metric, of=pick(**wanted))


@dataclass(frozen=True)
class Unit:
    """What a number is printed in: its word, what it is multiplied by before it is printed, how many decimals."""

    name: str
    factor: float = 1.0
    decimals: int = 2


POINTS_OF_100 = Unit("points", 100.0)
LOG2 = "log2 "
"""A metric path that begins so is the logarithm of the metric: a difference of two is a ratio, in doublings."""
COSINES = (
    "train/difficulty",
    "batches/difficulty",
    "cluster/similarity",
    "nearest/similarity",
    "domain/similarity",
    "spread/",
)
POINTS = ("runs", "datasets")
"""What a point of a correlation may be."""
BLOCKS = ("", "family")
"""What is drawn together when a correlation over datasets is judged: a dataset for itself, or its whole family."""
PARTS = ("name", "family")
"""What `*` stands for in the metric of a claim that something varies: each dataset, or each family."""


def get_display_unit(metric: str) -> Unit:
    """Return what differences of a metric are printed in."""
    if metric.startswith(LOG2):
        return Unit("doublings")
    if metric == "train/loss":
        return Unit("nats")
    return Unit("cosine", decimals=3) if metric.startswith(COSINES) else POINTS_OF_100


def check_choice(where: str, name: str, value: str, valid: tuple[str, ...]) -> None:
    """ValueError when a value is none of the valid ones; says them."""
    if value not in valid:
        raise ValueError(f"{where}: {name}={value!r} is unknown; choose one of {list(valid)}")
