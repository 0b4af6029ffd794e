"""Claims about numbers as data: one dataclass per kind of claim, each available as an attribute of `Claim`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import ClassVar

from repro.spec.run import Run, check_fields
from repro.spec.selectors import POINTS, ByScale, Term, Unit, get_display_unit

Pair = tuple[Term, Term]
DEFAULT_SEEDS = (1, 2, 3, 4, 5)
"""The default seeds of a claim."""


@dataclass(frozen=True, kw_only=True)
class Claim:
    """A sentence of the paper as data. Each kind is a subclass, created by `Claim.order(…)`, `Claim.trend(…)`, …"""

    value: ClassVar[type[Value]]
    order: ClassVar[type[Order]]
    interaction: ClassVar[type[Interaction]]
    trend: ClassVar[type[Trend]]
    correlation: ClassVar[type[Correlation]]
    equivalence: ClassVar[type[Equivalence]]

    id: str = field(kw_only=False)
    statement: str = field(kw_only=False)
    source: str
    because: str = "any difference beyond chance"  # the reason for the threshold
    version: int = 1  # increased whenever the judged quantity changes
    stated: str = ""  # ISO date of this version; older records do not judge it
    seeds: tuple[int, ...] | ByScale = DEFAULT_SEEDS  # declared before training
    scales: tuple[str, ...] = ()  # judged only at these scales, or at all suitable ones if empty
    headlines: tuple[str, ...] = ()  # scales at which its p is in the Holm family of main claims
    descriptive: str = ""  # reason to print the effect without a verdict, or empty
    # for claims about context: the same metric of the model that is trained without documents
    blind: Term | None = None
    caveat: str = ""  # printed after the claim, for example that a context-blind model meets it too

    def __post_init__(self) -> None:
        """Raise ValueError for an invalid date, no pairs, an undirected headline, a sign other than ±1, or a delta up to 0."""
        if self.stated:
            date.fromisoformat(self.stated)
        if self.headlines and not isinstance(self, Directed):
            raise ValueError(
                f"claim {self.id}: a headline must have a direction, because its p is that of one threshold"
            )
        checks = {"sign": lambda sign: sign in (1, -1), "delta": lambda delta: delta > 0, "pairs": bool}
        for name, is_valid in checks.items():
            value = getattr(self, name, None)
            if value is not None and not is_valid(value):
                raise ValueError(
                    f"claim {self.id}: {name}={value}; expected a sign of 1 or -1, a delta above 0, some pairs"
                )

    @property
    def kind(self) -> str:
        """The name of the kind, for example "order"."""
        return type(self).__name__.lower()

    @property
    def is_ours(self) -> bool:
        """Whether the claim comes from no paper. Its source then begins with "our question"."""
        return self.source.startswith("our question")

    @property
    def terms(self) -> tuple[Term, ...]:
        """All terms of the claim."""
        return ()

    @property
    def unit(self) -> Unit:
        """The unit of the printed effects. Effects on metrics with different units are printed as they are recorded."""
        units = dict.fromkeys(get_display_unit(term.metric) for term in self.terms)
        return next(iter(units)) if len(units) == 1 else Unit("")

    @property
    def threshold(self) -> str:
        """The condition under which the claim holds, in its unit, for example "> 0" or "within ±0.5"."""
        return "> 0"

    def declared_seeds(self, scale: str) -> tuple[int, ...]:
        """Return the seeds that judge the claim at a scale."""
        seeds = self.seeds.at(scale) if isinstance(self.seeds, ByScale) else self.seeds
        return tuple(seeds) or DEFAULT_SEEDS

    def needs(self, run: Run) -> bool:
        """Return whether a run that a term selects is used to judge the claim."""
        return True


@dataclass(frozen=True, kw_only=True)
class Value(Claim):
    """Each printed number is reproduced within the margin, in the unit of the metric."""

    expected: Mapping[Term, float] = field(hash=False)
    margin: float

    @property
    def terms(self) -> tuple[Term, ...]:
        """The terms with printed numbers."""
        return tuple(self.expected)

    @property
    def threshold(self) -> str:
        """The allowed deviation from a printed number."""
        return f"within ±{self.margin * self.unit.factor:.4g}"


@dataclass(frozen=True, kw_only=True)
class Directed(Claim):
    """An effect lies beyond a threshold. Base class of orders, interactions, trends and correlations."""

    margin: float = 0.0
    sign: int = 1
    delta: float | None = None

    @property
    def threshold(self) -> str:
        """The side and size of the threshold, followed by δ, within which an effect is small."""
        size = self.sign * self.margin * self.unit.factor + 0.0  # turns -0.0 into 0.0
        side = f"{'>' if self.sign > 0 else '<'} {size:.4g}"
        return side if self.delta is None else f"{side}, δ {self.delta * self.unit.factor:.4g}"


@dataclass(frozen=True, kw_only=True)
class Paired(Claim):
    """A claim about pairs of terms. Base class of orders and equivalences."""

    pairs: Sequence[Pair]

    def __post_init__(self) -> None:
        """Convert the pairs to a tuple, which is hashable."""
        # a frozen dataclass blocks normal assignment
        object.__setattr__(self, "pairs", tuple(self.pairs))
        super().__post_init__()

    @property
    def terms(self) -> tuple[Term, ...]:
        """Both terms of every pair."""
        return tuple(term for pair in self.pairs for term in pair)


@dataclass(frozen=True, kw_only=True)
class Order(Directed, Paired):
    """In every pair, the first term exceeds the second by more than `margin`. An effect within ±δ is small."""


@dataclass(frozen=True, kw_only=True)
class Interaction(Directed):
    """The difference of the terms in `of` is larger than the difference of the terms in `above`."""

    of: Pair
    above: Pair

    @property
    def terms(self) -> tuple[Term, ...]:
        """The four terms of both differences."""
        return (*self.of, *self.above)


@dataclass(frozen=True, kw_only=True)
class Trend(Directed):
    """A metric rises (sign 1) or falls (-1) with each doubling of `axis`.

    The slope is computed on log2 of the axis, or on log2 of the axis plus one if the axis has a zero. `within` is a
    second field: the slope is then the mean of the slopes at each of its values. `only` filters the runs.
    """

    sign: int = field()
    over: Term
    axis: str
    within: str = ""
    only: Callable[[Run], bool] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown field."""
        super().__post_init__()
        check_fields(filter(None, (self.axis, self.within)), f"claim {self.id}")

    @property
    def terms(self) -> tuple[Term, ...]:
        """The term with the metric."""
        return (self.over,)

    @property
    def unit(self) -> Unit:
        """The unit of the metric per doubling."""
        unit = get_display_unit(self.over.metric)
        return Unit(f"{unit.name}/doubling", unit.factor, unit.decimals)

    def needs(self, run: Run) -> bool:
        """Return whether a run is used to judge the trend."""
        return self.only is None or self.only(run)


@dataclass(frozen=True, kw_only=True)
class Correlation(Directed):
    """Pearson's r of two metrics, times `sign`, is above `margin`. See `repro.statistics.judge`.

    With points="runs", a point is a configuration that both terms select, averaged over its seeds. With
    points="datasets", a point is a dataset of one system, metrics have `*` for the dataset, `minus` is subtracted from
    `y` and `x_minus` from `x`, and r is the mean over systems. With has_interval=False, r has no interval, for example
    because datasets are alike. With `within`, r is the mean over the values of that field.
    """

    sign: int = field()
    x: Term
    y: Term
    points: str
    minus: Term | None = None
    x_minus: Term | None = None
    within: str = ""
    has_interval: bool = True

    def __post_init__(self) -> None:
        """Raise ValueError for an unknown field, and for unknown points."""
        super().__post_init__()
        check_fields(filter(None, (self.within,)), f"claim {self.id}")
        if self.points not in POINTS:
            raise ValueError(f"claim {self.id}: points={self.points!r} is unknown; choose one of {list(POINTS)}")

    @property
    def terms(self) -> tuple[Term, ...]:
        """The two terms, and those that are subtracted from them."""
        return (self.x, self.y, *filter(None, (self.minus, self.x_minus)))

    @property
    def unit(self) -> Unit:
        """Pearson's r."""
        return Unit("r")


@dataclass(frozen=True, kw_only=True)
class Equivalence(Paired):
    """In every pair, the two terms are within `delta` of each other. Equivalence is the outcome HOLDS."""

    delta: float

    @property
    def threshold(self) -> str:
        """The allowed difference of two terms."""
        return f"within ±{self.delta * self.unit.factor:.4g}"


# the kinds are subclasses, so they can be attached only after their definition
Claim.value, Claim.order, Claim.interaction, Claim.trend = Value, Order, Interaction, Trend
Claim.correlation, Claim.equivalence = Correlation, Equivalence
