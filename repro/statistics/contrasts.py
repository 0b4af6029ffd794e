"""Turn a claim into weighted sums of metrics, and compute each sum once per seed.

An order is one mean minus another, an interaction a difference of differences, a trend the least-squares slope over
log2 of its axis, and a printed value a mean minus a constant.

Shapes: S seeds, Q units (queries).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from repro.records.store import Record
from repro.spec import Claim, Interaction, Run, Term, Trend, Value, depends_on_seed
from repro.spec.claim import Paired
from repro.statistics.units import load_units, read_metric, split_by_stratum

MIN_TREND_VALUES = 3
"""Values of the axis that a trend needs."""
MEAN_NDCG = "{suite}/mean/ndcg_at_10"


class MissingRunsError(Exception):
    """Records that a claim needs do not exist."""


@cache
def drop_seed(run: Run) -> Run:
    """Return the system of a run: the run with seed 0, which represents the runs of all seeds."""
    return replace(run, seed=0)


@dataclass(frozen=True)
class Evidence:
    """The records of a claim: its systems by term, and the record of each system and seed."""

    systems: Mapping[Term, tuple[Run, ...]]
    records: Mapping[tuple[Run, int], Record]
    seeds: tuple[int, ...]  # empty if nothing depends on a seed

    @property
    def num_records(self) -> int:
        """The number of different records."""
        return len({record.id for record in self.records.values()})

    def get_records(self, system: Run) -> list[Record]:
        """Return the records of a system, one per seed, or a single one if nothing depends on a seed."""
        return [self.records[system, seed] for seed in self.seeds or (0,)]


@dataclass(frozen=True)
class Contrast:
    """One comparison of a claim: a weight per system and metric, minus a constant."""

    weights: Mapping[tuple[Run, str], float]
    constant: float = 0.0

    def compute_values(self, evidence: Evidence) -> np.ndarray:
        """Return the value for each seed, float64 (S,), or one value if nothing depends on a seed."""
        total = np.zeros(len(evidence.seeds) or 1)
        for (system, metric), weight in self.weights.items():
            total += weight * np.array([read_metric(record, metric) for record in evidence.get_records(system)])
        return total - self.constant

    def compute_unit_values(self, evidence: Evidence) -> tuple[np.ndarray, np.ndarray]:
        """Return the contribution of each unit (Q,) and its stratum (Q,), for records that depend on no seed.

        The mean over strata of the mean over their units is the value of the contrast.
        """
        parts: dict[tuple[str, int, int], Any] = {}
        for (system, metric), weight in self.weights.items():
            by_stratum = split_by_stratum(*load_units(evidence.get_records(system)[0], metric))
            for stratum, values_Q in by_stratum.items():
                # systems on the same units share a part, which makes the bootstrap paired
                key = (system.suite, stratum, len(values_Q))
                # Values of the same queries are added before resampling, so that their common variance cancels.
                parts[key] = parts.get(key, 0.0) + weight / len(by_stratum) * values_Q
        strata = np.repeat(np.arange(len(parts)), [len(values_Q) for values_Q in parts.values()])
        # Times the number of strata, because the bootstrap takes the mean over strata and the contrast is a sum.
        return np.concatenate([values_Q * len(parts) for values_Q in parts.values()]) - self.constant, strata

    def restrict_to_collection(self, name: str) -> Contrast:
        """Return the same contrast on one collection instead of the mean over all."""
        path = MEAN_NDCG.replace("mean", name)
        weights = {
            (system, metric.replace(MEAN_NDCG, path)): weight for (system, metric), weight in self.weights.items()
        }
        return Contrast(weights)


def build_contrasts(claim: Claim, evidence: Evidence) -> list[Contrast]:
    """Return the comparisons of a claim. Raises MissingRunsError if a trend has too few values."""
    if isinstance(claim, Paired):
        return [Contrast(_difference(pair, evidence)) for pair in claim.pairs]
    if isinstance(claim, Interaction):
        parts = [(1.0, _difference(claim.of, evidence)), (-1.0, _difference(claim.above, evidence))]
        return [Contrast(_add(parts))]
    if isinstance(claim, Value):
        return [Contrast(_mean(term, evidence), printed) for term, printed in claim.expected.items()]
    assert isinstance(claim, Trend), f"claim {claim.id} is not a contrast: {claim.kind}"
    groups: dict[Any, dict[float, list[Run]]] = {}
    for system in evidence.systems[claim.over]:
        group = groups.setdefault(getattr(system, claim.within) if claim.within else None, {})
        group.setdefault(float(getattr(system, claim.axis)), []).append(system)
    values = {value for group in groups.values() for value in group}
    # A group with a single value of the axis has no slope.
    sloping = [group for group in groups.values() if len(group) > 1]
    if len(values) < MIN_TREND_VALUES or not sloping:
        raise MissingRunsError(f"{len(values)} values of {claim.axis}; a trend needs {MIN_TREND_VALUES}")
    slopes = [_slope(group, claim.over.metric, has_zero=min(values) <= 0) for group in sloping]
    return [Contrast(_add((1 / len(slopes), slope) for slope in slopes))]


def _slope(group: dict[float, list[Run]], metric: str, *, has_zero: bool) -> dict[tuple[Run, str], float]:
    """Return the weights of the least-squares slope over log2 of the axis, or of the axis + 1 if it has a zero."""
    # the slope is linear in the values: sum of (x - mean x) * y, divided by the sum of (x - mean x)²
    x = np.log2(np.array(list(group)) + has_zero)
    weights = (x - x.mean()) / ((x - x.mean()) ** 2).sum()
    return {
        (system, metric): float(weight) / len(systems)
        for weight, systems in zip(weights, group.values(), strict=True)
        for system in systems
    }


def _mean(term: Term, evidence: Evidence) -> dict[tuple[Run, str], float]:
    systems = evidence.systems[term]
    return {(system, term.metric): 1 / len(systems) for system in systems}


def _difference(pair: tuple[Term, Term], evidence: Evidence) -> dict[tuple[Run, str], float]:
    return _add([(1.0, _mean(pair[0], evidence)), (-1.0, _mean(pair[1], evidence))])


def _add(parts: Iterable[tuple[float, Mapping[tuple[Run, str], float]]]) -> dict[tuple[Run, str], float]:
    total: dict[tuple[Run, str], float] = {}
    for factor, weights in parts:
        for key, weight in weights.items():
            total[key] = total.get(key, 0.0) + factor * weight
    return total


@dataclass(frozen=True)
class ClaimRuns:
    """The runs that a claim compares at a scale: its systems by term, and the run of each system and seed."""

    systems: Mapping[Term, tuple[Run, ...]]
    runs: Mapping[Run, Mapping[int, Run]]

    @property
    def drawn(self) -> list[Run]:
        """The systems whose numbers depend on a seed."""
        return [system for system in self.runs if depends_on_seed(system)]

    def find_seeds(self, records: Mapping[Run, Record]) -> list[int]:
        """Return the seeds for which every system that depends on a seed has a record."""
        recorded = [{seed for seed, run in self.runs[system].items() if run in records} for system in self.drawn]
        return sorted(set.intersection(*recorded)) if recorded else []

    def collect(self, seeds: tuple[int, ...], records: Mapping[Run, Record]) -> Evidence:
        """Return the records of these seeds. Raises MissingRunsError if one does not exist."""
        collected: dict[tuple[Run, int], Record] = {}
        for system, runs in self.runs.items():
            for seed in seeds or (0,):
                # A run without randomness has one record, which is paired with every seed.
                run = runs.get(seed) if depends_on_seed(system) else next(iter(runs.values()))
                if run is None or run not in records:
                    raise MissingRunsError(f"no record of {system.architecture}, seed {seed}")
                collected[system, seed] = records[run]
        return Evidence(self.systems, collected, seeds)


def find_runs(claim: Claim, terms: Iterable[Term], wanted: Iterable[Run]) -> ClaimRuns:
    """Return the runs that terms of a claim pick. Raises MissingRunsError if a term picks none."""
    wanted = list(wanted)
    runs: dict[Run, dict[int, Run]] = {}
    systems: dict[Term, tuple[Run, ...]] = {}
    for term in terms:
        # A context-blind run matches most terms by its other fields. It counts only if the term asks for it.
        is_blind = "sequence_dropout" in dict(term.runs.wanted)
        candidates = [run for run in wanted if is_blind or run.sequence_dropout < 1]  # 1: trained without documents
        selected = [run for run in candidates if term.runs.matches(run) and claim.needs(run)]
        if not selected:
            raise MissingRunsError(f"no run with {term.runs}")
        for run in selected:
            runs.setdefault(drop_seed(run), {})[run.seed] = run
        systems[term] = tuple(dict.fromkeys(map(drop_seed, selected)))
    return ClaimRuns(systems, runs)
