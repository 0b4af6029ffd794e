"""Judge the paper's claims from records, by plain 95 % intervals.

The effect of a comparison is the mean over the claim's seeds of a paired difference (same seed, same batches). Its
interval is the paired t interval. Without seeds it is a paired bootstrap over queries. The words, in this order:

- HOLDS: the interval lies beyond the threshold on the claimed side. "(small)" follows if it also lies inside ±δ.
- DIFFERS: it lies beyond the threshold on the other side.
- SMALL: neither, and it lies inside ±δ.
- OPEN: none of these.

A claim with several comparisons holds if each does, and differs if one does. The headline claims of a scale form one
Holm family, and their word needs the corrected p. Everything else is at 95 % each.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from repro.records.provenance import get_made_day
from repro.records.store import Record
from repro.spec import Claim, Correlation, Directed, Equivalence, Identity, Run, Term, Unit, Value, Varies
from repro.spec.scales import get_scale
from repro.statistics.bootstrap import paired_bootstrap, percentile_interval
from repro.statistics.contrasts import (
    MEAN,
    Contrast,
    Evidence,
    MissingRunsError,
    build_contrasts,
    find_runs,
)
from repro.statistics.units import AbsentDatasetError, average_by_part

ALPHA, POWER = 0.05, 0.8
MIN_CORRELATION_SETTINGS = 5
"""Settings that a correlation needs for an interval."""
MAX_SEEDS = 1000
HOLDS, DIFFERS, SMALL, OPEN = WORDS = ("HOLDS", "DIFFERS", "SMALL", "OPEN")
TENTATIVE, DESCRIPTIVE, NOT_RUN, OTHER_SCALE = ("tentative", "descriptive", "not run", "other scale")
"""States of a claim that has no word."""


@dataclass(frozen=True)
class Comparison:
    """One effect with its interval, in the metric's own unit. Without an interval, low and high are None."""

    effect: float
    low: float | None = None
    high: float | None = None
    by_seed: tuple[float, ...] = ()
    p: float | None = None  # two-sided, of the effect being at the threshold
    collections: tuple[float, float] | None = None  # the descriptive interval over the collections

    def is_beyond(self, threshold: float, sign: int) -> bool:
        """Return whether the interval lies beyond a threshold, above it for sign 1, below it for sign -1."""
        if self.low is None or self.high is None:
            return False
        return self.low > threshold if sign > 0 else self.high < threshold

    def is_inside(self, delta: float | None) -> bool:
        """Return whether the interval lies inside ±delta."""
        return delta is not None and self.is_beyond(-delta, 1) and self.is_beyond(delta, -1)


@dataclass(frozen=True)
class Judgement:
    """The outcome of one claim at one scale."""

    claim: Claim
    word: str  # one of WORDS, or the state of a claim without a word
    scale: str
    comparisons: tuple[Comparison, ...] = ()
    unit: Unit = field(default_factory=lambda: Unit(""))
    seeds: tuple[int, ...] = ()  # empty: nothing depends on a seed, the interval is over queries
    num_runs: int = 0
    is_small: bool = False
    p: float | None = None  # of a headline claim, corrected by Holm
    blind: Comparison | None = None  # compared with the context-blind model
    yours: tuple[float, ...] = ()  # the same effects from the reader's own records
    note: str = ""

    @property
    def effect(self) -> float | None:
        """The effect of the first comparison, or None."""
        return self.comparisons[0].effect if self.comparisons else None

    @property
    def verdict(self) -> str:
        """The word as printed."""
        return f"{self.word} (small)" if self.is_small else self.word

    def as_dict(self) -> dict[str, Any]:
        """Return the judgement as plain values, numbers in the unit of the threshold."""
        factor, claim = self.unit.factor, self.claim
        scaled = [
            {name: _scale(getattr(one, name), factor) for name in ("effect", "low", "high", "by_seed", "collections")}
            for one in (*self.comparisons, *filter(None, (self.blind,)))
        ]
        plain = ("scale", "word", "is_small", "seeds", "num_runs", "p", "note")
        return {
            "claim": claim.id,
            **{name: getattr(claim, name) for name in ("says", "source", "kind", "threshold", "version", "stated")},
            "unit": self.unit.name,
            **{name: getattr(self, name) for name in plain},
            "comparisons": scaled[: len(self.comparisons)],
            "blind": scaled[-1] if self.blind else None,
            "yours": _scale(self.yours, factor),
        }

    def estimate_seeds(self) -> int | None:
        """Return the seeds for 80 % power at the current effect, or None above 1000 or if the claim is not OPEN."""
        if self.word != OPEN or not self.seeds or isinstance(self.claim, Correlation):
            return None
        from statsmodels.stats.power import TTestPower

        needed = []
        for one in self.comparisons:
            deviation = float(np.std(one.by_seed, ddof=1))
            bounds = _get_thresholds(self.claim)
            gaps = [abs(one.effect - bound) / deviation for bound in bounds if deviation]
            # a comparison that already excludes its thresholds needs no more seeds
            if all(one.is_beyond(bound, 1) or one.is_beyond(bound, -1) for bound in bounds) or not gaps:
                continue
            # The weakest comparison decides. The smallest gap is the hardest one to exclude.
            if TTestPower().power(min(gaps), MAX_SEEDS, ALPHA) < POWER:
                return None
            # A search over all sizes, because `solve_power` may not converge for very small effects.
            sizes = range(2, MAX_SEEDS + 1)
            needed.append(next(size for size in sizes if TTestPower().power(min(gaps), size, ALPHA) >= POWER))
        return max(needed, default=None)


def _scale(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return [one * factor for one in value]
    return None if value is None else value * factor


def judge_all(
    claims: Sequence[Claim],
    scale: str,
    wanted: Sequence[Run],
    records: Iterable[Record],
    *,
    yours: Iterable[Record] = (),
) -> list[Judgement]:
    """Judge claims at one scale from published records. `yours` adds the reader's own effects without a verdict.

    `wanted` are the runs that the claims' terms pick from. Raises ValueError if a record lacks a metric.
    """
    by_run, own = ({record.run: record for record in those} for those in (records, yours))
    judged = [_judge(claim, scale, wanted, by_run) for claim in claims]
    judged = [replace(one, yours=_compute_yours(one, wanted, own)) if own else one for one in judged]
    return _correct_headlines(judged, scale)


def _judge(claim: Claim, scale: str, wanted: Sequence[Run], by_run: Mapping[Run, Record]) -> Judgement:
    if isinstance(claim, Identity):
        holds, words = claim.holds()
        return Judgement(claim, HOLDS if holds else DIFFERS, scale, note=words)
    if reason := find_other_scale(claim, scale):
        return Judgement(claim, OTHER_SCALE, scale, note=reason)
    try:
        return _judge_records(claim, scale, wanted, by_run)
    except MissingRunsError as missing:
        return Judgement(claim, NOT_RUN, scale, unit=claim.unit, note=str(missing))
    except AbsentDatasetError as absent:
        return Judgement(claim, OTHER_SCALE, scale, unit=claim.unit, note=str(absent))
    except ValueError as error:
        raise ValueError(f"claim {claim.id}: {error}") from error


def find_other_scale(claim: Claim, scale: str) -> str:
    """Return the scales that can judge a claim if this one cannot, else an empty string."""
    if claim.scales and scale not in claim.scales:
        return " or ".join(claim.scales)
    if isinstance(claim, Value) and not get_scale(scale).judges_values:
        return "small or large"
    return "" if get_scale(scale).judges_orders else "desk or larger"


def _judge_records(claim: Claim, scale: str, wanted: Sequence[Run], by_run: Mapping[Run, Record]) -> Judgement:
    claim_runs = find_runs(claim, claim.terms, wanted)
    declared = claim.declared_seeds(next(iter(claim_runs.runs)).scale) if claim_runs.drawn else ()
    # Only declared seeds count. Choosing seeds after seeing their results would bias the judgement.
    seeds = tuple(seed for seed in claim_runs.find_seeds(by_run) if seed in declared)
    if declared and not seeds:
        raise MissingRunsError(f"no seed of {', '.join(map(str, declared))} has all its records")
    evidence = claim_runs.collect(seeds, by_run)
    comparisons, note = compare(claim, evidence)
    judged = Judgement(claim, "", scale, comparisons, claim.unit, seeds, evidence.num_records, note=note)
    judged = replace(judged, blind=_compare_blind(claim, seeds, wanted, by_run))
    # Records from before the claim was stated cannot test it: they may have suggested it.
    early = {
        seed
        for (run, seed), record in evidence.records.items()
        if (is_early(claim, record) and _is_age_relevant(run, claim_runs))
    }
    notes = []
    # From here on, the first reason against a verdict decides: descriptive, no interval, incomplete or early records.
    if claim.descriptive or isinstance(claim, Varies):
        return replace(judged, word=DESCRIPTIVE, note="; ".join(filter(None, (claim.descriptive, note))))
    if len(seeds) < len(declared):
        notes.append(f"{len(seeds)} of {len(declared)} declared seeds")
    if early:
        notes.append(f"{len(early)} of {len(seeds) or 1} {'seeds' if seeds else 'records'} older than the claim")
    if not all(one.low is not None for one in comparisons):
        return replace(
            judged,
            word=DESCRIPTIVE if not seeds or len(seeds) > 1 else TENTATIVE,
            note="; ".join(filter(None, (note, *notes))),
        )
    if notes:
        return replace(judged, word=TENTATIVE, note="; ".join(filter(None, (note, *notes))))
    word = choose_word(claim, comparisons)
    delta = claim.delta if isinstance(claim, Directed) else None
    return replace(judged, word=word, is_small=word == HOLDS and all(one.is_inside(delta) for one in comparisons))


def _is_age_relevant(run: Run, claim_runs: Any) -> bool:
    """Return whether the age of a run's record matters. A baseline without a seed gives the same record on any day."""
    return run in claim_runs.drawn or not claim_runs.drawn


def is_early(claim: Claim, record: Record) -> bool:
    """Return whether a record is older than its claim. Such a record must not judge it."""
    day = get_made_day(record)
    return bool(claim.stated and day and day < claim.stated)


def choose_word(claim: Claim, comparisons: Sequence[Comparison]) -> str:
    """Return the word of a claim, given its intervals. See the module docstring for the order."""
    if isinstance(claim, Equivalence | Value):
        size = claim.delta if isinstance(claim, Equivalence) else claim.margin
        if all(one.is_inside(size) for one in comparisons):
            return HOLDS
        return DIFFERS if any(one.is_beyond(size, 1) or one.is_beyond(-size, -1) for one in comparisons) else OPEN
    assert isinstance(claim, Directed)
    (threshold,) = _get_thresholds(claim)
    # HOLDS needs all comparisons, DIFFERS only one: the claim is a conjunction.
    if all(one.is_beyond(threshold, claim.sign) for one in comparisons):
        return HOLDS
    if any(one.is_beyond(threshold, -claim.sign) for one in comparisons):
        return DIFFERS
    return SMALL if all(one.is_inside(claim.delta) for one in comparisons) else OPEN


def _get_thresholds(claim: Claim) -> tuple[float, ...]:
    """Return the thresholds of a claim in the unit of its metric: one for a directed claim, else both sides."""
    if isinstance(claim, Directed):
        return (claim.sign * claim.margin,)
    size = 0.0
    if isinstance(claim, Equivalence):
        size = claim.delta
    elif isinstance(claim, Value):
        size = claim.margin
    return (-size, size)


def compare(claim: Claim, evidence: Evidence) -> tuple[tuple[Comparison, ...], str]:
    """Return the comparisons of a claim, and a note."""
    if isinstance(claim, Varies):
        return (), _describe_best(claim, evidence)
    if isinstance(claim, Correlation):
        return _correlate(claim, evidence)
    contrasts, threshold = build_contrasts(claim, evidence), _get_thresholds(claim)[0]
    found = [_estimate(contrast, evidence, threshold) for contrast in contrasts]
    if claim.headlines:
        pairs = zip(contrasts, found, strict=True)
        found = [replace(one, collections=_over_collections(contrast, evidence)) for contrast, one in pairs]
    return tuple(found), ""


def _estimate(contrast: Contrast, evidence: Evidence, threshold: float = 0.0) -> Comparison:
    values = contrast.compute_values(evidence)
    effect, by_seed = float(values.mean()), tuple(values.tolist())
    if not evidence.seeds:
        units_Q, strata_Q = contrast.compute_unit_values(evidence)
        # One unit per stratum: every resample is the same, and an interval would have no width.
        if len(units_Q) == len(set(strata_Q.tolist())):
            return Comparison(effect)
        return Comparison(effect, *percentile_interval(paired_bootstrap(units_Q, np.zeros_like(units_Q), strata_Q)))
    if len(values) < 2:
        return Comparison(effect, by_seed=by_seed)
    low, high, p = t_interval(values, threshold)
    return Comparison(effect, low, high, by_seed, p)


def t_interval(values: np.ndarray, threshold: float = 0.0) -> tuple[float, float, float]:
    """Return the 95 % t interval of the mean of values, and the two-sided p of the mean being at a threshold."""
    # without variance the t statistic is undefined
    if np.ptp(values) == 0:
        return float(values[0]), float(values[0]), float(values[0] == threshold)
    from scipy.stats import ttest_1samp

    found = ttest_1samp(values, threshold)
    low, high = found.confidence_interval(1 - ALPHA)
    return float(low), float(high), float(found.pvalue)


def _over_collections(contrast: Contrast, evidence: Evidence) -> tuple[float, float] | None:
    """Return the t interval over the collections, each one value (mean over seeds), if the metric is their mean."""
    if any(metric != MEAN for _, metric in contrast.weights):
        return None
    datasets = next(iter(evidence.records.values())).provenance["suite"]["datasets"]
    # Descriptive: collections are few and no random sample.
    each = [contrast.restrict_to_collection(row["name"]).compute_values(evidence).mean() for row in datasets]
    return t_interval(np.array(each))[:2] if len(each) > 1 else None


def _compare_blind(
    claim: Claim, seeds: tuple[int, ...], wanted: Sequence[Run], by_run: Mapping[Run, Record]
) -> Comparison | None:
    """Compare the first term of a claim with the context-blind model. Return None without records of all seeds."""
    if claim.blind is None:
        return None
    first = claim.terms[0]
    try:
        evidence = find_runs(claim, (first, claim.blind), wanted).collect(seeds, by_run)
    except MissingRunsError:
        return None
    pair: tuple[Term, Term] = (first, claim.blind)
    return _estimate(build_contrasts(Claim.order("", "", pairs=[pair], source="", because=""), evidence)[0], evidence)


def _compute_yours(judged: Judgement, wanted: Sequence[Run], own: Mapping[Run, Record]) -> tuple[float, ...]:
    """Return the effects of a claim in the reader's own records, or nothing if no seed is complete."""
    claim = judged.claim
    if judged.word == OTHER_SCALE or isinstance(claim, Identity):
        return ()
    try:
        claim_runs = find_runs(claim, claim.terms, wanted)
        if claim_runs.drawn and not (seeds := claim_runs.find_seeds(own)):
            return ()
        comparisons, _ = compare(claim, claim_runs.collect(tuple(seeds) if claim_runs.drawn else (), own))
    except (MissingRunsError, AbsentDatasetError):
        return ()
    return tuple(one.effect for one in comparisons)


def _correct_headlines(judged: list[Judgement], scale: str) -> list[Judgement]:
    """Correct the p of the headline claims of a scale by Holm. A claim whose corrected p is not significant is OPEN.

    Claims that wait for records count in the family with a p of 1.
    """
    family = [place for place, one in enumerate(judged) if scale in one.claim.headlines]
    if not family:
        return judged
    from statsmodels.stats.multitest import multipletests

    # a claim with several comparisons is as significant as its weakest one
    p_values = [max((1.0 if p.p is None else p.p for p in judged[place].comparisons), default=1.0) for place in family]
    for place, p in zip(family, multipletests(p_values, ALPHA, method="holm")[1], strict=True):
        one = judged[place]
        is_lost = one.word in (HOLDS, DIFFERS) and p >= ALPHA
        judged[place] = replace(one, p=float(p))
        if is_lost:
            judged[place] = replace(judged[place], word=OPEN, is_small=False)
    return judged


def _correlate(claim: Correlation, evidence: Evidence) -> tuple[tuple[Comparison, ...], str]:
    """Return Pearson's r, the mean over groups of points. An interval needs one group of at least five settings."""
    groups = _points_by_dataset(claim, evidence) if claim.points == "datasets" else _points_by_run(claim, evidence)
    each = [pearson(points) for points in groups]
    effect = float(np.mean(each)) if each else 0.0
    if len(groups) != 1 or claim.blocks:
        return (Comparison(effect),), "over datasets" if claim.blocks else "a mean over groups"
    if len(groups[0]) < MIN_CORRELATION_SETTINGS:
        return (Comparison(effect),), f"{len(groups[0])} settings; a correlation needs {MIN_CORRELATION_SETTINGS}"
    from scipy.stats import pearsonr

    low, high = pearsonr(*np.array(groups[0]).T).confidence_interval(1 - ALPHA)
    return (Comparison(effect, float(low), float(high)),), f"{len(groups[0])} settings"


Points = list[tuple[float, float]]


def _points_by_run(claim: Correlation, evidence: Evidence) -> list[Points]:
    """Return a point for each system, means over seeds, grouped by the field `within`."""
    groups: dict[Hashable, Points] = {}
    for system in evidence.systems[claim.y]:
        if system in evidence.systems[claim.x]:
            x, y = (Contrast({(system, one.metric): 1.0}).compute_values(evidence).mean() for one in (claim.x, claim.y))
            groups.setdefault(getattr(system, claim.within) if claim.within else None, []).append((x, y))
    return list(groups.values())


def _points_by_dataset(claim: Correlation, evidence: Evidence) -> list[Points]:
    """Return a point for each dataset, with `minus` subtracted from y, grouped by system."""

    def average(term: Term) -> dict[str, float]:
        return average_by_part(
            [r for system in evidence.systems[term] for r in evidence.get_records(system)], term.metric
        )

    along = average(claim.x)
    level = dict.fromkeys(along, 0.0) if claim.minus is None else average(claim.minus)
    return [
        [
            (along[name], value - level[name])
            for name, value in average_by_part(evidence.get_records(system), claim.y.metric).items()
            if name in along and name in level
        ]
        for system in evidence.systems[claim.y]
    ]


def pearson(points: Points) -> float:
    """Return Pearson's r, or 0 if one side does not vary or there are fewer than two points."""
    # The explicit shape lets an empty list give two empty sides.
    x, y = np.array(points, float).reshape(-1, 2).T
    return float(np.corrcoef(x, y)[0, 1]) if len(x) > 1 and np.ptp(x) and np.ptp(y) else 0.0


def _describe_best(claim: Varies, evidence: Evidence) -> str:
    """Return how many datasets (or families) each value of the axis is best on."""
    scores: dict[str, dict[float, float]] = {}
    for system in evidence.systems[claim.over]:
        for name, score in average_by_part(evidence.get_records(system), claim.over.metric, claim.by).items():
            scores.setdefault(name, {})[getattr(system, claim.axis)] = score
    best = Counter(max(values, key=lambda value: values[value]) for values in scores.values())
    counts = ", ".join(f"{value:g} on {best[value]}" for value in sorted(best))
    return f"best {claim.axis}: {counts} of {len(scores)} {'families' if claim.by == 'family' else 'datasets'}"
