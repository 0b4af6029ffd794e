"""Which records judge a claim: those of the seeds that were not looked at while it was worded, where they are there.

Published records are whole or not there: every seed that a claim's runs ask for must have its records, else it is NOT
RUN. A claim that was restated after some seeds had been looked at needs the other seeds instead: where two or more of
them are asked for, it is judged on these alone, on all of them; before the first is there on those that had been looked
at, and marked post hoc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from repro.claims.variance import system_of
from repro.records.spent import seconds_of
from repro.records.store import Record
from repro.spec import TRAINED, ByScale, Claim, Run, Term, is_random

FEWEST_FRESH_SEEDS = 2
SEEN_SCALE = "desk"
"""The one scale that had records when claims were restated; whatever other scales have was made later."""


class MissingRunsError(Exception):
    """The records a claim needs are not all there."""


@dataclass(frozen=True)
class Evidence:
    """The records that judge a claim: systems by term, and of each system a record for every seed."""

    systems: Mapping[Term, tuple[Run, ...]]
    records: Mapping[Run, Mapping[int, Record]]  # by system, by seed; where no seed matters, the one record under each
    seeds: tuple[int, ...]
    is_post_hoc: bool
    num_looks: int = 1  # times the claim was judged at the scale of these records while seeds were added

    def all_records(self) -> list[Record]:
        """Return every record that judges, each once."""
        return list({record.id: record for each in self.records.values() for record in each.values()}.values())

    def seconds_a_seed(self) -> float:
        """Return the seconds that a further seed takes: those of the fastest seed, which waited least for others."""
        drawn = [system for system in self.records if is_random(system)]
        return min(sum(seconds_of([self.records[system][seed] for system in drawn])) for seed in self.seeds)

    def of_system(self, system: Run) -> list[Record]:
        """Return the records of a system, one a seed."""
        return [self.records[system][seed] for seed in self.seeds]


def evidence_for(claim: Claim, wanted: Sequence[Run], by_run: Mapping[Run, Record]) -> Evidence:
    """Return the records that judge a claim; MissingRunsError says which are not there."""
    asked: dict[Run, dict[int, Run]] = {}
    systems: dict[Term, tuple[Run, ...]] = {}
    for term in claim.terms:
        runs = [run for run in wanted if term.of.matches(run) and claim.needs(run)]
        if not runs:
            raise MissingRunsError(f"all of the runs with {_words(term, wanted)} have no record")
        for run in runs:
            asked.setdefault(system_of(run), {})[run.seed] = run
        systems[term] = tuple(dict.fromkeys(system_of(run) for run in runs))
    drawn = {system: runs for system, runs in asked.items() if len(runs) > 1 or system.architecture in TRAINED}
    drawn = drawn or asked
    shared = sorted(set.intersection(*(set(runs) for runs in drawn.values())))
    if not shared:
        raise MissingRunsError(f"no seed in common: {sorted({tuple(sorted(runs)) for runs in drawn.values()})}")
    complete = [seed for seed in shared if all(runs[seed] in by_run for runs in drawn.values())]
    scale = next(iter(asked)).scale  # of the planted corpus: desk, at whichever scale one asks
    seeds, is_post_hoc = _judging_seeds(seen_at(claim, scale), shared, complete)
    fixed = {system: next(iter(runs.values())) for system, runs in asked.items() if system not in drawn}
    if not seeds or any(run not in by_run for run in fixed.values()):
        raise MissingRunsError(_lacking(claim, wanted, by_run))
    records = {system: {seed: by_run[runs[seed]] for seed in seeds} for system, runs in drawn.items()}
    records |= {system: dict.fromkeys(seeds, by_run[run]) for system, run in fixed.items()}
    return Evidence(systems, records, tuple(seeds), is_post_hoc, looks_at(claim, scale))


def seen_at(claim: Claim, scale: str) -> tuple[int, ...]:
    """Return the seeds whose records at a scale had been looked at when the claim was worded."""
    return claim.seen_seeds if scale == SEEN_SCALE else ()


def looks_at(claim: Claim, scale: str) -> int:
    """Return how often a claim has been judged at a scale while seeds were added."""
    if isinstance(claim.num_looks, ByScale):
        return claim.num_looks.at(scale) or 1
    return claim.num_looks if scale == SEEN_SCALE else 1


def _judging_seeds(seen_seeds: Sequence[int], shared: Sequence[int], complete: Sequence[int]) -> tuple[list[int], bool]:
    """Return the seeds that judge, none where records are missing, and whether the claim was worded after them."""
    fresh = [seed for seed in shared if seed not in seen_seeds]
    if seen_seeds and len(fresh) >= FEWEST_FRESH_SEEDS and set(fresh) & set(complete):
        return (fresh if set(fresh) <= set(complete) else []), False
    seen = [seed for seed in shared if seed in seen_seeds]
    needed = seen or shared
    return (list(complete), bool(seen)) if set(needed) <= set(complete) else ([], False)


def _lacking(claim: Claim, wanted: Sequence[Run], by_run: Mapping[Run, Record]) -> str:
    for term in claim.terms:
        asked = [run for run in wanted if term.of.matches(run) and claim.needs(run)]
        missing = [run for run in asked if run not in by_run]
        if missing:
            return f"{len(missing)} of {len(asked)} runs with {_words(term, wanted)} have no record"
    return "no seed has all its records"


def _words(term: Term, wanted: Sequence[Run]) -> str:
    return str(term.of.at(wanted[0].scale) if wanted else term.of)
