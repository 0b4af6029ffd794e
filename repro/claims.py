"""Judges the paper's claims from records: the only comparison with the paper.

A claim becomes one or more advantages, each a number that is above zero when the claim holds: how far better lies above
worse beyond the margin, how far inside its tolerance a printed value is met, how far a correlation passes its margin.
A paired bootstrap over seeds and queries gives each advantage a distribution (`repro.correlation` has its own). A claim
HOLDS when all its advantages are above zero beyond chance, DIFFERS when one of them is below zero beyond chance, and is
UNDECIDED between; the claims of one artefact share an error of 5 % by Holm's procedure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from repro.correlation import FEWEST_POINTS, correlate, points_of
from repro.evaluate.statistics import holm_levels, paired_bootstrap
from repro.scales import scale_named
from repro.spec import Claim, Run, Term
from repro.store import Record

NUM_SAMPLES = 2000
ALPHA = 0.05
LOG2 = "log2 "
VERDICTS = ("HOLDS", "DIFFERS", "UNDECIDED", "NOT RUN", "WRONG SCALE")


@dataclass(frozen=True)
class Judgement:
    """What the records say of one claim: effect and interval of its weakest comparison, in the metric's unit."""

    claim: Claim
    verdict: str
    scale: str
    effect: float | None = None
    low: float | None = None
    high: float | None = None
    num_seeds: int | None = None
    num_runs: int | None = None
    is_share: bool = False
    note: str = ""

    def as_dict(self) -> dict[str, Any]:
        """Gives the judgement as plain values."""
        plain = {name: value for name, value in asdict(self).items() if name != "claim"}
        return {"claim": self.claim.id, "says": self.claim.says, "source": self.claim.source, **plain}


@dataclass(frozen=True)
class Advantage:
    """One comparison of a claim: its size above the bar, its bootstrap samples, and what it is in the metric's unit."""

    size: float
    samples: np.ndarray
    effect: float
    effect_samples: np.ndarray
    is_share: bool


class MissingRunsError(Exception):
    """The records a claim needs are not all there."""


class AbsentDatasetError(Exception):
    """The claim is about a dataset that the suite of its scale does not have."""


def judge_all(claims: Sequence[Claim], scale: str, wanted: Sequence[Run], records: Iterable[Record]) -> list[Judgement]:
    """Judges the claims of one artefact at one scale; `wanted` are the runs that would make the record set complete."""
    by_run = {record.run: record for record in records}
    decided: dict[str, Judgement] = {}
    measured: dict[str, tuple[list[Advantage], list[Record]]] = {}
    for claim in claims:
        reason = _wrong_scale(claim, scale)
        if reason:
            decided[claim.id] = Judgement(claim, "WRONG SCALE", scale, note=reason)
        elif claim.holds_exactly is not None:
            holds, found = claim.holds_exactly()
            decided[claim.id] = Judgement(claim, "HOLDS" if holds else "DIFFERS", scale, note=found)
        else:
            try:
                measured[claim.id] = _measure(claim, wanted, by_run)
            except MissingRunsError as missing:
                decided[claim.id] = Judgement(claim, "NOT RUN", scale, note=str(missing))
            except AbsentDatasetError as absent:
                decided[claim.id] = Judgement(claim, "WRONG SCALE", scale, note=str(absent))
    decided |= _verdicts([claim for claim in claims if claim.id in measured], scale, measured)
    return [decided[claim.id] for claim in claims]


def _wrong_scale(claim: Claim, scale: str) -> str:
    if claim.kind == "identity":
        return ""
    if not scale_named(scale).judges_orders:
        return f"{scale} says nothing of the paper"
    if claim.kind == "value" and not scale_named(scale).judges_values:
        return "printed values are judged at small and large"
    return ""


def _measure(claim: Claim, wanted: Sequence[Run], by_run: Mapping[Run, Record]) -> tuple[list[Advantage], list[Record]]:
    terms = [term for pair in claim.pairs for term in pair] + [term for term, _ in claim.expected]
    terms += [term for term in (claim.over, claim.x, claim.y, claim.minus) if term is not None]
    used = {id(term): _records_of(term, wanted, by_run) for term in terms}
    if claim.kind == "order":
        advantages = [_order(claim, pair, used[id(pair[0])], used[id(pair[1])]) for pair in claim.pairs]
    elif claim.kind == "interaction":
        advantages = [_interaction(claim, *((used[id(first)], used[id(second)]) for first, second in claim.pairs))]
    elif claim.kind == "value":
        advantages = [_value(claim, term, printed, used[id(term)]) for term, printed in claim.expected]
    elif claim.kind == "correlation":
        advantages = [_correlation(claim, *(used.get(id(term), []) for term in (claim.x, claim.y, claim.minus)))]
    else:
        assert claim.over is not None, f"claim {claim.id} is a trend over nothing"
        advantages = [_trend(claim, used[id(claim.over)])]
    return advantages, list({record.id: record for records in used.values() for record in records}.values())


def _records_of(term: Term, wanted: Sequence[Run], by_run: Mapping[Run, Record]) -> list[Record]:
    asked = [run for run in wanted if term.of.matches(run)]
    missing = [run for run in asked if run not in by_run]
    if not asked or missing:
        raise MissingRunsError(f"{len(missing) or 'all'} of {len(asked) or 'the'} runs with {term.of} have no record")
    return [by_run[run] for run in asked]


def units(record: Record, pattern: str) -> tuple[np.ndarray, np.ndarray]:
    """Gives what a metric is the mean of: values (float64 Q) and the stratum of each (int Q), e.g. query and dataset.

    A metric `{suite}/NAME/ndcg_at_10` is a mean over datasets of means over queries; NAME is "mean", a family or a
    dataset. Any other metric is kept as an array under its own path. "log2 NAME" is the logarithm of one number: a
    difference of two is a ratio. ValueError names the metric that is not there, AbsentDatasetError the dataset.
    """
    path = pattern.replace("{suite}", record.run.suite)
    if path.startswith(LOG2) and path.removeprefix(LOG2) in record.metrics:
        return np.log2([record.metrics[path.removeprefix(LOG2)]]), np.zeros(1, np.int64)
    if path in record.arrays:
        values = record.arrays[path].astype(np.float64)
        return values, np.zeros(len(values), np.int64)
    suite, _, name = path.removesuffix("/ndcg_at_10").partition("/")
    if suite not in record.arrays:
        raise ValueError(f"record {record.id} keeps no values behind {path!r}; it has {sorted(record.arrays)}")
    datasets = record.provenance["suite"]["datasets"]
    strata = np.repeat(np.arange(len(datasets)), [dataset["num_queries"] for dataset in datasets])
    chosen = [i for i, d in enumerate(datasets) if name in ("mean", d["family"], d["name"])]
    if not chosen:
        raise AbsentDatasetError(f"the suite {suite} has no dataset {name}")
    inside = np.isin(strata, chosen)
    return record.arrays[suite][inside].astype(np.float64), strata[inside]


def _by_seed(records: Sequence[Record], metric: str) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """Gives, for each seed, the mean over its records of the units of a metric; and the strata."""
    values: dict[int, list[np.ndarray]] = {}
    strata = np.zeros(0, np.int64)
    for record in records:
        found, strata = units(record, metric)
        values.setdefault(record.run.seed, []).append(found)
    return {seed: np.mean(np.stack(each), axis=0) for seed, each in values.items()}, strata


def _paired(better: dict[int, np.ndarray], worse: dict[int, np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Pairs two systems by seed; one that was run once (it has no randomness) stands for every seed of the other."""
    if len(worse) == 1:
        return list(better.values()), list(worse.values()) * len(better)
    if len(better) == 1:
        return list(better.values()) * len(worse), list(worse.values())
    shared = sorted(set(better) & set(worse))
    if not shared:
        raise MissingRunsError(f"no seed in common: {sorted(better)} and {sorted(worse)}")
    return [better[seed] for seed in shared], [worse[seed] for seed in shared]


def _effect(better: list[np.ndarray], worse: list[np.ndarray], strata: np.ndarray) -> tuple[float, np.ndarray]:
    gaps = np.mean([b - w for b, w in zip(better, worse, strict=True)], axis=0)
    effect = float(np.mean([gaps[strata == stratum].mean() for stratum in np.unique(strata)]))
    return effect, paired_bootstrap(better, worse, strata, num_samples=NUM_SAMPLES, seed=0)


def _order(claim: Claim, pair: tuple[Term, Term], better: list[Record], worse: list[Record]) -> Advantage:
    above, strata = _by_seed(better, pair[0].metric)
    below, _ = _by_seed(worse, pair[1].metric)
    effect, samples = _effect(*_paired(above, below), strata)
    return Advantage(effect - claim.margin, samples - claim.margin, effect, samples, _is_share(pair[0].metric))


def _interaction(claim: Claim, *pairs: tuple[list[Record], list[Record]]) -> Advantage:
    metric = claim.pairs[0][0].metric
    gains, strata = [], np.zeros(0, np.int64)
    for first, second in pairs:
        (above, strata), (below, _) = _by_seed(first, metric), _by_seed(second, metric)
        gains.append({seed: above[seed] - below[seed] for seed in sorted(set(above) & set(below))})
    effect, samples = _effect(*_paired(*gains), strata)
    return Advantage(effect, samples, effect, samples, _is_share(metric))


def _value(claim: Claim, term: Term, printed: float, records: list[Record]) -> Advantage:
    found, strata = _by_seed(records, term.metric)
    nothing = [np.zeros_like(values) for values in found.values()]
    mean, samples = _effect(list(found.values()), nothing, strata)
    off, offs = mean - printed, samples - printed
    return Advantage(claim.margin - abs(off), claim.margin - np.abs(offs), off, offs, _is_share(term.metric))


def _trend(claim: Claim, records: list[Record]) -> Advantage:
    groups: dict[Any, list[Record]] = {}
    for record in records:
        groups.setdefault(getattr(record.run, claim.within) if claim.within else None, []).append(record)
    found = [_rank_correlation(claim, members) for members in groups.values()]
    correlation = float(np.mean([size for size, _ in found]))
    resampled = np.mean([samples for _, samples in found], axis=0)
    return Advantage(correlation - claim.margin, resampled - claim.margin, correlation, resampled, False)


def _rank_correlation(claim: Claim, records: list[Record]) -> tuple[float, np.ndarray]:
    assert claim.over is not None, f"claim {claim.id} is a trend over nothing"
    cells: dict[float, list[Record]] = {}
    for record in records:
        cells.setdefault(float(getattr(record.run, claim.axis)), []).append(record)
    if len(cells) < 3:
        raise MissingRunsError(f"{len(cells)} values of {claim.axis}; a trend needs three")
    means, samples = [], []
    for _, members in sorted(cells.items()):
        found, strata = _by_seed(members, claim.over.metric)
        nothing = [np.zeros_like(values) for values in found.values()]
        mean, resampled = _effect(list(found.values()), nothing, strata)
        means.append(mean)
        samples.append(resampled)
    axis = sorted(cells)
    correlation = claim.sign * float(spearmanr(axis, means).statistic)
    columns = np.stack(samples, axis=1)
    return correlation, np.array([claim.sign * spearmanr(axis, column).statistic for column in columns])


def _correlation(claim: Claim, x: list[Record], y: list[Record], minus: list[Record]) -> Advantage:
    points = points_of(claim, x, y, minus)
    if len(points) < FEWEST_POINTS:
        raise MissingRunsError(f"{len(points)} points; a correlation needs three")
    found, samples = correlate(points, num_samples=NUM_SAMPLES)
    effect, resampled = claim.sign * found, claim.sign * samples
    return Advantage(effect - claim.margin, resampled - claim.margin, effect, resampled, False)


def _is_share(metric: str) -> bool:
    return metric != "train/loss" and not metric.startswith(LOG2)


def _verdicts(
    claims: Sequence[Claim], scale: str, measured: Mapping[str, tuple[list[Advantage], list[Record]]]
) -> dict[str, Judgement]:
    directions = {claim.id: _direction(measured[claim.id][0]) for claim in claims}
    levels = dict(zip(directions, holm_levels([p for _, p in directions.values()], ALPHA), strict=True))
    judged = {}
    for claim in claims:
        advantages, records = measured[claim.id]
        direction, p_value = directions[claim.id]
        level = levels[claim.id]
        weakest = max(advantages, key=lambda one: (np.mean(one.samples <= 0), -one.size))  # the one that decides
        low, high = np.quantile(weakest.effect_samples, [level / 2, 1 - level / 2])
        judged[claim.id] = Judgement(
            claim,
            direction if p_value <= level else "UNDECIDED",
            scale,
            weakest.effect,
            float(low),
            float(high),
            len({record.run.seed for record in records}),
            len(records),
            weakest.is_share,
            f"weakest of {len(advantages)} comparisons" if len(advantages) > 1 else "",
        )
    return judged


def _direction(advantages: Sequence[Advantage]) -> tuple[str, float]:
    """Gives the likelier verdict and its two-sided p-value: all must be above zero to hold, one below zero differs."""
    above = [(np.sum(a.samples <= 0) + 1) / (len(a.samples) + 1) for a in advantages]
    below = [(np.sum(a.samples >= 0) + 1) / (len(a.samples) + 1) for a in advantages]
    holds, differs = max(above), min(1.0, len(advantages) * min(below))
    return ("HOLDS", min(1.0, 2 * holds)) if holds <= differs else ("DIFFERS", min(1.0, 2 * differs))
