"""Plan a set of runs: recorded and missing runs, stages to build, missing data, and time and memory of missing runs.

The paper's scales have no similar records. REPRODUCING.md has a table of their phases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.pipeline.stages import StageGraph
from repro.planning.cost import Estimate, RecordedCosts, estimate, list_missing_trainings, list_trainings
from repro.planning.requirements import find_misfits, list_missing_requirements
from repro.records.store import Record, split_recorded, try_read_record
from repro.spec import Run
from repro.spec.identity import format_overrides, run_id
from repro.spec.scales import get_scale
from repro.storage.paths import get_published_records
from repro.storage.stages import Stage
from repro.text import ABSENT, GIB, count_noun, format_seconds


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
    impossible: tuple[str, ...] = ()  # runs that will be refused, one line each

    @property
    def totals(self) -> dict[str, Any]:
        """Total cost of the missing runs, without runs of unknown time. Memory is the maximum over runs.

        Hours are None if the time of every missing run is unknown.
        """
        times = [estimate.seconds for estimate in self.estimates if estimate.seconds is not None]
        hours = sum(times) / 3600 if times or not self.estimates else None
        return {
            "hours_one_after_another": hours and round(hours, 3),
            # With several runs at once, the longest run is a lower bound of the time.
            "hours": hours and round(max(hours / self.num_at_once, max(times) / 3600), 3),
            "gpu_hours": hours and round(hours * self.num_gpus, 3),
            "num_pairs": sum(estimate.num_pairs for estimate in self.estimates),
            "memory_gib": round(max((estimate.memory_bytes for estimate in self.estimates), default=0) / GIB, 1),
            "num_unknown": len(self.estimates) - len(times),
        }

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "num_asked": self.num_asked,
            "num_unique": len(self.recorded) + len(self.missing),
            "recorded": [run_id(run) for run in self.recorded],
            "missing": [{"id": run_id(run), **asdict(run)} for run in self.missing],
            "stages": [stage.title for stage in self.stages],
            "lacks": list(self.lacks),
            "impossible": list(self.impossible),
            "seconds": {
                run_id(run): None if estimate.seconds is None else round(estimate.seconds, 1)
                for run, estimate in zip(self.missing, self.estimates, strict=True)
            },
            "cost": self.totals,
        }

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        num_distinct = len(self.recorded) + len(self.missing)
        requested = f"{count_noun(self.num_asked, 'run')} requested, {num_distinct} distinct"
        lines = [f"{requested}, {len(self.recorded)} recorded, {len(self.missing)} missing"]
        lines += [f"missing: {requirement}" for requirement in self.lacks]
        if self.lacks:
            lines.append("`repro fetch` with the same arguments downloads what is missing, if there is a network")
        lines += [f"impossible: {reason}" for reason in self.impossible]
        lines += [f"  stage {stage.title}" for stage in self.stages]
        for run, cost in zip(self.missing, self.estimates, strict=True):
            time = format_seconds(cost.seconds) or ABSENT
            lines.append(f"  {run_id(run)}  {time:>8}  {format_overrides(run)}")
        return [*lines, *self._cost_lines()]

    def _cost_lines(self) -> Iterator[str]:
        """Yield the intended hardware, the cost of the missing runs, and what it excludes."""
        if not self.missing:
            return
        cost = self.totals
        scales = {run.scale: get_scale(run.scale) for run in self.missing}
        papers = {name: scale.hardware for name, scale in sorted(scales.items()) if scale.judges_values}
        if papers and not self.num_gpus:
            meant = "; ".join(f"{name} is meant for {hardware}" for name, hardware in papers.items())
            yield f"{meant}; --profile NAME plans for other machines, see slurm/profiles.toml"
        machine = f"{self.num_gpus} GPU per run" if self.num_gpus else "CPU"
        memory = f"memory {cost['memory_gib']} GiB per process"
        if cost["hours"] is None:
            time = ABSENT
        else:
            time = f"{format_seconds(3600 * cost['hours_one_after_another'])} in sequence"
            if self.num_at_once > 1:
                time += f", {format_seconds(3600 * cost['hours'])} with {self.num_at_once} in parallel"
            if self.num_gpus:
                time += f", {cost['gpu_hours']:.1f} GPU-hours"
        if self.stages:
            time += ", after the stages above"
        yield f"cost on {machine}: {time}; {memory}; {cost['num_pairs']:,} pairs"
        yield "times are those of the most similar records, scaled by the work on their tokens"
        if cost["num_unknown"]:
            runs = count_noun(cost["num_unknown"], "run")
            paper = "; REPRODUCING.md has a table of the paper's scale" if papers else ""
            yield f"excluded: {runs} without a similar record, or of unknown length, with the time {ABSENT}{paper}"


def make_plan(runs: Sequence[Run], folders: Iterable[Path], *, num_gpus: int = 0, num_at_once: int = 1) -> Plan:
    """Return the plan of these runs. A run is recorded if one of the folders contains its record.

    Times come from the published records and from the records in the folders.
    """
    record_folders = list(folders)
    recorded, missing = split_recorded(runs, record_folders)
    records = _list_readable_records(dict.fromkeys([get_published_records(), *record_folders]))
    costs = RecordedCosts(records, "gpu" if num_gpus else "cpu")
    return Plan(
        num_asked=len(runs),
        recorded=tuple(recorded),
        missing=tuple(missing),
        stages=_list_unbuilt_stages(missing),
        lacks=list_missing_requirements(missing),
        estimates=tuple(_estimate_all(missing, costs, num_devices=max(1, num_gpus))),
        num_gpus=num_gpus,
        num_at_once=num_at_once,
        impossible=find_misfits(missing),
    )


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


def _list_unbuilt_stages(runs: Iterable[Run]) -> tuple[Stage, ...]:
    """Return the known unbuilt stages, each once."""
    stages = (stage for run in runs for stage in StageGraph(run).known_stages())
    return tuple({stage.path: stage for stage in stages if not stage.is_built}.values())
