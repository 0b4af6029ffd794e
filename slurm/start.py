"""Start what is missing of a sweep, here or on Slurm, and nothing that is already recorded, running or queued."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from repro.pipeline.corpora import check_available
from repro.planning.clusters import too_large_clusters
from repro.planning.requirements import check_encoders
from repro.records.store import split_recorded
from repro.spec import Run, run_of_fields
from repro.spec.identity import run_id
from repro.spec.values import count_noun
from repro.storage.lease import Owner, acquire, look
from repro.storage.paths import get_local_records, get_sweeps_folder
from repro.storage.shards import find_parent_stage
from slurm.batches import order_batches
from slurm.hooks import Hooks
from slurm.local import run_locally
from slurm.profiles import Profile
from slurm.scheduler import Verdict, get_max_array_size, try_script
from slurm.scheduler import cancel as scancel
from slurm.states import item_of_run
from slurm.status import RunStatus, Snapshot, stage_state
from slurm.sweep import Task, after_makers, build_tasks, check_code, run_in
from slurm.trainings import missing_trainings

Progress = Callable[[str], None]
ARRAY_SIZE_WHEN_SILENT = 1000
LEFT_OUT = "left out"
"""How an item ended that was asked for and not started."""


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
    """Start what is missing; return how each item ended (local) or which job does it (Slurm), and what was left out.

    What was asked for and is not started, having failed before or being impossible, is "left out", on either.
    ValueError before anything is started: data or encoders that are not here, uncommitted code, a refused submission.
    """
    code = check_code(runs, allow_dirty=options.allow_dirty)
    with hold_launch_lock(progress):
        tasks, left_out = _select_tasks(runs, profile, options, code=code, progress=progress)
        to_start = [run_of_fields(task.job.run) for task in tasks if task.item.kind == "run"]
        check_available(to_start)
        check_encoders(to_start)
        ended = dict.fromkeys(left_out, LEFT_OUT)
        if options.retry:
            for task in tasks:
                _forgive(task)
        if profile.on == "slurm" and tasks:
            return ended | _start_on_slurm(tasks, profile, sweep, progress)
    return ended | (run_locally(tasks, profile, sweep=sweep, progress=progress) if tasks else {})


def _forgive(task: Task) -> None:
    last = task.item.read()
    if task.item.is_cancelled or (last is not None and last.state in ("failed", "cancelled")):
        task.item.forget()


def scripts(runs: Sequence[Run], profile: Profile, *, sweep: str, options: LaunchOptions) -> Iterator[tuple[str, str]]:
    """Return each batch of a launch and the exact script of it; starts nothing."""
    if profile.on != "slurm":
        raise ValueError(
            f"profile {profile.name} is this machine's queue, which has no script to print; `launch` without --dry-run "
            "starts the runs here, and `run --dry-run` shows which they are"
        )
    code = check_code(runs, allow_dirty=options.allow_dirty)
    tasks, _ = _select_tasks(runs, profile, options, code=code, progress=lambda line: None)
    yield from _scripts_of(tasks, profile, sweep)


def _scripts_of(tasks: Sequence[Task], profile: Profile, sweep: str) -> Iterator[tuple[str, str]]:
    from slurm.launch import Launch

    size = get_max_array_size() or ARRAY_SIZE_WHEN_SILENT
    batches = order_batches(after_makers(tasks, {}), max_array_size=size, num_at_once=profile.num_at_once or size)
    yield from Launch(profile, sweep).scripts(batches)


def check_site(
    runs: Sequence[Run], profile: Profile, *, sweep: str, options: LaunchOptions
) -> Iterator[tuple[str, Verdict]]:
    """Return each batch of a launch and what Slurm says of its script; submits nothing.

    Runs that wait in a queue already, and recorded ones if there are no others, are checked like any other.
    """
    if profile.on != "slurm":
        raise ValueError(f"profile {profile.name} is this machine's queue: there is no site to check")
    unique = list(dict.fromkeys(runs))
    wanted = (split_recorded(unique, [get_local_records()])[1] or unique)[: options.limit]
    tasks = build_tasks(wanted, profile, code=check_code(runs, allow_dirty=options.allow_dirty), hooks=options.hooks)
    for name, script in _scripts_of(tasks, profile, sweep):
        yield name, try_script(script)


def _start_on_slurm(tasks: list[Task], profile: Profile, sweep: str, progress: Progress) -> dict[str, str]:
    from slurm.launch import Launch

    size = get_max_array_size()
    if size is None:
        raise ValueError("Slurm does not answer here (scontrol show config); launch on a login node, or --on local")
    snapshot = Snapshot()
    live = {name: job for name in snapshot.latest if (job := snapshot.job_in_slurm(name))}
    at_work = _makers_in_queue(snapshot, live)
    left = [
        task for task in tasks if task.item.kind == "run" or not live.keys() & {task.name, find_parent_stage(task.name)}
    ]
    batches = order_batches(after_makers(left, at_work), max_array_size=size, num_at_once=profile.num_at_once or size)
    launch = Launch(profile, sweep, known=live)
    launch.submit(batches, progress)
    return launch.submitted


def _makers_in_queue(snapshot: Snapshot, live: Iterable[str]) -> dict[str, str]:
    """Return, for each training that runs in the queue need, the first that needs it: training → run."""
    known = [(name, run) for name in live if (run := run_in(snapshot.latest[name], name))]
    return {training: name for name, run in reversed(known) for training in missing_trainings(run)}


@contextmanager
def hold_launch_lock(progress: Progress) -> Iterator[None]:
    """Let one launcher at a time look and submit."""
    said = False
    folder = get_sweeps_folder() / ".launching"
    while (lease := acquire(folder)) is None:
        if not said:
            progress(f"waiting for another launcher: {look(folder)}")
            said = True
        time.sleep(0.5)
    with lease:
        yield


def _select_tasks(
    runs: Sequence[Run], profile: Profile, options: LaunchOptions, *, code: dict[str, object], progress: Progress
) -> tuple[list[Task], list[str]]:
    """Return the jobs to start, and the names of what is asked for and left out; it says which, and why."""
    snapshot = Snapshot()
    found = {run: snapshot.get_status(run) for run in dict.fromkeys(runs)}
    missing = [run for run, status in found.items() if status.may_launch(profile.on, retry=options.retry)]
    left_out = _unreadable(found.values()) | _impossible(missing)
    chosen = [run for run in missing if run_id(run) not in left_out][: options.limit]
    stopped = [] if options.retry else [one.id for one in found.values() if one.state in ("failed", "cancelled")]
    asked = f"{count_noun(len(found), 'run')} asked for, {len(chosen)} to start"
    progress(asked + (f", {len(stopped)} failed or cancelled (--retry takes them up again)" if stopped else ""))
    tasks = build_tasks(chosen, profile, code=code, hooks=options.hooks)
    left_out |= {} if options.retry else _with_failed_stages(tasks)
    for why in left_out.values():
        progress(f"left out: {why}")
    return [task for task in tasks if task.name not in left_out], [*left_out, *stopped]


def _unreadable(found: Iterable[RunStatus]) -> dict[str, str]:
    """Return the runs whose record cannot be read, each with the reason: another must not take its place unasked."""
    return {status.id: f"run {status.id}: {status.reason}" for status in found if status.state == "unreadable"}


def _impossible(runs: Sequence[Run]) -> dict[str, str]:
    """Return the runs whose clusters will be refused, after days of embedding maybe, each with the reason."""
    return {run_id(run): why for run, why in too_large_clusters(runs).items()}


def _with_failed_stages(tasks: list[Task]) -> dict[str, str]:
    """Return the jobs that failed stages are in the way of, and these, each with the reason."""
    blocked: dict[str, str] = {}
    for task in tasks:  # stages come before all that needs them
        last = stage_state(task.name) if task.item.kind == "stage" else None
        if last is not None and last.state in ("failed", "cancelled"):
            blocked[task.name] = f"{task.name}, {last.state}: {last.reason} (--retry takes it up again)"
        elif any(need in blocked for need in task.needs):
            blocked[task.name] = f"{task.name}, needs {next(need for need in task.needs if need in blocked)}"
    return blocked


def cancel(runs: Sequence[Run]) -> list[RunStatus]:
    """Ask every run that is running or queued not to go on; return those. A running one writes its checkpoint first.

    Of the stages that they wait for on Slurm, those go that no other run in its queue waits for.
    """
    snapshot = Snapshot()
    found = [(run, snapshot.get_status(run)) for run in dict.fromkeys(runs)]
    meant = [(run, status) for run, status in found if status.state == "running" or status.live_on]
    for run, _ in meant:
        item_of_run(run).cancel()
        owner = look(item_of_run(run).lease_folder)
        if owner is not None and owner.is_alive and not owner.note.get("job_id") and _is_here(owner, run):
            os.kill(owner.pid, signal.SIGTERM)
    on_slurm = [status for _, status in meant if status.live_on == "slurm"]
    scancel([status.job_id for status in on_slurm if status.job_id] + _stages_of_none_but(on_slurm, snapshot))
    return [status for _, status in meant]


def _is_here(owner: Owner, run: Run) -> bool:
    """Return whether the process of the owner's number holds that owner's file open, as an owner does to its end.

    In another container of our host's name the number is that of a stranger here.
    """
    file = item_of_run(run).lease_folder / f"{owner.number:06d}.json"
    try:
        return any(one.exists() and one.samefile(file) for one in Path(f"/proc/{owner.pid}/fd").iterdir())
    except OSError:  # gone, of another user, or no Linux: it notices at its next heart-beat
        return False


def _stages_of_none_but(cancelled: Sequence[RunStatus], snapshot: Snapshot) -> list[str]:
    """Return the jobs in Slurm's queue of stages, and shards, that runs wait for, and no run but these."""
    gone = {status.id for status in cancelled}
    live = {name: job for name in snapshot.latest if name not in gone and (job := snapshot.job_in_slurm(name))}
    kept = {need for name in live if name in snapshot.latest[name].runs for need in snapshot.list_dependencies(name)}
    asked = {need for name in gone for need in snapshot.list_dependencies(name)}
    return [live[name] for name in sorted(asked - kept) if name in live]
