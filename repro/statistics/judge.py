"""Judge the paper's claims from records, by plain 95 % intervals.

The effect of a comparison is the mean over the claim's seeds of a paired difference (same seed, same batches). Its
interval is the paired t interval. Without seeds it is a paired bootstrap over queries. The words, in this order:

- HOLDS: the interval lies beyond the threshold on the claimed side. "(small)" follows if it also lies inside ±δ.
- DIFFERS: it lies beyond the threshold on the other side, and not inside ±δ.
- SMALL: neither, and it lies inside ±δ.
- OPEN: none of these.

A claim with several comparisons holds if each does, and differs if one does. The headline claims of a scale form one
Holm family, and their word needs the corrected p. Everything else is at 95 % each.

A claim is tentative if its arms differ in precision for any seed. If they differ only in the device, the note says so.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from repro.records.provenance import get_made_day
from repro.records.store import Record
from repro.spec import TRAINED, Claim, Correlation, Directed, Equivalence, Run, Term, Unit, Value
from repro.spec.scales import get_scale
from repro.statistics.bootstrap import compute_interval
from repro.statistics.contrasts import MEAN_NDCG, Contrast, Evidence, MissingRunsError, build_contrasts, find_runs
from repro.statistics.units import AbsentDatasetError, average_by_part

ALPHA = 0.05
MIN_CORRELATION_SETTINGS = 5
"""Settings that a correlation needs for an interval."""
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

    def as_dict(self, factor: float) -> dict[str, Any]:
        """Return the effect and its intervals as plain values, each multiplied by a factor."""
        names = ("effect", "low", "high", "by_seed", "collections")
        return {name: _scale(getattr(self, name), factor) for name in names}


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
    def max_p(self) -> float:
        """The largest p of the comparisons: a claim is as significant as its weakest one. 1 without a p."""
        return max((1.0 if comparison.p is None else comparison.p for comparison in self.comparisons), default=1.0)

    @property
    def verdict(self) -> str:
        """The word as printed."""
        return f"{self.word} (small)" if self.is_small else self.word

    def as_dict(self) -> dict[str, Any]:
        """Return the judgement as plain values, numbers in the unit of the threshold."""
        factor, claim = self.unit.factor, self.claim
        claim_fields = ("source", "kind", "threshold", "version", "stated")
        own_fields = ("scale", "word", "is_small", "seeds", "num_runs", "p", "note")
        return {
            "claim": claim.id,
            "statement": claim.statement,
            **{name: getattr(claim, name) for name in claim_fields},
            "unit": self.unit.name,
            **{name: getattr(self, name) for name in own_fields},
            "comparisons": [comparison.as_dict(factor) for comparison in self.comparisons],
            "blind": self.blind.as_dict(factor) if self.blind else None,
            "yours": _scale(self.yours, factor),
        }


def _scale(value: Any, factor: float) -> Any:
    if isinstance(value, tuple):
        return [number * factor for number in value]
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
    by_run = {record.run: record for record in records}
    own_by_run = {record.run: record for record in yours}
    judgements = [_judge(claim, scale, wanted, by_run) for claim in claims]
    if own_by_run:
        judgements = [replace(judged, yours=_compute_yours(judged, wanted, own_by_run)) for judged in judgements]
    return _correct_headlines(judgements, scale)


def _judge(claim: Claim, scale: str, wanted: Sequence[Run], by_run: Mapping[Run, Record]) -> Judgement:
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
    # A baseline without a seed gives the same record on any day, so its age matters only if nothing else has a seed.
    dated = claim_runs.drawn or list(claim_runs.runs)
    early_seeds = {seed for (run, seed), record in evidence.records.items() if run in dated and is_early(claim, record)}
    # From here on, the first reason against a verdict decides: descriptive, no interval, incomplete or early records.
    if claim.descriptive:
        return replace(judged, word=DESCRIPTIVE, note="; ".join(filter(None, (claim.descriptive, note))))
    note = "; ".join(filter(None, (note, describe_mixed_arms(evidence, "device", "devices"))))
    judged = replace(judged, note=note)
    mixed_precisions = describe_mixed_arms(evidence, "dtype", "precision")
    reasons = [mixed_precisions] if mixed_precisions else []
    if len(seeds) < len(declared):
        reasons.append(f"{len(seeds)} of {len(declared)} declared seeds")
    if early_seeds:
        reasons.append(
            f"{len(early_seeds)} of {len(seeds) or 1} {'seeds' if seeds else 'records'} older than the claim"
        )
    has_intervals = all(comparison.low is not None for comparison in comparisons)
    if reasons or not has_intervals:
        is_tentative = has_intervals or len(seeds) == 1
        all_notes = "; ".join(filter(None, (note, *reasons)))
        return replace(judged, word=TENTATIVE if is_tentative else DESCRIPTIVE, note=all_notes)
    word = choose_word(claim, comparisons)
    delta = claim.delta if isinstance(claim, Directed) else None
    is_small = word == HOLDS and all(comparison.is_inside(delta) for comparison in comparisons)
    return replace(judged, word=word, is_small=is_small)


def describe_mixed_arms(evidence: Evidence, name: str, label: str) -> str:
    """Return which seeds compare trained models of different machines, by a value of the machine. Empty if none does."""
    values: dict[int, set[str]] = {}
    for (run, seed), record in evidence.records.items():
        if run.architecture in TRAINED:
            values.setdefault(seed, set()).add(str(record.provenance.get("machine", {}).get(name)))
    mixed = {seed: names for seed, names in values.items() if len(names) > 1}
    if not mixed:
        return ""
    names = ", ".join(sorted(set().union(*mixed.values())))
    return f"the arms differ in {label} ({names}) for seed {', '.join(map(str, sorted(mixed)))}"


def is_early(claim: Claim, record: Record) -> bool:
    """Return whether a record is older than its claim. Such a record must not judge it."""
    day = get_made_day(record)
    return bool(claim.stated and day and day < claim.stated)


def choose_word(claim: Claim, comparisons: Sequence[Comparison]) -> str:
    """Return the word of a claim, given its intervals. See the module docstring for the order."""
    if isinstance(claim, Equivalence | Value):
        delta = claim.delta if isinstance(claim, Equivalence) else claim.margin
        if all(comparison.is_inside(delta) for comparison in comparisons):
            return HOLDS
        is_outside = any(c.is_beyond(delta, 1) or c.is_beyond(-delta, -1) for c in comparisons)
        return DIFFERS if is_outside else OPEN
    assert isinstance(claim, Directed)
    threshold = _get_threshold(claim)
    # HOLDS needs all comparisons, DIFFERS only one: the claim is a conjunction.
    if all(comparison.is_beyond(threshold, claim.sign) for comparison in comparisons):
        return HOLDS
    if any(_is_opposite(claim, comparison) for comparison in comparisons):
        return DIFFERS
    return SMALL if all(comparison.is_inside(claim.delta) for comparison in comparisons) else OPEN


def _is_opposite(claim: Directed, comparison: Comparison) -> bool:
    """Return whether an interval lies beyond the threshold on the other side, and is not small."""
    threshold = _get_threshold(claim)
    return comparison.is_beyond(threshold, -claim.sign) and not comparison.is_inside(claim.delta)


def _get_threshold(claim: Claim) -> float:
    """Return the threshold of a claim in the unit of its metric, 0 if it has none."""
    return claim.sign * claim.margin if isinstance(claim, Directed) else 0.0


def compare(claim: Claim, evidence: Evidence) -> tuple[tuple[Comparison, ...], str]:
    """Return the comparisons of a claim, and a note."""
    if isinstance(claim, Correlation):
        return _correlate(claim, evidence)
    threshold = _get_threshold(claim)
    comparisons = []
    for contrast in build_contrasts(claim, evidence):
        comparison = _estimate(contrast, evidence, threshold)
        if claim.headlines:
            comparison = replace(comparison, collections=_compute_collection_interval(contrast, evidence))
        comparisons.append(comparison)
    return tuple(comparisons), ""


def _estimate(contrast: Contrast, evidence: Evidence, threshold: float = 0.0) -> Comparison:
    values = contrast.compute_values(evidence)
    effect, by_seed = float(values.mean()), tuple(values.tolist())
    if not evidence.seeds:
        units_Q, strata_Q = contrast.compute_unit_values(evidence)
        return Comparison(effect, *(compute_interval(units_Q, np.zeros_like(units_Q), strata_Q) or ()))
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

    result = ttest_1samp(values, threshold)
    low, high = result.confidence_interval(1 - ALPHA)
    return float(low), float(high), float(result.pvalue)


def _compute_collection_interval(contrast: Contrast, evidence: Evidence) -> tuple[float, float] | None:
    """Return the t interval over the collections, each one value (mean over seeds), if the metric is their mean.

    The parts of one dataset are one value together, as in the mean.
    """
    if any(metric != MEAN_NDCG for _, metric in contrast.weights):
        return None
    datasets = next(iter(evidence.records.values())).datasets
    # Descriptive: collections are few and no random sample.
    effects: dict[str, list[float]] = {}
    for row in datasets:
        effect = contrast.restrict_to_collection(row["name"]).compute_values(evidence).mean()
        effects.setdefault(row.get("part_of") or row["name"], []).append(effect)
    means = np.array([np.mean(values) for values in effects.values()])
    return t_interval(means)[:2] if len(means) > 1 else None


def _compare_blind(
    claim: Claim, seeds: tuple[int, ...], wanted: Sequence[Run], by_run: Mapping[Run, Record]
) -> Comparison | None:
    """Compare the first term of a claim with the context-blind model. Return None without records of all seeds."""
    if claim.blind is None:
        return None
    pair = (claim.terms[0], claim.blind)
    try:
        evidence = find_runs(claim, pair, wanted).collect(seeds, by_run)
    except MissingRunsError:
        return None
    order = Claim.order("", "", pairs=[pair], source="", because="")
    return _estimate(build_contrasts(order, evidence)[0], evidence)


def _compute_yours(judged: Judgement, wanted: Sequence[Run], own_by_run: Mapping[Run, Record]) -> tuple[float, ...]:
    """Return the effects of a claim in the reader's own records, or nothing if no seed is complete.

    Neither if one of them is older than a metric of the claim, or lacks its arrays.
    """
    claim = judged.claim
    if judged.word == OTHER_SCALE:
        return ()
    try:
        claim_runs = find_runs(claim, claim.terms, wanted)
        seeds = tuple(claim_runs.find_seeds(own_by_run))
        if claim_runs.drawn and not seeds:
            return ()
        comparisons, _ = compare(claim, claim_runs.collect(seeds, own_by_run))
    except (MissingRunsError, AbsentDatasetError, ValueError):
        return ()
    return tuple(comparison.effect for comparison in comparisons)


def _correct_headlines(judgements: list[Judgement], scale: str) -> list[Judgement]:
    """Correct the p of the headline claims of a scale by Holm. A claim whose corrected p is not significant is OPEN.

    Claims that wait for records count in the family with a p of 1.
    """
    family = [index for index, judged in enumerate(judgements) if scale in judged.claim.headlines]
    if not family:
        return judgements
    from statsmodels.stats.multitest import multipletests

    p_values = [_get_p_of_word(judgements[index]) for index in family]
    corrected = multipletests(p_values, ALPHA, method="holm")[1]
    for index, p in zip(family, corrected, strict=True):
        judged = replace(judgements[index], p=float(p))
        if judged.word in (HOLDS, DIFFERS) and p >= ALPHA:
            judged = replace(judged, word=OPEN, is_small=False)
        judgements[index] = judged
    return judgements


def _get_p_of_word(judged: Judgement) -> float:
    """Return the p of a claim's word: that of the weakest comparison, unless one comparison is enough.

    A claim DIFFERS if one of its n comparisons does. Its p is that of the clearest such comparison, times n.
    """
    claim = judged.claim
    # A tentative claim has a p too, but its missing or early records must not decide about the others.
    if judged.word not in WORDS:
        return 1.0
    if judged.word != DIFFERS or not isinstance(claim, Directed):
        return judged.max_p
    opposite = [comparison for comparison in judged.comparisons if _is_opposite(claim, comparison)]
    smallest = min((comparison.p for comparison in opposite if comparison.p is not None), default=1.0)
    return min(1.0, smallest * len(judged.comparisons))


def _correlate(claim: Correlation, evidence: Evidence) -> tuple[tuple[Comparison, ...], str]:
    """Return Pearson's r, the mean over groups of points. An interval needs one group of at least five settings."""
    groups = _points_by_dataset(claim, evidence) if claim.points == "datasets" else _points_by_run(claim, evidence)
    # a single point has no correlation
    groups = [points for points in groups if len(points) > 1]
    if not groups:
        raise MissingRunsError(f"{claim.id}: x and y select no two common settings")
    effect = float(np.mean([pearson(points) for points in groups]))
    if len(groups) != 1 or not claim.has_interval:
        return (Comparison(effect),), "a mean over groups" if claim.has_interval else "over datasets"
    if len(groups[0]) < MIN_CORRELATION_SETTINGS:
        return (Comparison(effect),), f"{len(groups[0])} settings; a correlation needs {MIN_CORRELATION_SETTINGS}"
    x, y = np.array(groups[0]).T
    if not np.ptp(x) or not np.ptp(y):
        return (Comparison(effect),), "one side does not vary, so there is no correlation"
    from scipy.stats import pearsonr

    low, high = pearsonr(x, y).confidence_interval(1 - ALPHA)
    return (Comparison(effect, float(low), float(high)),), f"{len(groups[0])} settings"


Points = list[tuple[float, float]]


def _points_by_run(claim: Correlation, evidence: Evidence) -> list[Points]:
    """Return a point for each system, means over seeds, grouped by the field `within`."""
    groups: dict[Hashable, Points] = {}
    for system in evidence.systems[claim.y]:
        if system in evidence.systems[claim.x]:
            x = Contrast({(system, claim.x.metric): 1.0}).compute_values(evidence).mean()
            y = Contrast({(system, claim.y.metric): 1.0}).compute_values(evidence).mean()
            groups.setdefault(getattr(system, claim.within) if claim.within else None, []).append((x, y))
    return list(groups.values())


def _points_by_dataset(claim: Correlation, evidence: Evidence) -> list[Points]:
    """Return a point for each dataset, with `minus` subtracted from y and `x_minus` from x, grouped by system."""

    def average(term: Term) -> dict[str, float]:
        records = [record for system in evidence.systems[term] for record in evidence.get_records(system)]
        return average_by_part(records, term.metric)

    x = average(claim.x)
    x_less, y_less = (dict.fromkeys(x, 0.0) if term is None else average(term) for term in (claim.x_minus, claim.minus))
    return [
        [
            (x[name] - x_less[name], y - y_less[name])
            for name, y in average_by_part(evidence.get_records(system), claim.y.metric).items()
            if name in x and name in x_less and name in y_less
        ]
        for system in evidence.systems[claim.y]
    ]


def pearson(points: Points) -> float:
    """Return Pearson's r, or 0 if one side does not vary or there are fewer than two points."""
    # The explicit shape lets an empty list give two empty sides.
    x, y = np.array(points, float).reshape(-1, 2).T
    return float(np.corrcoef(x, y)[0, 1]) if len(x) > 1 and np.ptp(x) and np.ptp(y) else 0.0
