"""What is claimed of numbers, as data: one dataclass a kind of claim, stated by the factories of `Claim`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, NotRequired, TypedDict, Unpack

from repro.spec.run import Run, check_fields
from repro.spec.term import BLOCKS, PARTS, POINTS, ByScale, Term, Unit, check_choice, unit_of

Pair = tuple[Term, Term]


class Said(TypedDict):
    """What every claim says beside its comparison; see `Claim`."""

    source: str
    because: str
    version: NotRequired[int]
    stated: NotRequired[str]
    seen_seeds: NotRequired[tuple[int, ...]]
    scales: NotRequired[tuple[str, ...]]
    has_new_delta: NotRequired[bool]
    is_chosen: NotRequired[bool]
    num_looks: NotRequired[int | ByScale]


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper as data. Each kind is a subclass; state one by `Claim.order(…)`, `Claim.trend(…)`, …"""

    id: str
    says: str
    source: str
    because: str
    version: int = 1  # counts wordings: one more whenever what is judged changes
    stated: str = ""  # when this wording was stated, ISO date
    seen_seeds: tuple[int, ...] = ()  # seeds whose records at desk had been looked at then: there they do not judge it
    scales: tuple[str, ...] = ()  # judged at these alone; empty: at all that judge its kind
    has_new_delta: bool = False  # δ was set with records at hand: seeds that had been looked at say nothing by it
    is_chosen: bool = False  # what is compared was picked for how it looked on the seen seeds: these say nothing at all
    num_looks: int | ByScale = 1  # times it was judged, on ever more seeds (a number: at desk)

    def __post_init__(self) -> None:
        """ValueError for a date that is none, no pairs, a sign that is not 1 or -1, a tolerance not above zero."""
        if self.stated:
            date.fromisoformat(self.stated)
        for name, good in {"sign": lambda v: v in (1, -1), "delta": lambda v: v > 0, "pairs": bool}.items():
            value = getattr(self, name, None)
            if value is not None and not good(value):
                raise ValueError(f"claim {self.id}: {name}={value}; a sign is 1 or -1, a delta above 0, pairs are some")

    @property
    def kind(self) -> str:
        """The word for the kind, e.g. "order"."""
        return type(self).__name__.lower()

    @property
    def is_ours(self) -> bool:
        """Whether no paper says it: its source begins with "our question"."""
        return self.source.startswith("our question")

    @property
    def terms(self) -> tuple[Term, ...]:
        """Every term the claim speaks of."""
        return ()

    @property
    def unit(self) -> Unit:
        """What its effect is printed in."""
        return unit_of(self.terms[0].metric) if self.terms else Unit("")

    @property
    def bar(self) -> str:
        """What the effect must be for the claim to hold, in its unit, e.g. "> 0" or "within ±0.5"."""
        return "> 0"

    def needs(self, run: Run) -> bool:
        """Return whether a run that one of its terms picks is judged at all."""
        return True

    @staticmethod
    def value(id: str, says: str, *, expected: Mapping[Term, float], margin: float, **said: Unpack[Said]) -> Value:
        """Claim printed numbers, each within `margin` (in the metric's own unit)."""
        return Value(id=id, says=says, expected=tuple(expected.items()), margin=margin, **said)

    @staticmethod
    def order(
        id: str,
        says: str,
        *,
        pairs: Iterable[Pair],
        margin: float = 0.0,
        delta: float | None = None,
        **said: Unpack[Said],
    ) -> Order:
        """Claim that in each pair the first term is above the second by more than `margin`; no effect is within ±δ."""
        return Order(id=id, says=says, pairs=tuple(pairs), margin=margin, delta=delta, **said)

    @staticmethod
    def interaction(
        id: str, says: str, *, of: Pair, above: Pair, delta: float | None = None, **said: Unpack[Said]
    ) -> Interaction:
        """Claim that the first term of `of` gains more on its second than the first of `above` gains on its own."""
        return Interaction(id=id, says=says, of=of, above=above, delta=delta, **said)

    @staticmethod
    def trend(
        id: str,
        says: str,
        *,
        over: Term,
        axis: str,
        sign: int,
        within: str = "",
        only: Callable[[Run], bool] | None = None,
        delta: float | None = None,
        **said: Unpack[Said],
    ) -> Trend:
        """Claim that a metric rises (sign 1) or falls (-1) with each doubling of `axis`.

        The slope is on log2 of the axis, on log2 of one more where the axis has a zero. With `within`, it is the mean
        of the slopes at each value of that other field; with `only`, of the runs for which it is true.
        """
        check_fields([axis, *([within] if within else [])], f"claim {id}")
        return Trend(id=id, says=says, over=over, axis=axis, within=within, sign=sign, only=only, delta=delta, **said)

    @staticmethod
    def correlation(
        id: str,
        says: str,
        *,
        x: Term,
        y: Term,
        points: str,
        sign: int,
        minus: Term | None = None,
        within: str = "",
        blocks: str = "",
        margin: float = 0.0,
        **said: Unpack[Said],
    ) -> Correlation:
        """Claim that Pearson's r of two metrics, times sign, is above margin; see `repro.claims.correlation`.

        A point is of "runs" a configuration that both terms pick, the mean over its seeds; of "datasets" a dataset and
        a system, metrics have `*` for the dataset, `minus` is taken from `y`, r is the mean over systems, and
        `blocks="family"` counts a family as one. With `within`, r is the mean over the values of that field.
        """
        check_fields([within] if within else [], f"claim {id}")
        check_choice(f"claim {id}", "points", points, POINTS)
        check_choice(f"claim {id}", "blocks", blocks, BLOCKS)
        where: dict[str, Any] = {"points": points, "within": within, "blocks": blocks}
        return Correlation(id=id, says=says, x=x, y=y, minus=minus, sign=sign, margin=margin, **where, **said)

    @staticmethod
    def equivalence(id: str, says: str, *, pairs: Iterable[Pair], delta: float, **said: Unpack[Said]) -> Equivalence:
        """Claim that in every pair the two terms are within `delta` of each other: here equivalence is what HOLDS."""
        return Equivalence(id=id, says=says, pairs=tuple(pairs), delta=delta, **said)

    @staticmethod
    def varies(id: str, says: str, *, over: Term, axis: str, by: str = "name", **said: Unpack[Said]) -> Varies:
        """Claim that the best value of `axis` differs by dataset (by="family": by family); `over` has `*` for it."""
        check_fields([axis], f"claim {id}")
        check_choice(f"claim {id}", "by", by, PARTS)
        if "*" not in over.metric:
            raise ValueError(f"claim {id}: {over.metric!r} has no * for the dataset, e.g. {{suite}}/*/ndcg_at_10")
        return Varies(id=id, says=says, over=over, axis=axis, by=by, **said)

    @staticmethod
    def identity(id: str, says: str, *, holds: Callable[[], tuple[bool, str]], **said: Unpack[Said]) -> Identity:
        """Claim arithmetic of the paper; `holds` gives whether it does and what was computed."""
        return Identity(id=id, says=says, holds=holds, **said)


@dataclass(frozen=True, kw_only=True)
class Value(Claim):
    """Printed numbers, each met within the margin."""

    expected: tuple[tuple[Term, float], ...]
    margin: float

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms whose numbers are printed."""
        return tuple(term for term, _ in self.expected)

    @property
    def bar(self) -> str:
        """How far off a number may be."""
        return f"within ±{self.margin * self.unit.factor:.4g}"


@dataclass(frozen=True, kw_only=True)
class Directed(Claim):
    """A claim that an effect is on one side of a bar; the base of orders, interactions, trends and correlations."""

    margin: float = 0.0
    sign: int = 1
    delta: float | None = None

    @property
    def bar(self) -> str:
        """The side and the bar; after δ, within what there is no effect."""
        size = self.sign * self.margin * self.unit.factor + 0.0  # no -0
        side = f"{'>' if self.sign > 0 else '<'} {size:.4g}"
        return side if self.delta is None else f"{side}, δ {self.delta * self.unit.factor:.4g}"


@dataclass(frozen=True, kw_only=True)
class Paired(Claim):
    """A claim of pairs of terms; the base of orders and equivalences."""

    pairs: tuple[Pair, ...]

    @property
    def terms(self) -> tuple[Term, ...]:
        """Both terms of every pair."""
        return tuple(term for pair in self.pairs for term in pair)


@dataclass(frozen=True, kw_only=True)
class Order(Directed, Paired):
    """In every pair the first term is above the second."""


@dataclass(frozen=True, kw_only=True)
class Interaction(Directed):
    """One difference is above another."""

    of: Pair
    above: Pair

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of both differences."""
        return (*self.of, *self.above)


@dataclass(frozen=True, kw_only=True)
class Trend(Directed):
    """A metric rises or falls with each doubling of an axis."""

    over: Term
    axis: str
    within: str = ""
    only: Callable[[Run], bool] | None = field(default=None, compare=False)

    @property
    def terms(self) -> tuple[Term, ...]:
        """The term whose metric is followed."""
        return (self.over,)

    @property
    def unit(self) -> Unit:
        """The metric's unit, a doubling."""
        of = unit_of(self.over.metric)
        return Unit(f"{of.name}/doubling", of.factor, of.decimals)

    def needs(self, run: Run) -> bool:
        """Return whether the trend is judged on a run."""
        return self.only is None or self.only(run)


@dataclass(frozen=True, kw_only=True)
class Correlation(Directed):
    """Two metrics go together over configurations or over datasets."""

    x: Term
    y: Term
    points: str
    minus: Term | None = None
    within: str = ""
    blocks: str = ""

    @property
    def terms(self) -> tuple[Term, ...]:
        """The two terms, and what is taken from the second."""
        return (self.x, self.y) if self.minus is None else (self.x, self.y, self.minus)

    @property
    def unit(self) -> Unit:
        """Pearson's r."""
        return Unit("r")


@dataclass(frozen=True, kw_only=True)
class Equivalence(Paired):
    """In every pair the two terms are within `delta` of each other."""

    delta: float

    @property
    def bar(self) -> str:
        """How far apart two terms may be."""
        return f"within ±{self.delta * self.unit.factor:.4g}"


@dataclass(frozen=True, kw_only=True)
class Varies(Claim):
    """The best value of an axis differs by dataset."""

    over: Term
    axis: str
    by: str = "name"

    @property
    def terms(self) -> tuple[Term, ...]:
        """The term, `*` for the dataset."""
        return (self.over,)


@dataclass(frozen=True, kw_only=True)
class Identity(Claim):
    """Arithmetic of the paper."""

    holds: Callable[[], tuple[bool, str]] = field(compare=False)
