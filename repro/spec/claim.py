"""What is claimed of numbers, as data: one dataclass a kind of claim, all offered by `Claim`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import ClassVar

from repro.spec.run import Run, check_fields
from repro.spec.term import BLOCKS, PARTS, POINTS, ByScale, Term, Unit, check_choice, get_display_unit

Pair = tuple[Term, Term]
DEFAULT_SEEDS = (1, 2, 3, 4, 5)
"""The seeds of a claim that names none."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper as data. Each kind is a subclass; state one by `Claim.order(…)`, `Claim.trend(…)`, …"""

    value: ClassVar[type[Value]]
    order: ClassVar[type[Order]]
    interaction: ClassVar[type[Interaction]]
    trend: ClassVar[type[Trend]]
    correlation: ClassVar[type[Correlation]]
    equivalence: ClassVar[type[Equivalence]]
    varies: ClassVar[type[Varies]]
    identity: ClassVar[type[Identity]]

    id: str = field(kw_only=False)
    says: str = field(kw_only=False)
    source: str
    because: str
    version: int = 1  # counts wordings: one more whenever what is judged changes
    stated: str = ""  # when this wording was stated, ISO date; records made before it do not judge it
    seeds: tuple[int, ...] | ByScale = DEFAULT_SEEDS  # declared before they are trained
    scales: tuple[str, ...] = ()  # judged at these alone; empty: at all that judge its kind
    headlines: tuple[str, ...] = ()  # scales at which it is one of the main claims, whose p is corrected by Holm
    descriptive: str = ""  # why its effect is printed without a word; empty: it is judged
    blind: Term | None = (
        None  # of a claim about context: the same metric of the model that is trained without documents
    )
    caveat: str = ""  # printed after the claim, e.g. that a context-blind model would meet it

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
        return get_display_unit(self.terms[0].metric) if self.terms else Unit("")

    @property
    def threshold(self) -> str:
        """What the effect must be for the claim to hold, in its unit, e.g. "> 0" or "within ±0.5"."""
        return "> 0"

    def declared_seeds(self, scale: str) -> tuple[int, ...]:
        """Return the seeds that judge the claim at a scale."""
        found = self.seeds.at(scale) if isinstance(self.seeds, ByScale) else self.seeds
        return tuple(found) or DEFAULT_SEEDS

    def needs(self, run: Run) -> bool:
        """Return whether a run that one of its terms picks is judged at all."""
        return True


@dataclass(frozen=True, kw_only=True)
class Value(Claim):
    """Printed numbers, each met within the margin (in the metric's own unit)."""

    expected: Mapping[Term, float] = field(hash=False)
    margin: float

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms whose numbers are printed."""
        return tuple(self.expected)

    @property
    def threshold(self) -> str:
        """How far off a number may be."""
        return f"within ±{self.margin * self.unit.factor:.4g}"


@dataclass(frozen=True, kw_only=True)
class Directed(Claim):
    """A claim that an effect is beyond a threshold; the base of orders, interactions, trends and correlations."""

    margin: float = 0.0
    sign: int = 1
    delta: float | None = None

    @property
    def threshold(self) -> str:
        """The side and the size; then δ, within which an effect is small."""
        size = self.sign * self.margin * self.unit.factor + 0.0  # no -0
        side = f"{'>' if self.sign > 0 else '<'} {size:.4g}"
        return side if self.delta is None else f"{side}, δ {self.delta * self.unit.factor:.4g}"


@dataclass(frozen=True, kw_only=True)
class Paired(Claim):
    """A claim of pairs of terms; the base of orders and equivalences."""

    pairs: Sequence[Pair]

    def __post_init__(self) -> None:
        """The pairs are kept as a tuple, which has a hash."""
        object.__setattr__(self, "pairs", tuple(self.pairs))
        super().__post_init__()

    @property
    def terms(self) -> tuple[Term, ...]:
        """Both terms of every pair."""
        return tuple(term for pair in self.pairs for term in pair)


@dataclass(frozen=True, kw_only=True)
class Order(Directed, Paired):
    """In every pair the first term is above the second by more than `margin`; an effect within ±δ is small."""


@dataclass(frozen=True, kw_only=True)
class Interaction(Directed):
    """The first term of `of` gains more on its second than the first of `above` gains on its own."""

    of: Pair
    above: Pair

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms of both differences."""
        return (*self.of, *self.above)


@dataclass(frozen=True, kw_only=True)
class Trend(Directed):
    """A metric rises (sign 1) or falls (-1) with each doubling of `axis`.

    The slope is on log2 of the axis, on log2 of one more where the axis has a zero. With `within`, it is the mean of
    the slopes at each value of that other field; with `only`, of the runs for which it is true.
    """

    sign: int = field()
    over: Term
    axis: str
    within: str = ""
    only: Callable[[Run], bool] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """ValueError for a field that no run has."""
        super().__post_init__()
        check_fields(filter(None, (self.axis, self.within)), f"claim {self.id}")

    @property
    def terms(self) -> tuple[Term, ...]:
        """The term whose metric is followed."""
        return (self.over,)

    @property
    def unit(self) -> Unit:
        """The metric's unit, a doubling."""
        of = get_display_unit(self.over.metric)
        return Unit(f"{of.name}/doubling", of.factor, of.decimals)

    def needs(self, run: Run) -> bool:
        """Return whether the trend is judged on a run."""
        return self.only is None or self.only(run)


@dataclass(frozen=True, kw_only=True)
class Correlation(Directed):
    """Pearson's r of two metrics, times sign, is above margin; see `repro.statistics.judge`.

    A point is of "runs" a configuration that both terms pick, the mean over its seeds; of "datasets" a dataset and a
    system, metrics have `*` for the dataset, `minus` is taken from `y`, r is the mean over systems, and
    `blocks="family"` counts a family as one. With `within`, r is the mean over the values of that field.
    """

    sign: int = field()
    x: Term
    y: Term
    points: str
    minus: Term | None = None
    within: str = ""
    blocks: str = ""

    def __post_init__(self) -> None:
        """ValueError for a field that no run has, and for unknown points or blocks."""
        super().__post_init__()
        check_fields(filter(None, (self.within,)), f"claim {self.id}")
        check_choice(f"claim {self.id}", "points", self.points, POINTS)
        check_choice(f"claim {self.id}", "blocks", self.blocks, BLOCKS)

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
    """In every pair the two terms are within `delta` of each other: here equivalence is what HOLDS."""

    delta: float

    @property
    def threshold(self) -> str:
        """How far apart two terms may be."""
        return f"within ±{self.delta * self.unit.factor:.4g}"


@dataclass(frozen=True, kw_only=True)
class Varies(Claim):
    """The best value of `axis` differs by dataset (by="family": by family); `over` has `*` for it."""

    over: Term
    axis: str
    by: str = "name"

    def __post_init__(self) -> None:
        """ValueError for a field that no run has, an unknown `by`, and a metric that is of no dataset."""
        super().__post_init__()
        check_fields([self.axis], f"claim {self.id}")
        check_choice(f"claim {self.id}", "by", self.by, PARTS)
        if "*" not in self.over.metric:
            raise ValueError(
                f"claim {self.id}: {self.over.metric!r} has no * for the dataset, e.g. {{suite}}/*/ndcg_at_10"
            )

    @property
    def terms(self) -> tuple[Term, ...]:
        """The term, `*` for the dataset."""
        return (self.over,)


@dataclass(frozen=True, kw_only=True)
class Identity(Claim):
    """Arithmetic of the paper; `holds` gives whether it does and what was computed."""

    holds: Callable[[], tuple[bool, str]] = field(compare=False)


Claim.value, Claim.order, Claim.interaction, Claim.trend = Value, Order, Interaction, Trend
Claim.correlation, Claim.equivalence, Claim.varies, Claim.identity = Correlation, Equivalence, Varies, Identity
