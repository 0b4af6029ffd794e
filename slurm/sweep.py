"""A sweep: the jobs that a set of runs needs, in which order, and one file per submission with their locations.

If several runs of one launch need the same training run, one of them executes it, and the others wait without using a
slot. On Slurm, a run of another launch waits inside its job.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from repro.pipeline import stages as pipeline_stages
from repro.planning.cost import list_missing_trainings
from repro.records.provenance import compute_source_digest, get_code_identity
from repro.spec import Run, list_phases, run_from_fields
from repro.spec.identity import difference, run_from_record, run_id
from repro.storage.files import json_object, name_in_errors, write_json
from repro.storage.paths import CHECKOUT, get_sweeps_folder
from repro.storage.shards import list_shards
from repro.storage.stages import Stage
from repro.train.performance import explain_indivisible
from slurm.job import Job, WorkItem, get_run_item
from slurm.profiles import Profile, count_shards

CAREFUL_SCALES = ("small", "large")
"""Scales at which a run only executes with committed code that has not changed since its launch."""


@dataclass(frozen=True)
class Task:
    """One job of a sweep, with the stages it needs and the runs that must end first, whatever their outcome."""

    job: Job
    item: WorkItem
    needs: tuple[str, ...]
    # On Slurm: the runs that execute a training run it shares.
    after: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """The name of its item: a run id, or the kind/key of a stage."""
        return self.item.name

    @property
    def run(self) -> Run:
        """The run, or that for which a stage is built."""
        return run_from_fields(self.job.run)

    def list_missing_trainings(self) -> tuple[str, ...]:
        """Return the training runs that it would execute. A stage has none."""
        return list_missing_trainings(self.run) if not self.item.is_stage else ()


def check_code(runs: Iterable[Run]) -> None:
    """Raise ValueError if no commit identifies the code of a run at a careful scale."""
    scales = sorted({run.scale for run in runs} & set(CAREFUL_SCALES))
    if not scales:
        return
    code = get_code_identity()
    if "git" in code:
        problem = f"git cannot identify the code ({code['git']}): make git work in {CHECKOUT}"
    elif code["commit"] is None:
        problem = "the code has no commit: use a checkout, or an archive or build of one"
    elif changes := code["uncommitted_sha256"]:
        problem = f"the code has uncommitted changes ({changes}): commit first"
    else:
        return
    raise ValueError(f"{problem}: runs at {scales} record the commit of their code")


def build_tasks(runs: Sequence[Run], profile: Profile) -> list[Task]:
    """Return the jobs of these runs: each unbuilt stage once, before everything that needs it, then the runs.

    A stage that the profile shards waits for its unbuilt shards, each of which is a job.
    """
    missing = {run: [stage for stage in pipeline_stages.list_stages(run) if not stage.is_built] for run in runs}
    num_shards: dict[str, int] = {}
    for run, stages in missing.items():
        # Stages are shared, so the run or first phase with the most pairs counts.
        num = max(count_shards(phase, profile) for phase in list_phases(run))
        num_shards |= {stage.title: max(num_shards.get(stage.title, 1), num) for stage in stages}
    stage_tasks: dict[str, Task] = {}
    tasks = []
    for run, stages in missing.items():
        job = _make_job(run, profile)
        for stage in stages:
            if stage.title not in stage_tasks:
                stage_tasks |= {task.name: task for task in _build_stage_tasks(stage, job, num_shards[stage.title])}
        tasks.append(Task(job, get_run_item(run), tuple(stage.title for stage in stages)))
    return [*stage_tasks.values(), *tasks]


def add_run_dependencies(tasks: Sequence[Task]) -> list[Task]:
    """Return the tasks with dependencies between runs that share a training run. The first that needs it executes it.

    The later run waits for any outcome. If the earlier one fails, the later one executes the training run.
    """
    owners: dict[str, str] = {}  # training id → run id
    ordered = []
    for task in tasks:
        trainings = task.list_missing_trainings()
        makers = dict.fromkeys(owners[training] for training in trainings if training in owners)
        ordered.append(replace(task, after=tuple(makers)))
        # Earlier owners take precedence.
        owners = dict.fromkeys(trainings, task.name) | owners
    return ordered


def _build_stage_tasks(stage: Stage, job: Job, num_shards: int) -> Iterator[Task]:
    """Yield the jobs of a stage, unbuilt shards first. `job` is the job of the run."""
    shards = list_shards(stage, num_shards)
    needs = _list_unbuilt(stage.needs)
    # A stage is built by one process on one node, whatever the run uses.
    single_job = replace(job, num_processes=1)
    for shard in shards:
        if not shard.is_built:
            yield Task(replace(single_job, stage=shard.title), WorkItem(shard.title), needs)
    merging_job = replace(single_job, stage=stage.title, num_shards=max(1, len(shards)))
    yield Task(merging_job, WorkItem(stage.title), (*needs, *_list_unbuilt(shards)))


def _list_unbuilt(stages: Iterable[Stage]) -> tuple[str, ...]:
    return tuple(stage.title for stage in stages if not stage.is_built)


def _make_job(run: Run, profile: Profile) -> Job:
    num_processes = profile.num_processes * profile.num_nodes
    if reason := explain_indivisible(run, num_processes):
        nodes = f"profile {profile.name}: {profile.num_nodes} nodes, {profile.num_processes} on each"
        raise ValueError(f"run {run_id(run)}: {reason} ({nodes}); choose another profile")
    source = compute_source_digest() if run.scale in CAREFUL_SCALES else ""
    return Job(run=asdict(run), num_processes=num_processes, max_requeues=profile.max_requeues, source=source)


@dataclass(frozen=True, kw_only=True)
class Submission:
    """The record of one launch, handed to Slurm (with job ids) or to a local queue."""

    on: str
    sweep: str
    jobs: Mapping[str, Mapping[str, str]]  # item -> job_id, log, script
    runs: Mapping[str, Mapping[str, Any]]  # run id -> the fields that differ from its scale
    # item -> names of the stages it waits for
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)
    queue: str = ""  # local: lease folder of the queue
    at: float = field(default_factory=time.time)

    def write(self) -> None:
        """Write it to its sweep's folder. It never changes afterwards."""
        name = f"{self.at:.3f}-{uuid.uuid4().hex[:6]}.json"
        write_json(get_sweeps_folder() / self.sweep / "submissions" / name, asdict(self), lasts=True)


def read_submissions() -> list[Submission]:
    """Return all submissions of all sweeps, oldest first."""
    submissions = []
    for path in get_sweeps_folder().glob("*/submissions/*.json"):
        # An invalid file is an error, since ignoring it could launch its jobs twice.
        with name_in_errors(path):
            submissions.append(Submission(**json_object(path)))
    return sorted(submissions, key=lambda submission: submission.at)


def list_submitted_runs() -> Iterator[Run]:
    """Yield the runs of all submissions that today's code can read."""
    for submission in read_submissions():
        for name, values in submission.runs.items():
            with suppress(ValueError):
                yield run_from_record(values, name)


def make_submission(tasks: Sequence[Task], jobs: Mapping[str, Mapping[str, str]], **metadata: Any) -> Submission:
    """Return the submission that records where these tasks went."""
    # All fields of 41,000 runs would exceed the size that `read_json` accepts.
    runs = {task.name: difference(task.run) for task in tasks if not task.item.is_stage}
    needs = {task.name: task.needs for task in tasks if task.needs}
    return Submission(jobs=jobs, runs=runs, needs=needs, **metadata)
