"""Start what is missing of a sweep, here or on Slurm, and nothing that is already recorded, running or queued."""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from repro.planning.clusters import too_large_clusters
from repro.spec import Run
from repro.spec.values import counted
from repro.storage.lease import acquire, look
from repro.storage.paths import sweeps_folder
from repro.storage.shards import whole_of
from slurm.batches import batches_of
from slurm.hooks import Hooks
from slurm.local import run_locally
from slurm.profiles import Profile
from slurm.scheduler import Verdict, max_array_size, try_script
from slurm.scheduler import cancel as scancel
from slurm.states import item_of_run
from slurm.status import RunStatus, Snapshot, stage_state
from slurm.sweep import Task, after_makers, check_code, tasks_of
from slurm.trainings import missing_trainings

Progress = Callable[[str], None]
ARRAY_SIZE_WHEN_SILENT = 1000


@dataclass(frozen=True, kw_only=True)
class LaunchOptions:
    """How a launch is meant."""

    retry: bool = False  # also what failed or was cancelled
    limit: int | None = None  # at most so many runs
    allow_dirty: bool = False  # also with uncommitted changes at a careful scale
    hooks: Hooks = field(default_factory=Hooks)


def start(
    runs: Sequence[Run], profile: Profile, *, sweep: str, options: LaunchOptions, progress: Progress
) -> dict[str, str]:
    """Start what is missing; return how each item ended (local) or which job does it (Slurm).

    ValueError before anything is started: unknown data, uncommitted code, a submission that Slurm refuses.
    """
    code = check_code(runs, allow_dirty=options.allow_dirty)
    with launching(progress):
        tasks = _chosen_tasks(runs, profile, options, code=code, progress=progress)
        if options.retry:
            for task in tasks:
                _forgive(task)
        if profile.on == "slurm" and tasks:
            return _start_on_slurm(tasks, profile, sweep, progress)
    return run_locally(tasks, profile, sweep=sweep, progress=progress) if tasks else {}


def _forgive(task: Task) -> None:
    last = task.item.read()
    if task.item.is_cancelled or (last is not None and last.state in ("failed", "cancelled")):
        task.item.forget()


def scripts(runs: Sequence[Run], profile: Profile, *, sweep: str, options: LaunchOptions) -> Iterator[tuple[str, str]]:
    """Return each batch of a launch and the exact script of it; starts nothing."""
    from slurm.launch import Launch

    if profile.on != "slurm":
        raise ValueError(
            f"profile {profile.name} is this machine's queue, which has no script to print; `launch` without --dry-run "
            "starts the runs here, and `run --dry-run` shows which they are"
        )
    code = check_code(runs, allow_dirty=options.allow_dirty)
    tasks = _chosen_tasks(runs, profile, options, code=code, progress=lambda line: None)
    size = max_array_size() or ARRAY_SIZE_WHEN_SILENT
    batches = batches_of(after_makers(tasks, {}), max_array_size=size, num_at_once=profile.num_at_once or size)
    yield from Launch(profile, sweep).scripts(batches)


def check_site(
    runs: Sequence[Run], profile: Profile, *, sweep: str, options: LaunchOptions
) -> Iterator[tuple[str, Verdict]]:
    """Return each batch of a launch and what Slurm says of its script; submits nothing."""
    for name, script in scripts(runs, profile, sweep=sweep, options=options):
        yield name, try_script(script)


def _start_on_slurm(tasks: list[Task], profile: Profile, sweep: str, progress: Progress) -> dict[str, str]:
    from slurm.launch import Launch

    size = max_array_size()
    if size is None:
        raise ValueError("Slurm does not answer here (scontrol show config); launch on a login node, or --on local")
    snapshot = Snapshot()
    live = {name: job for name in snapshot.latest if (job := snapshot.job_in_slurm(name))}
    at_work = _makers_in_queue(snapshot, live)
    left = [task for task in tasks if task.item.kind == "run" or not live.keys() & {task.name, whole_of(task.name)}]
    batches = batches_of(after_makers(left, at_work), max_array_size=size, num_at_once=profile.num_at_once or size)
    launch = Launch(profile, sweep, known=live)
    launch.submit(batches, progress)
    return launch.submitted


def _makers_in_queue(snapshot: Snapshot, live: Iterable[str]) -> dict[str, str]:
    """Return, for each training that runs in the queue need, the first that needs it: training → run."""
    runs = {name: snapshot.latest[name].runs.get(name) for name in live}
    known = [(name, Run(**fields)) for name, fields in runs.items() if fields]
    return {training: name for name, run in reversed(known) for training in missing_trainings(run)}


@contextmanager
def launching(progress: Progress) -> Iterator[None]:
    """Let one launcher at a time look and submit."""
    said = False
    folder = sweeps_folder() / ".launching"
    while (lease := acquire(folder)) is None:
        if not said:
            progress(f"waiting for another launcher: {look(folder)}")
            said = True
        time.sleep(0.5)
    with lease:
        yield


def _chosen_tasks(
    runs: Sequence[Run], profile: Profile, options: LaunchOptions, *, code: dict[str, object], progress: Progress
) -> list[Task]:
    snapshot = Snapshot()
    found = {run: snapshot.status_of(run) for run in dict.fromkeys(runs)}
    chosen = [run for run, status in found.items() if status.may_launch(profile.on, retry=options.retry)][
        : options.limit
    ]
    left = len([1 for status in found.values() if status.state in ("failed", "cancelled")])
    asked = f"{counted(len(found), 'run')} asked for, {len(chosen)} to start"
    progress(asked + (f", {left} failed or cancelled" if left else ""))
    tasks = tasks_of(_possible(chosen, progress), profile, code=code, hooks=options.hooks)
    return tasks if options.retry else _without_failed_stages(tasks, progress)


def _possible(runs: Sequence[Run], progress: Progress) -> list[Run]:
    """Return the runs but those whose clusters will be refused, after days of embedding maybe; it says which."""
    refused = too_large_clusters(runs)
    for why in refused.values():
        progress(f"left out: {why}")
    return [run for run in runs if run not in refused]


def _without_failed_stages(tasks: list[Task], progress: Progress) -> list[Task]:
    blocked: dict[str, str] = {}
    for task in tasks:  # stages come before all that needs them
        last = stage_state(task.name) if task.item.kind == "stage" else None
        if last is not None and last.state in ("failed", "cancelled"):
            blocked[task.name] = f"{last.state}: {last.reason}"
        elif any(need in blocked for need in task.needs):
            blocked[task.name] = f"needs {next(need for need in task.needs if need in blocked)}"
    for name, reason in blocked.items():
        progress(f"left out: {name}, {reason} (--retry takes it up again)")
    return [task for task in tasks if task.name not in blocked]


def cancel(runs: Sequence[Run]) -> list[RunStatus]:
    """Ask every run that is running or queued not to go on; return those. A running one writes its checkpoint first."""
    snapshot = Snapshot()
    found = [(run, snapshot.status_of(run)) for run in dict.fromkeys(runs)]
    meant = [(run, status) for run, status in found if status.state == "running" or status.live_on]
    for run, _ in meant:
        item_of_run(run).cancel()
        owner = look(item_of_run(run).lease_folder)
        if owner is not None and owner.is_alive and owner.host == socket.gethostname() and not owner.note.get("job_id"):
            os.kill(owner.pid, signal.SIGTERM)
    scancel(status.job_id for _, status in meant if status.live_on == "slurm" and status.job_id)
    return [status for _, status in meant]
