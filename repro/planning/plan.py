"""Plan a set of runs: recorded and missing runs, stages to build, missing data, and the cost of missing runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from repro.pipeline.needs import get_tokenizer_name
from repro.pipeline.stages import list_known_stages, stages_by_phase
from repro.pipeline.texts_read import TextsRead, count_tokens_here
from repro.planning.clusters import find_oversized_clusters
from repro.planning.cost import Estimate, RecordedCosts, estimate, list_training_phases
from repro.planning.requirements import find_misfits, list_missing_requirements
from repro.planning.stage_cost import StageCost, estimate_stage_costs, format_stage_costs, list_unknown_corpora
from repro.records.store import Record, readable_record, split_recorded
from repro.spec import TRAINED, Run
from repro.spec.identity import format_overrides, get_training_id, run_id
from repro.spec.scales import get_scale
from repro.storage.paths import get_published_records
from repro.storage.stages import Stage
from repro.text import ABSENT, count_noun, format_seconds
from repro.train.sharing import batches_are_sharded, explain_indivisible

GIB = 2**30
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
        seconds = sum(one.seconds for one in self.estimates)
        errors = [one.speed.relative_error for one in self.estimates if one.speed.relative_error is not None]
        # With several runs at once, the longest run is a lower bound of the time.
        return {
            "hours_one_after_another": round(seconds / 3600, 3),
            "hours": round(
                max(seconds / self.num_at_once, max((e.seconds for e in self.estimates), default=0)) / 3600, 3
            ),
            "gpu_hours": round(seconds / 3600 * self.num_gpus, 3),
            "num_pairs": sum(one.arithmetic.num_pairs for one in self.estimates),
            "num_tokens": sum(one.arithmetic.num_tokens for one in self.estimates),
            "memory_gib": round(max((one.memory_bytes for one in self.estimates), default=0) / GIB, 1),
            "disk_gib": round(sum(one.disk_bytes for one in self.estimates) / GIB, 2),
            "num_not_evaluated": sum(not one.counts_evaluation for one in self.estimates),
            "num_unknown": sum(not one.arithmetic.is_known for one in self.estimates),
            "num_measured": sum(one.speed.num_records > 0 for one in self.estimates),
            "relative_error": round(max(errors), 2) if errors else None,
        }

    @cached_property
    def texts(self) -> dict[tuple[str, str, int, str], TextsRead]:
        """Tokens that the missing runs read of built corpora, by corpus, tokenizer, length and prompts."""
        phases = [phase for run in self.missing for phase in list_training_phases(run) if phase.architecture in TRAINED]
        wanted = {(one.corpus, get_tokenizer_name(one), one.max_tokens, one.prompts): one for one in phases}
        return {key: found for key, one in wanted.items() if (found := count_tokens_here(one)) is not None}

    def as_dict(self) -> dict[str, Any]:
        """Return the plan as plain values."""
        return {
            "num_asked": self.num_asked,
            "num_unique": len(self.recorded) + len(self.missing),
            "recorded": [run_id(run) for run in self.recorded],
            "missing": [{"id": run_id(run), **asdict(run)} for run in self.missing],
            "stage_costs": [asdict(one) for one in self.stage_costs],
            "stages": [stage.title for stage in self.stages],
            "num_shards": dict(self.num_shards),
            "lacks": list(self.lacks),
            "impossible": list(self.impossible),
            "seconds": {
                run_id(run): round(one.seconds, 1) if one.is_known else None
                for run, one in zip(self.missing, self.estimates, strict=True)
            },
            "cost": self.totals,
            "texts": [{"corpus": key[0], "tokenizer": key[1], **asdict(one)} for key, one in self.texts.items()],
        }

    def lines(self) -> list[str]:
        """Return the plan as lines of text."""
        unique = len(self.recorded) + len(self.missing)
        asked = f"{count_noun(self.num_asked, 'run')} requested, {unique} distinct"
        counts = f"{asked}, {len(self.recorded)} recorded, {len(self.missing)} missing"
        pairs = zip(self.missing, self.estimates, strict=True)
        runs = [f"  {run_id(run)}  {_estimate_time(one):>8}  {format_overrides(run)}" for run, one in pairs]
        cut = {title: f" in {num} shards" for title, num in self.num_shards.items()}
        stages = [f"  stage {stage.title}{cut.get(stage.title, '')}" for stage in self.stages]
        return [
            counts,
            *(f"missing: {lack}" for lack in self.lacks),
            *(
                ["`repro fetch` with the same arguments downloads what is missing, if there is a network"]
                if self.lacks
                else []
            ),
            *(f"impossible: {one}" for one in self.impossible),
            *stages,
            *(
                f"texts of {key[0]}: {'; '.join(line.strip() for line in one.lines())}"
                for key, one in self.texts.items()
            ),
            *runs,
            *self._stage_lines(),
            *self._cost_lines(),
        ]

    def _stage_lines(self) -> list[str]:
        unknown = [
            f"{name}: {ABSENT} pairs, because their number is unknown" for name in list_unknown_corpora(self.missing)
        ]
        if not self.stage_costs:
            return unknown
        cut = f"  {', '.join(SHARDED_KINDS)} in {self.most_shards} shards: the hours are the sum over all shards"
        return [*format_stage_costs(self.stage_costs), *([cut] if self.most_shards > 1 else []), *unknown]

    def _cost_lines(self) -> list[str]:
        if not self.missing:
            return []
        cost, machine = self.totals, f"{self.num_gpus} GPU per run" if self.num_gpus else "CPU"
        time = f"{format_seconds(3600 * cost['hours_one_after_another'])} in sequence"
        if self.num_at_once > 1:
            time += f", {format_seconds(3600 * cost['hours'])} with {self.num_at_once} in parallel"
        if self.stages or self.stage_costs:
            time += ", after the stages above"
        gpu = f", {cost['gpu_hours']:.1f} GPU-hours" if self.num_gpus else ""
        memory = (
            f"{cost['memory_gib']} GiB of each GPU's memory"
            if self.num_gpus
            else f"memory {cost['memory_gib']} GiB per run"
        )
        sizes = f"{memory}, disk {cost['disk_gib']} GiB"
        work = f"{cost['num_pairs']:,} pairs, {cost['num_tokens']:,} tokens"
        trainings = count_noun(cost["num_unknown"], "training")
        unknown = f"excluded: {trainings} by epochs of unknown length, shown with the time {ABSENT}"
        lines = [f"cost on {machine}: {time}{gpu}; {sizes}; {work}", *([unknown] if cost["num_unknown"] else [])]
        lines += [*self._count_unevaluated(), *self._list_sharing_assumptions(), self._describe_accuracy()]
        return [*self._suggest_profile(), *lines]

    def _suggest_profile(self) -> list[str]:
        """Return a line on the intended hardware, and the option that estimates costs for it."""
        meant = {run.scale: get_scale(run.scale) for run in self.missing}
        told = [f"{name} is meant for {one.hardware}" for name, one in sorted(meant.items()) if one.judges_values]
        if self.num_gpus or not (told or self.stage_costs):
            return []
        return ["; ".join([*told, "--profile NAME estimates the cost on other machines, see slurm/profiles.toml"])]

    def _count_unevaluated(self) -> list[str]:
        """Return a line on the runs whose time excludes evaluation, and the reason."""
        pairs = zip(self.missing, self.estimates, strict=True)
        suites = [run.suite for run, one in pairs if not one.counts_evaluation]
        machine = "a GPU" if self.num_gpus else "a CPU"
        why = f"no similar evaluation was measured on {machine} yet, on {', '.join(sorted(set(suites)))}"
        return [f"evaluation excluded for {count_noun(len(suites), 'run')}: {why}"] if suites else []

    def _list_sharing_assumptions(self) -> list[str]:
        """Return lines on the assumptions if several GPUs share a run."""
        if self.num_gpus < 2:
            return []
        gpus, waiting = f"the {self.num_gpus} GPUs of a run", "the times exclude waiting for each other"
        whole = f"{gpus} take whole batches if batches_a_step is {self.num_gpus} or a multiple of it, and {waiting}"
        told = {True: f"{gpus} share each batch and its context documents, and {waiting}", False: whole}
        return [
            told[shared] for shared in {batches_are_sharded(run.batches_a_step, self.num_gpus) for run in self.missing}
        ]

    def _describe_accuracy(self) -> str:
        """Return a line on the source and the error of the times."""
        measured = self.totals["num_measured"]
        if not measured:
            return "no run was measured on a similar machine yet: the times are assumed, and may be several times too long or too short"
        if unmeasured := sorted({run.scale for run in self.missing} - self.scales_known):
            return f"no run at {', '.join(unmeasured)} was measured yet: times are extrapolated from smaller models"
        error = self.totals["relative_error"]
        accuracy = "one record each" if error is None else f"typical error {100 * error:.0f} %"
        return f"{measured} of {len(self.missing)} times are based on records from similar machines ({accuracy})"


def _estimate_time(one: Estimate) -> str:
    return format_seconds(one.seconds) if one.is_known else ABSENT


def make_plan(
    runs: Sequence[Run],
    folders: Iterable[Path],
    *,
    num_gpus: int = 0,
    num_at_once: int = 1,
    num_shards: Callable[[Run], int] = lambda run: 1,
) -> Plan:
    """Return the plan of these runs. A run is recorded if one of the folders contains its record.

    Speeds come from the published records and from the records in the folders. `num_shards` returns the number of
    shards for the stages of a run that can be split.
    """
    places = list(folders)
    recorded, missing = split_recorded(runs, places)
    known = _list_readable_records(dict.fromkeys([get_published_records(), *places]))
    kind = "gpu" if num_gpus else "cpu"
    estimates = tuple(_estimate_all(missing, recorded, known, kind=kind, num_devices=max(1, num_gpus)))
    stages = _list_unbuilt_stages(missing)
    cut = {stage.title: num for stage, run in stages if stage.sharding and (num := num_shards(run)) > 1}
    made = (
        tuple(recorded),
        tuple(missing),
        tuple(one for one, _ in stages),
        list_missing_requirements(missing),
        estimates,
        num_gpus,
        num_at_once,
    )
    # Stages of missing data have no number of pairs yet, but their profile may already fix the shards.
    most = max((num_shards(phase) for run in missing for phase in list_training_phases(run)), default=1)
    more: dict[str, Any] = {
        "num_shards": cut,
        "most_shards": most,
        "impossible": (
            *find_misfits(missing),
            *find_oversized_clusters(missing).values(),
            *_list_indivisible(missing, max(1, num_gpus)),
        ),
        "scales_known": frozenset(record.run.scale for record in known),
    }
    return Plan(len(runs), *made, stage_costs=estimate_stage_costs(missing), **more)


def _list_indivisible(runs: Iterable[Run], num_devices: int) -> Iterator[str]:
    """Yield the reason for each run or training phase that this number of devices cannot train."""
    for run in runs:
        found = (
            explain_indivisible(phase, num_devices)
            for phase in list_training_phases(run)
            if phase.architecture in TRAINED
        )
        yield from (f"run {run_id(run)}: {why}" for why in set(found) if why)


def _estimate_all(
    missing: Iterable[Run], recorded: Iterable[Run], records: Sequence[Record], *, kind: str, num_devices: int
) -> Iterator[Estimate]:
    """Yield the cost of each run. A training run shared by several runs is counted with the first."""
    trained, known = (
        {get_training_id(phase) for run in recorded for phase in list_training_phases(run)},
        RecordedCosts(records, kind),
    )
    for run in missing:
        yield estimate(run, known, kind=kind, num_devices=num_devices, trained=trained)
        # From here on this training run exists, so later runs only load it.
        trained |= {get_training_id(phase) for phase in list_training_phases(run)}


def _list_readable_records(folders: Iterable[Path]) -> list[Record]:
    # A record that cannot be read has no speed, but must not prevent planning.
    paths = (path for folder in folders for path in sorted(folder.glob("*.json")))
    return [record for record in map(readable_record, paths) if record is not None]


def _list_unbuilt_stages(runs: Iterable[Run]) -> tuple[tuple[Stage, Run], ...]:
    """Return the known unbuilt stages, each with the first training phase that needs it."""
    found: dict[Path, tuple[Stage, Run]] = {}
    for run in runs:
        for stage, owner in stages_by_phase(run, list_known_stages):
            if not stage.is_built:
                found.setdefault(stage.path, (stage, owner))
    return tuple(found.values())
