"""A sweep on disk: which jobs a set of runs needs, and a file for each submission that says where each went."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from repro.provenance import code_identity
from repro.spec import Run
from repro.stages import Stage
from repro.writing import whole_file
from slurm.job import CAREFUL_SCALES, Job, named
from slurm.notes import Work, run_work, stage_work, sweeps_folder
from slurm.profiles import Profile


@dataclass(frozen=True, kw_only=True)
class Hooks:
    """Which functions a job calls, by name; tests put others in."""

    execute: str = "repro.execute:execute"
    stages_of: str = "repro.inputs:stages_of"


@dataclass(frozen=True)
class Task:
    """One job of a sweep and the stages that must be built before it."""

    job: Job
    work: Work
    needs: tuple[str, ...]

    @property
    def name(self) -> str:
        """The name of its work: a run's id, or kind/key of a stage."""
        return self.work.name


def check_code(runs: Iterable[Run], *, allow_dirty: bool) -> dict[str, Any]:
    """Gives what code this is; ValueError when runs at a careful scale would be made with uncommitted changes."""
    code = code_identity()
    scales = sorted({run.scale for run in runs} & set(CAREFUL_SCALES))
    if scales and not allow_dirty and (code["commit"] is None or code["uncommitted_sha256"]):
        what = "no commit to name" if code["commit"] is None else f"uncommitted changes ({code['uncommitted_sha256']})"
        raise ValueError(
            f"the code has {what}, and scale {scales} must name its code: commit first, or say --allow-dirty"
        )
    return code


def tasks_of(runs: Sequence[Run], profile: Profile, *, code: Mapping[str, Any], hooks: Hooks) -> list[Task]:
    """Gives the jobs for these runs: each stage that is not built once and before all that need it, then the runs."""
    stages: dict[str, Task] = {}
    tasks = []
    for run in runs:
        values = asdict(run)
        missing = [stage for stage in named(hooks.stages_of)(run) if not stage.is_built]
        for stage in missing:
            work = stage_work(stage)
            job = _job(values, profile, code, hooks, stage=work.name)
            stages.setdefault(work.name, Task(job, work, _unbuilt(stage.needs)))
        job = _job(values, profile, code, hooks)
        tasks.append(Task(job, run_work(run), _unbuilt(missing)))
    return [*stages.values(), *tasks]


def _unbuilt(stages: Iterable[Stage]) -> tuple[str, ...]:
    return tuple(stage_work(stage).name for stage in stages if not stage.is_built)


def _job(values: Mapping[str, Any], profile: Profile, code: Mapping[str, Any], hooks: Hooks, *, stage: str = "") -> Job:
    return Job(
        run=values,
        stage=stage,
        num_processes=1 if stage else profile.num_processes,
        max_requeues=profile.max_requeues,
        launched_with=dict(code),
        **asdict(hooks),
    )


@dataclass(frozen=True, kw_only=True)
class Submission:
    """What one launch has handed over: to Slurm (each work with its job's number), or to a queue on one machine."""

    on: str
    sweep: str
    profile: str
    jobs: Mapping[str, Mapping[str, str]]  # work name -> job_id, log, script
    runs: Mapping[str, Mapping[str, Any]]  # run id -> its fields
    needs: Mapping[str, Sequence[str]] = field(default_factory=dict)  # work name -> names of the stages it waits for
    queue: str = ""  # local: the lease folder of the queue
    code: Mapping[str, Any] = field(default_factory=dict)
    at: float = field(default_factory=time.time)

    def write(self) -> None:
        """Adds it to its sweep's folder; it never changes afterwards."""
        name = f"{self.at:.3f}-{uuid.uuid4().hex[:6]}.json"
        with whole_file(sweeps_folder() / self.sweep / "submissions" / name) as part:
            part.write_text(json.dumps(asdict(self), indent=1, sort_keys=True))


def read_submissions() -> list[Submission]:
    """Gives every submission of every sweep, oldest first."""
    found = [Submission(**json.loads(path.read_text())) for path in sweeps_folder().glob("*/submissions/*.json")]
    return sorted(found, key=lambda submission: submission.at)


def submission_of(tasks: Sequence[Task], jobs: Mapping[str, Mapping[str, str]], **about: Any) -> Submission:
    """Gives the submission that says where these tasks went."""
    runs = {task.name: dict(task.job.run) for task in tasks if task.work.kind == "run"}
    needs = {task.name: task.needs for task in tasks if task.needs}
    code = tasks[0].job.launched_with if tasks else {}
    return Submission(jobs=jobs, runs=runs, needs=needs, code=code, **about)


def sweep_folder(name: str) -> Path:
    """Gives the one folder of a sweep: its submissions, scripts, pickles and logs."""
    folder = sweeps_folder() / name
    folder.mkdir(parents=True, exist_ok=True)
    return folder
