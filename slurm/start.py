"""Start the missing runs of a sweep, locally or on Slurm. Skips everything recorded, running or queued."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from repro.pipeline.corpora import check_available
from repro.planning.requirements import check_encoders
from repro.spec import Run
from repro.spec.identity import run_id
from repro.storage.lease import acquire_when_free, get_live_owner
from repro.storage.paths import get_sweeps_folder
from repro.storage.shards import find_parent_stage
from repro.text import count_noun
from slurm.job import get_run_item
from slurm.local import LocalQueue
from slurm.profiles import Profile
from slurm.scheduler import cancel as scancel
from slurm.scheduler import get_max_array_size
from slurm.status import RunStatus, Snapshot
from slurm.sweep import Task, add_run_dependencies, build_tasks, check_code

if TYPE_CHECKING:
    from slurm.launch import Batch, Launch

Progress = Callable[[str], None]
LEFT_OUT = "left out"
"""Outcome of a requested item that was not started."""


def start(
    runs: Sequence[Run], profile: Profile, *, sweep: str, progress: Progress, retry: bool = False
) -> dict[str, str]:
    """Start missing runs, with `retry` also failed ones.

    Return the outcome of each item (local) or its job (Slurm). Requested items that are not started, because they failed
    before or have an unreadable record, have the outcome "left out". Raises ValueError before anything starts if data or
    encoders are missing, batches or clusters exceed the corpus, the code is uncommitted, or Slurm refuses.
    """
    check_code(runs)
    # Only one launcher at a time checks and submits.
    with acquire_when_free(
        get_sweeps_folder() / ".launching", lambda owner: progress(f"waiting for another launcher: {owner}")
    ):
        # Read under the lock, so that jobs which another launcher has just submitted are seen.
        snapshot = Snapshot()
        tasks, skipped = _select_tasks(runs, profile, snapshot, retry=retry, progress=progress)
        to_start = [task.run for task in tasks if not task.item.is_stage]
        check_available(to_start)
        check_encoders(to_start)
        outcomes = dict.fromkeys(skipped, LEFT_OUT)
        if not tasks:
            return outcomes
        if profile.on == "slurm":
            launch, batches = _prepare_slurm(tasks, profile, sweep, snapshot)
            launch.submit(batches, progress, retry=retry)
            return outcomes | launch.submitted
        queue = LocalQueue(add_run_dependencies(tasks), profile, sweep=sweep, progress=progress)
        # Only after all checks: a refused launch must keep the reason why a run failed.
        for task in tasks if retry else ():
            task.item.clear_failure()
    # The local queue runs for hours, so it starts after the lock is released.
    return outcomes | queue.run()


def scripts(runs: Sequence[Run], profile: Profile, *, sweep: str, retry: bool = False) -> Iterator[tuple[str, str]]:
    """Return the name and exact script of each batch of a launch. Starts nothing."""
    if profile.on != "slurm":
        hint = "`launch` without --dry-run starts the runs here, `plan` lists them"
        raise ValueError(f"profile {profile.name} is this machine's queue, which has no script to print; {hint}")
    check_code(runs)
    snapshot = Snapshot()
    tasks, _ = _select_tasks(runs, profile, snapshot, retry=retry, progress=lambda line: None)
    launch, batches = _prepare_slurm(tasks, profile, sweep, snapshot)
    yield from launch.scripts(batches)


def _prepare_slurm(
    tasks: Sequence[Task], profile: Profile, sweep: str, snapshot: Snapshot
) -> tuple[Launch, list[Batch]]:
    """Return the launch and its batches: all jobs except stages that are in the queue already."""
    # Imported late, because submitit is slow.
    from slurm.launch import Launch, order_batches

    size = get_max_array_size()
    if size is None:
        raise ValueError("Slurm does not respond (scontrol show config): use a login node, or no --profile")
    live_jobs = snapshot.map_slurm_jobs()
    new_tasks = [
        task
        for task in tasks
        if not task.item.is_stage or not live_jobs.keys() & {task.name, find_parent_stage(task.name)}
    ]
    batches = order_batches(
        add_run_dependencies(new_tasks), max_array_size=size, num_at_once=profile.num_at_once or size
    )
    return Launch(profile, sweep, job_ids=live_jobs), batches


def _select_tasks(
    runs: Sequence[Run], profile: Profile, snapshot: Snapshot, *, retry: bool, progress: Progress
) -> tuple[list[Task], list[str]]:
    """Return the jobs to start and the names of skipped runs, after logging the reason for each."""
    statuses = {run: snapshot.get_status(run) for run in dict.fromkeys(runs)}
    startable = ("missing", "failed") if retry else ("missing",)
    chosen = [run for run, status in statuses.items() if status.state in startable]
    # A launch never overwrites an unreadable record.
    skipped = {
        status.id: f"run {status.id}: {status.reason}" for status in statuses.values() if status.state == "unreadable"
    }
    if profile.on == "slurm" and not retry:
        # A local queue ends such runs itself.
        blocked = _find_blocked(build_tasks(chosen, profile), snapshot)
        skipped |= {name: f"run {name}: {reason}; --retry builds it again" for name, reason in blocked.items()}
        chosen = [run for run in chosen if run_id(run) not in blocked]
    message = f"{count_noun(len(statuses), 'run')} requested, {len(chosen)} to start"
    failed = [] if retry else [status.id for status in statuses.values() if status.state == "failed"]
    if failed:
        message += f", {len(failed)} failed or cancelled (--retry restarts them)"
    progress(message)
    for reason in skipped.values():
        progress(f"skipped: {reason}")
    return build_tasks(chosen, profile), [*skipped, *failed]


def _find_blocked(tasks: Sequence[Task], snapshot: Snapshot) -> dict[str, str]:
    """Return the runs that need a stage which failed and which no job in the queue builds, with the reason."""
    live_jobs = snapshot.map_slurm_jobs()
    reasons: dict[str, str] = {}
    # Every task comes after the stages that it needs.
    for task in tasks:
        last = task.item.read() if task.item.is_stage and task.name not in live_jobs else None
        failed_need = next((need for need in task.needs if need in reasons), None)
        if last is not None and last.state == "failed":
            reasons[task.name] = f"stage {task.name} failed: {last.reason}"
        elif failed_need is not None:
            reasons[task.name] = reasons[failed_need]
    return {task.name: reasons[task.name] for task in tasks if not task.item.is_stage and task.name in reasons}


def cancel(runs: Sequence[Run]) -> list[RunStatus]:
    """Cancel all queued and running runs. Return the status of each.

    A running one writes its checkpoint first. That of another user stops at its next heart-beat, or when it starts.
    Stages that no other queued run waits for are cancelled too, here on Slurm and by a local queue itself.
    """
    snapshot = Snapshot()
    statuses = [(run, snapshot.get_status(run)) for run in dict.fromkeys(runs)]
    active = [(run, status) for run, status in statuses if status.state == "running" or status.live_on]
    for run, status in active:
        item = get_run_item(run)
        # The mark comes before the signal: the stopped job reads it and reports that it was cancelled.
        item.cancel()
        owner = get_live_owner(item.lease_folder)
        # Jobs in Slurm are cancelled by the scheduler below, which also knows those that wait.
        if owner and owner.is_here and status.live_on != "slurm":
            # it has just ended, or belongs to another user
            with suppress(ProcessLookupError, PermissionError):
                os.kill(owner.pid, signal.SIGTERM)
    on_slurm = [status for _, status in active if status.live_on == "slurm"]
    scancel([status.job_id for status in on_slurm if status.job_id] + _list_orphaned_stages(on_slurm, snapshot))
    return [status for _, status in active]


def _list_orphaned_stages(cancelled: Sequence[RunStatus], snapshot: Snapshot) -> list[str]:
    """Return the queued jobs of stages and shards that only these runs wait for."""
    cancelled_ids = {status.id for status in cancelled}
    live_jobs = {name: job for name, job in snapshot.map_slurm_jobs().items() if name not in cancelled_ids}
    runs = [name for name in live_jobs if name in snapshot.latest[name].runs]
    still_needed = {need for name in runs for need in snapshot.list_dependencies(name)}
    needed = {need for name in cancelled_ids for need in snapshot.list_dependencies(name)}
    return [live_jobs[name] for name in sorted(needed - still_needed) if name in live_jobs]
