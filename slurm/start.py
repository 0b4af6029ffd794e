"""Starts what is missing of a sweep, here or on Slurm, and nothing that is recorded, running or queued already."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from repro.lease import acquire, look
from repro.spec import Run
from slurm.local import run_locally
from slurm.notes import run_work, sweeps_folder
from slurm.profiles import Profile
from slurm.scheduler import cancel as scancel
from slurm.scheduler import max_array_size
from slurm.status import Sight, Standing, stage_note
from slurm.sweep import Hooks, Task, check_code, tasks_of

Report = Callable[[str], None]
ARRAY_SIZE_WHEN_SILENT = 1000


@dataclass(frozen=True, kw_only=True)
class Wish:
    """How a launch is meant."""

    retry: bool = False  # also what failed or was cancelled
    limit: int | None = None  # at most so many runs
    allow_dirty: bool = False  # also with uncommitted changes at a careful scale
    hooks: Hooks = field(default_factory=Hooks)


def start(runs: Sequence[Run], profile: Profile, *, sweep: str, wish: Wish, report: Report) -> dict[str, str]:
    """Starts what is missing; gives how each work ended (local) or which job does it (Slurm).

    ValueError before anything is started: unknown data, uncommitted code, a submission that Slurm refuses.
    """
    code = check_code(runs, allow_dirty=wish.allow_dirty)
    with launching(report):
        tasks = _chosen_tasks(runs, profile, wish, code=code, report=report)
        if wish.retry:
            for task in tasks:
                _forgive(task)
        if profile.on == "slurm" and tasks:
            return _start_on_slurm(tasks, profile, sweep, report)
    return run_locally(tasks, profile, sweep=sweep, report=report) if tasks else {}


def _forgive(task: Task) -> None:
    note = task.work.read()
    if task.work.is_cancelled or (note is not None and note.state in ("failed", "cancelled")):
        task.work.forget()


def scripts(runs: Sequence[Run], profile: Profile, *, sweep: str, wish: Wish) -> Iterator[tuple[str, str]]:
    """Gives each batch of a launch and the exact script of it; starts nothing."""
    from slurm.launch import Launch, batches_of

    if profile.on != "slurm":
        raise ValueError(f"profile {profile.name} is not for Slurm, so there is no script; choose another profile")
    code = check_code(runs, allow_dirty=wish.allow_dirty)
    tasks = _chosen_tasks(runs, profile, wish, code=code, report=lambda line: None)
    size = max_array_size() or ARRAY_SIZE_WHEN_SILENT
    batches = batches_of(tasks, max_array_size=size, num_at_once=profile.num_at_once or size)
    yield from Launch(profile, sweep).scripts(batches)


def _start_on_slurm(tasks: list[Task], profile: Profile, sweep: str, report: Report) -> dict[str, str]:
    from slurm.launch import Launch, batches_of

    size = max_array_size()
    if size is None:
        raise ValueError("Slurm does not answer here (scontrol show config); launch on a login node, or --on local")
    latest, live = Sight(), {}
    for task in tasks:
        if task.work.kind == "stage" and latest.live_job(task.name)[0] == "slurm":
            live[task.name] = latest.latest[task.name].jobs[task.name]["job_id"]
    batches = batches_of(
        [task for task in tasks if task.name not in live],
        max_array_size=size,
        num_at_once=profile.num_at_once or size,
    )
    launch = Launch(profile, sweep, known=live)
    launch.submit(batches, report)
    return launch.submitted


@contextmanager
def launching(report: Report) -> Iterator[None]:
    """Lets one launcher at a time look and submit."""
    said = False
    folder = sweeps_folder() / ".launching"
    while (lease := acquire(folder)) is None:
        if not said:
            report(f"waiting for another launcher: {look(folder)}")
            said = True
        time.sleep(0.5)
    with lease:
        yield


def _chosen_tasks(
    runs: Sequence[Run], profile: Profile, wish: Wish, *, code: dict[str, object], report: Report
) -> list[Task]:
    sight = Sight()
    found = {run: sight.standing(run) for run in dict.fromkeys(runs)}
    chosen = [run for run, standing in found.items() if standing.may_launch(profile.on, retry=wish.retry)][: wish.limit]
    left = len([1 for standing in found.values() if standing.state in ("failed", "cancelled")])
    report(f"{len(found)} runs asked for, {len(chosen)} to start" + (f", {left} failed or cancelled" if left else ""))
    tasks = tasks_of(chosen, profile, code=code, hooks=wish.hooks)
    return tasks if wish.retry else _without_failed_stages(tasks, report)


def _without_failed_stages(tasks: list[Task], report: Report) -> list[Task]:
    blocked: dict[str, str] = {}
    for task in tasks:  # stages come before all that needs them
        note = stage_note(task.name) if task.work.kind == "stage" else None
        if note is not None and note.state in ("failed", "cancelled"):
            blocked[task.name] = f"{note.state}: {note.reason}"
        elif any(need in blocked for need in task.needs):
            blocked[task.name] = f"needs {next(need for need in task.needs if need in blocked)}"
    for name, reason in blocked.items():
        report(f"left out: {name}, {reason} (--retry takes it up again)")
    return [task for task in tasks if task.name not in blocked]


def cancel(runs: Sequence[Run]) -> list[Standing]:
    """Asks every run that is running or queued not to go on; gives those. A running one writes its checkpoint first."""
    sight = Sight()
    found = [(run, sight.standing(run)) for run in dict.fromkeys(runs)]
    meant = [(run, standing) for run, standing in found if standing.state == "running" or standing.live_on]
    for run, _ in meant:
        run_work(run).cancel()
        owner = look(run_work(run).lease_folder)
        if owner is not None and owner.is_alive and owner.host == socket.gethostname() and not owner.note.get("job_id"):
            os.kill(owner.pid, signal.SIGTERM)
    scancel(standing.job_id for _, standing in meant if standing.live_on == "slurm" and standing.job_id)
    return [standing for _, standing in meant]
