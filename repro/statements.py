"""Which runs are meant, and what is claimed of their numbers, as data; `repro.spec` offers it on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from repro.run import Run, check_fields


@dataclass(frozen=True)
class Pick:
    """Which runs are meant: those whose fields have these values (a tuple: any of them)."""

    wanted: tuple[tuple[str, Any], ...]

    def matches(self, run: Run) -> bool:
        """Says whether a run is meant."""
        return all(
            getattr(run, name) in value if isinstance(value, tuple) else getattr(run, name) == value
            for name, value in self.wanted
        )

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.wanted)


def pick(**wanted: Any) -> Pick:
    """Gives the choice of runs with these values; ValueError names an unknown field."""
    check_fields(wanted, "pick()")
    return Pick(tuple(sorted(wanted.items())))


@dataclass(frozen=True, kw_only=True)
class Term:
    """One number a claim speaks of: a metric path over the picked runs."""

    metric: str
    of: Pick


POINTS = ("runs", "datasets")
"""What a point of a correlation may be."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper as data: values, an order, an interaction, a trend, a correlation, an identity."""

    id: str
    kind: str
    says: str
    source: str
    because: str
    margin: float = 0.0
    expected: tuple[tuple[Term, float], ...] = ()  # value: the printed numbers
    pairs: tuple[tuple[Term, Term], ...] = ()  # order: each first is above its second; interaction: two, by how much
    axis: str = ""  # trend
    within: str = ""  # trend, correlation: a field of the run; one correlation for each of its values, and their mean
    sign: int = 1
    over: Term | None = None
    x: Term | None = None  # correlation
    y: Term | None = None
    minus: Term | None = None
    points: str = ""  # what a point of the correlation is: one of POINTS
    holds_exactly: Callable[[], tuple[bool, str]] | None = None  # identity: arithmetic of the paper

    @staticmethod
    def value(id: str, says: str, *, expected: Mapping[Term, float], margin: float, source: str, because: str) -> Claim:
        """Claims printed numbers, each within `margin` (in the metric's own unit)."""
        printed = tuple(expected.items())
        return Claim(id=id, kind="value", says=says, source=source, because=because, margin=margin, expected=printed)

    @staticmethod
    def order(
        id: str, says: str, *, pairs: Iterable[tuple[Term, Term]], source: str, because: str, margin: float = 0.0
    ) -> Claim:
        """Claims that in every pair the first term is above the second by more than `margin`."""
        both = tuple(pairs)
        return Claim(id=id, kind="order", says=says, source=source, because=because, margin=margin, pairs=both)

    @staticmethod
    def interaction(
        id: str, says: str, *, of: tuple[Term, Term], above: tuple[Term, Term], source: str, because: str
    ) -> Claim:
        """Claims that the first term of `of` gains more on its second than the first of `above` gains on its own."""
        return Claim(id=id, kind="interaction", says=says, source=source, because=because, pairs=(of, above))

    @staticmethod
    def trend(
        id: str,
        says: str,
        *,
        over: Term,
        axis: str,
        sign: int,
        source: str,
        because: str,
        margin: float = 0.0,
        within: str = "",
    ) -> Claim:
        """Claims that the rank correlation of the metric with `axis`, times `sign`, is above `margin`.

        With `within`, it is the mean of the correlations at each value of that other field.
        """
        check_fields([axis, *([within] if within else [])], f"claim {id}")
        return Claim(
            id=id,
            kind="trend",
            says=says,
            source=source,
            because=because,
            margin=margin,
            over=over,
            axis=axis,
            within=within,
            sign=sign,
        )

    @staticmethod
    def correlation(
        id: str,
        says: str,
        *,
        x: Term,
        y: Term,
        points: str,
        sign: int,
        source: str,
        because: str,
        minus: Term | None = None,
        within: str = "",
        margin: float = 0.0,
    ) -> Claim:
        """Claims that Pearson's r of two metrics, times `sign`, is above `margin`; see `repro.correlation`.

        `points="runs"`: a point is a run that both terms pick. `points="datasets"`: a point is a dataset and a system,
        metrics have `*` for the dataset, and `minus` is taken from `y`; r is the mean over systems. With
        `within`, r is the mean over the values of that field.
        """
        check_fields([within] if within else [], f"claim {id}")
        if points not in POINTS:
            raise ValueError(f"claim {id}: points={points!r} is unknown; choose one of {list(POINTS)}")
        said: dict[str, Any] = {"id": id, "says": says, "source": source, "because": because, "margin": margin}
        return Claim(kind="correlation", x=x, y=y, minus=minus, points=points, within=within, sign=sign, **said)

    @staticmethod
    def identity(id: str, says: str, *, holds: Callable[[], tuple[bool, str]], source: str, because: str) -> Claim:
        """Claims arithmetic of the paper; `holds` gives whether it does and what was computed."""
        return Claim(id=id, kind="identity", says=says, source=source, because=because, holds_exactly=holds)


def term(metric: str, **wanted: Any) -> Term:
    """Gives the metric of the picked runs."""
    return Term(metric=metric, of=pick(**wanted))
