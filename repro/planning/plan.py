"""Plan a set of runs: recorded and missing runs, stages to build, missing data, and the cost of missing runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from repro.pipeline.stages import list_known_stages, stages_by_phase
from repro.planning.clusters import find_oversized
from repro.planning.cost import (
    Estimate,
    RecordedCosts,
    estimate,
    identify_evaluation,
    list_missing_trainings,
    list_training_phases,
    list_trainings,
)
from repro.planning.requirements import find_misfits, list_missing_requirements
from repro.planning.stage_cost import StageCost, estimate_stage_costs, format_stage_costs, list_unknown_corpora
from repro.records.store import Record, split_recorded, try_read_record
from repro.spec import Run
from repro.spec.identity import format_overrides, run_id
from repro.spec.scales import get_scale
from repro.storage.paths import get_published_records
from repro.storage.stages import Stage
from repro.text import ABSENT, GIB, count_noun, format_seconds
from repro.train.sharing import batches_are_sharded, explain_indivisible

SHARDED_KINDS = ("tokens", "embeddings", "keys")
"""Kinds of stages that a profile may split into shards."""


@dataclass(frozen=True)
class Plan:
    """The requested runs, split into recorded and missing, with the cost of the missing ones on one kind of machine."""

    num_asked: int
    recorded: tuple[Run, ...]
    missing: tuple[Run, ...]
    stages: tuple[Stage, ...]  # unbuilt stages of the missing runs
    lacks: tuple[str, ...]  # missing data, and the way to get it
    estimates: tuple[Estimate, ...]  # one per missing run, in the same order
    num_gpus: int  # per run, 0 means CPU
    num_at_once: int
    stage_costs: tuple[StageCost, ...] = ()  # for corpora of a million pairs or more
    num_shards: Mapping[str, int] = field(default_factory=dict)  # per stage that is split
    most_shards: int = 1  # largest number over all missing runs, including stages of missing data
    scales_known: frozenset[str] = frozenset()  # scales with a record
    impossible: tuple[str, ...] = ()  # runs that will be refused, one line each

    @property
    def totals(self) -> dict[str, Any]:
        """Total cost of the missing runs, without training of unknown length. Memory is the maximum over runs."""
        seconds = sum(estimate.seconds for estimate in self.estimates)
        speeds = [estimate.speed for estimate in self.estimates if estimate.is_known]
        errors = [speed.relative_error for speed in speeds if speed.relative_error is not None]
        # With several runs at once, the longest run is a lower bound of the time.
        longest = max((estimate.seconds for estimate in self.estimates), default=0)
        return {
            "hours_one_after_another": round(seconds / 3600, 3),
            "hours": round(max(seconds / self.num_at_once, longest) / 3600, 3),
            "gpu_hours": round(seconds / 3600 * self.num_gpus, 3),
            "num_pairs": sum(estimate.arithmetic.num_pairs for estimate in self.estimates),
            "num_tokens": sum(estimate.arithmetic.num_tokens for estimate in self.estimates),
            "memory_gib": round(max((estimate.memory_bytes for estimate in self.estimates), default=0) / GIB, 1),
            "disk_gib": round(sum(estimate.disk_bytes for estimate in self.estimates) / GIB, 2),
            "num_not_evaluated": sum(not estimate.counts_evaluation for estimate in self.estimates),
            "num_unknown": sum(not estimate.arithmetic.is_known for estimate in self.estimates),
            "num_measured": sum(speed.num_records > 0 for speed in speeds),
            "relative_error": round(max(errors), 2) if errors else None,
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "num_asked": self.num_asked,
            "num_unique": len(self.recorded) + len(self.missing),
            "recorded": [run_id(run) for run in self.recorded],
            "missing": [{"id": run_id(run), **asdict(run)} for run in self.missing],
            "stage_costs": [asdict(cost) for cost in self.stage_costs],
            "stages": [stage.title for stage in self.stages],
            "num_shards": dict(self.num_shards),
            "lacks": list(self.lacks),
            "impossible": list(self.impossible),
            "seconds": {
                run_id(run): round(estimate.seconds, 1) if estimate.is_known else None
                for run, estimate in zip(self.missing, self.estimates, strict=True)
            },
            "cost": self.totals,
        }

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        num_distinct = len(self.recorded) + len(self.missing)
        lines = [
            f"{count_noun(self.num_asked, 'run')} requested, {num_distinct} distinct, {len(self.recorded)} recorded, "
            f"{len(self.missing)} missing"
        ]
        lines += [f"missing: {requirement}" for requirement in self.lacks]
        if self.lacks:
            lines.append("`repro fetch` with the same arguments downloads what is missing, if there is a network")
        lines += [f"impossible: {reason}" for reason in self.impossible]
        for stage in self.stages:
            num_shards = self.num_shards.get(stage.title)
            lines.append(f"  stage {stage.title}" + (f" in {num_shards} shards" if num_shards else ""))
        times = [format_seconds(estimate.seconds) if estimate.is_known else ABSENT for estimate in self.estimates]
        for run, time in zip(self.missing, times, strict=True):
            lines.append(f"  {run_id(run)}  {time:>8}  {format_overrides(run)}")
        return [*lines, *self._stage_lines(), *self._cost_lines()]

    def _stage_lines(self) -> Iterator[str]:
        yield from format_stage_costs(self.stage_costs)
        if self.stage_costs and self.most_shards > 1:
            kinds = ", ".join(SHARDED_KINDS)
            yield f"  {kinds} in {self.most_shards} shards: the hours are the sum over all shards"
        for name in list_unknown_corpora(self.missing):
            yield f"{name}: {ABSENT} pairs, because their number is unknown"

    def _cost_lines(self) -> Iterator[str]:
        """Yield the intended hardware, the cost of the missing runs, and what it excludes or assumes."""
        if not self.missing:
            return
        cost = self.totals
        scales = {run.scale: get_scale(run.scale) for run in self.missing}
        hints = [
            f"{name} is meant for {scale.hardware}" for name, scale in sorted(scales.items()) if scale.judges_values
        ]
        if not self.num_gpus and (hints or self.stage_costs):
            yield "; ".join([*hints, "--profile NAME estimates the cost on other machines, see slurm/profiles.toml"])
        machine, memory = "CPU", f"memory {cost['memory_gib']} GiB per run"
        if self.num_gpus:
            machine, memory = f"{self.num_gpus} GPU per run", f"{cost['memory_gib']} GiB of each GPU's memory"
        time = f"{format_seconds(3600 * cost['hours_one_after_another'])} in sequence"
        if self.num_at_once > 1:
            time += f", {format_seconds(3600 * cost['hours'])} with {self.num_at_once} in parallel"
        if self.stages or self.stage_costs:
            time += ", after the stages above"
        if self.num_gpus:
            time += f", {cost['gpu_hours']:.1f} GPU-hours"
        texts = f"{cost['num_pairs']:,} pairs, {cost['num_tokens']:,} tokens"
        yield f"cost on {machine}: {time}; {memory}, disk {cost['disk_gib']} GiB; {texts}"
        if cost["num_unknown"]:
            trainings = count_noun(cost["num_unknown"], "training")
            yield f"excluded: {trainings} by epochs of unknown length, shown with the time {ABSENT}"
        if cost["num_not_evaluated"]:
            runs = zip(self.missing, self.estimates, strict=True)
            unmeasured = sorted({identify_evaluation(run) for run, estimate in runs if not estimate.counts_evaluation})
            names = ", ".join(f"{measure} of {architecture} on {suite}" for architecture, suite, measure in unmeasured)
            reason = f"no record on {machine} yet of {names}"
            yield f"evaluation excluded for {count_noun(cost['num_not_evaluated'], 'run')}: {reason}"
        if self.num_gpus > 1:
            yield from self._list_sharing_assumptions()
        yield self._describe_accuracy()

    def _list_sharing_assumptions(self) -> Iterator[str]:
        """Yield the assumptions if several GPUs share a run."""
        for is_shared in {batches_are_sharded(run.batches_a_step, self.num_gpus) for run in self.missing}:
            work = f"take whole batches if batches_a_step is {self.num_gpus} or a multiple of it"
            if is_shared:
                work = "share each batch and its context documents"
            yield f"the {self.num_gpus} GPUs of a run {work}, and the times exclude waiting for each other"

    def _describe_accuracy(self) -> str:
        """Return a line on the source and the error of the times."""
        measured, error = self.totals["num_measured"], self.totals["relative_error"]
        if not measured:
            return "no run was measured on a similar machine yet: the times are assumed, and may be far off"
        if unmeasured := sorted({run.scale for run in self.missing} - self.scales_known):
            return f"no run at {', '.join(unmeasured)} was measured yet: times are extrapolated from other scales"
        accuracy = "one record each" if error is None else f"typical error {100 * error:.0f} %"
        num_times = sum(estimate.is_known for estimate in self.estimates)
        return f"{measured} of {num_times} times are based on records from similar machines ({accuracy})"


def make_plan(
    runs: Sequence[Run],
    folders: Iterable[Path],
    *,
    num_gpus: int = 0,
    num_processes: int | None = None,
    num_at_once: int = 1,
    num_shards: Callable[[Run], int] = lambda run: 1,
) -> Plan:
    """Return the plan of these runs. A run is recorded if one of the folders contains its record.

    Speeds come from the published records and from the records in the folders. `num_processes` is the number of processes
    of a run, by default one per GPU. `num_shards` returns the number of shards for the stages of a run that can be split.
    """
    record_folders = list(folders)
    recorded, missing = split_recorded(runs, record_folders)
    records = _list_readable_records(dict.fromkeys([get_published_records(), *record_folders]))
    kind = "gpu" if num_gpus else "cpu"
    estimates = tuple(_estimate_all(missing, RecordedCosts(records, kind), num_devices=max(1, num_gpus)))
    stages = _list_unbuilt_stages(missing)
    counts = {stage.title: num_shards(run) for stage, run in stages if stage.sharding}
    shards_by_stage = {title: count for title, count in counts.items() if count > 1}
    # Stages of missing data have no number of pairs yet, but their profile may already fix the shards.
    max_shards = max((num_shards(phase) for run in missing for phase in list_training_phases(run)), default=1)
    impossible = (
        *find_misfits(missing),
        *find_oversized(missing).values(),
        *_list_indivisible(missing, num_processes or max(1, num_gpus)),
    )
    return Plan(
        num_asked=len(runs),
        recorded=tuple(recorded),
        missing=tuple(missing),
        stages=tuple(stage for stage, _ in stages),
        lacks=list_missing_requirements(missing),
        estimates=estimates,
        num_gpus=num_gpus,
        num_at_once=num_at_once,
        stage_costs=estimate_stage_costs(missing),
        num_shards=shards_by_stage,
        most_shards=max_shards,
        scales_known=frozenset(record.run.scale for record in records),
        impossible=impossible,
    )


def _list_indivisible(runs: Iterable[Run], num_processes: int) -> Iterator[str]:
    """Yield the reason for each run that this number of processes cannot train."""
    for run in runs:
        if reason := explain_indivisible(run, num_processes):
            yield f"run {run_id(run)}: {reason}"


def _estimate_all(missing: Sequence[Run], costs: RecordedCosts, *, num_devices: int) -> Iterator[Estimate]:
    """Yield the cost of each run without the training runs that this machine needs no more.

    A training run shared by several runs is counted with the first.
    """
    trained: set[str] = set()
    for run in missing:
        to_train = list_missing_trainings(run)
        unneeded = set(list_trainings(run)).difference(to_train)
        yield estimate(run, costs, num_devices=num_devices, trained=trained | unneeded)
        # From here on these training runs exist, so later runs only load them.
        trained.update(to_train)


def _list_readable_records(folders: Iterable[Path]) -> list[Record]:
    # A record that cannot be read has no speed, but must not prevent planning.
    paths = (path for folder in folders for path in sorted(folder.glob("*.json")))
    return [record for record in map(try_read_record, paths) if record is not None]


def _list_unbuilt_stages(runs: Iterable[Run]) -> tuple[tuple[Stage, Run], ...]:
    """Return the known unbuilt stages, each with the first training phase that needs it."""
    unbuilt: dict[Path, tuple[Stage, Run]] = {}
    for run in runs:
        for stage, owner in stages_by_phase(run, list_known_stages):
            if not stage.is_built:
                unbuilt.setdefault(stage.path, (stage, owner))
    return tuple(unbuilt.values())
