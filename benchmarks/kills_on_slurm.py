"""Run a sweep on Slurm whose jobs are killed, cancelled and requeued until no kills remain. Used by `kills.py`.

From outside, at random moments: SIGKILL to all processes of a job, `scancel`, `scontrol requeue`, or a kill of the
launch itself. From inside: SIGKILL while a job writes a checkpoint, an array file or a record. Cancelled jobs are
launched again with --retry.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any

import slurm.launch
from benchmarks.kill_schedule import RANDOM, KillSchedule, kill_self_during, write_checkpoints_often
from repro.spec import Run
from repro.storage.paths import get_home
from slurm.launch import SubmittedJob
from slurm.profiles import Profile, load_profile
from slurm.start import LaunchOptions, start
from slurm.status import RunStatus, get_statuses

VARIABLES = ("KILLS_FOLDER", "KILLS_NUMBER", "KILLS_SEED")
"""Environment variables that hold the schedule of the kills in a job."""
KILL_METHODS = ("all processes of a job", "scancel", "requeue")
PAUSE_SECONDS = (4.0, 20.0)
"""Seconds between two kills from outside, so that jobs also reach their writes."""
MAX_SHARE_FROM_OUTSIDE = 0.5
"""Maximum share of kills from outside. The others are for moments that only a job can reach."""
MAX_LAUNCH_SECONDS, LAUNCHES_PER_KILL = 4.0, 3
MIN_RUNS_PER_LAUNCH = 5
POLL_SECONDS = 1.0


@dataclass(frozen=True)
class KilledJob(SubmittedJob):
    """A job that may be killed while it writes a file."""

    def __call__(self) -> str:
        """Execute the job. Only runs are killed from inside, and random kills come from outside."""
        folder, number, seed = (os.environ[name] for name in VARIABLES)
        KillSchedule.current = KillSchedule(Path(folder), int(number), int(seed))
        write_checkpoints_often()
        planned_kill = None if self.job.stage else KillSchedule.current.draw()
        if planned_kill is not None and planned_kill[0] != RANDOM:
            kill_self_during(*planned_kill, f"run {self.job.item.name}")
        return super().__call__()


def sweep_on_slurm(runs: tuple[Run, ...], schedule: KillSchedule) -> list[str]:
    """Launch runs and kill jobs until every run has its record and no job is left. Return failures with other causes."""
    profile, random = make_profile(schedule), Random(f"{schedule.seed}/outside/{get_home().name}")
    problems = dict[str, None]()
    next_kill = time.monotonic()
    while True:
        all_statuses = get_statuses(runs)
        unfinished = [status for status in all_statuses if status.state != "recorded"]
        problems |= dict.fromkeys(f"{status.id} failed: {status.reason}" for status in unfinished if has_failed(status))
        jobs = list_queued_jobs()
        if not unfinished and not jobs:
            return list(problems)
        idle = [status for status in unfinished if status.may_launch("slurm", retry=True)]
        if len(idle) >= MIN_RUNS_PER_LAUNCH or (idle and not jobs):
            launch(runs, profile, schedule, random)
        if may_kill_from_outside(schedule) and time.monotonic() >= next_kill:
            kill_from_outside([job for job, state in jobs.items() if state == "RUNNING"], schedule, random)
            next_kill = time.monotonic() + random.uniform(*PAUSE_SECONDS)
        time.sleep(POLL_SECONDS)


def may_kill_from_outside(schedule: KillSchedule) -> bool:
    """Return whether kills from outside remain."""
    from_outside = sum(kill.partition(",")[0] in KILL_METHODS for kill in schedule.list_kills())
    return bool(schedule.num_left) and from_outside < MAX_SHARE_FROM_OUTSIDE * schedule.num_kills


def has_failed(status: RunStatus) -> bool:
    """Return whether a run failed for a reason other than the kills of its job or its stages."""
    return status.state == "failed" and " cancelled: " not in status.reason


def make_profile(schedule: KillSchedule) -> Profile:
    """Return the profile of the development cluster, with the schedule in the environment of its jobs."""
    values = zip(VARIABLES, (schedule.folder, schedule.num_kills, schedule.seed), strict=True)
    setup = tuple(f"export {name}={value}" for name, value in values)
    return replace(load_profile("dev-cluster"), max_requeues=10**6, memory_gb=0.9, setup=setup)


def launch(runs: Sequence[Run], profile: Profile, schedule: KillSchedule, random: Random) -> None:
    """Launch from a separate process, which is sometimes killed at a random moment."""
    is_killed = random.randrange(LAUNCHES_PER_KILL) == 0
    seed = random.random()
    pid = os.fork()
    if not pid:
        if is_killed and schedule.num_left:
            schedule.kill_self_later(Random(seed), MAX_LAUNCH_SECONDS, "launch", moment="launch")
        os._exit(_launch_sweep_jobs(runs, profile))
    _, status = os.waitpid(pid, 0)
    if (code := os.waitstatus_to_exitcode(status)) > 0:
        raise SystemExit(f"a launch ended with {code}; its error is above")


def _launch_sweep_jobs(runs: Sequence[Run], profile: Profile) -> int:
    options = LaunchOptions(retry=True)
    # This process is a fork, so the replacement ends with it.
    slurm.launch.SubmittedJob = KilledJob  # type: ignore[misc]
    try:
        with (get_home() / "launches.log").open("a") as log:
            start(
                runs, profile, sweep="kills", options=options, progress=lambda line: print(line, file=log, flush=True)
            )
    except ValueError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


def kill_from_outside(running: Sequence[str], schedule: KillSchedule, random: Random) -> None:
    """Kill, cancel or requeue one of the running jobs, if there are any."""
    if not running:
        return
    job, method = random.choice(sorted(running)), random.choice(KILL_METHODS)
    if method == KILL_METHODS[0]:
        is_killed = kill_processes(job)
    else:
        command = {"scancel": ["scancel", job], "requeue": ["scontrol", "requeue", job]}[method]
        is_killed = not subprocess.run(command, capture_output=True, check=False).returncode
    if is_killed:
        schedule.record_kill(method, job)


def kill_processes(job: str) -> bool:
    """Kill every process with a job's id in its environment. Return whether there was one."""
    found_process = False
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"SLURM_JOB_ID={job}" in (folder / "environ").read_text(errors="replace").split("\0"):
                os.kill(int(folder.name), signal.SIGKILL)
                found_process = True
    return found_process


def list_queued_jobs() -> dict[str, str]:
    """Return the state of each job of this user in Slurm's queue, by job number."""
    command = ["squeue", "--me", "--array", "--noheader", "--format=%A|%T"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.split("|") for line in lines)


def check_cluster() -> None:
    """Exit with a message if Slurm does not respond or jobs of others could be hit."""
    try:
        jobs: Any = list_queued_jobs()
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f'Slurm does not respond ({error}); start one by eval "$(slurm/dev-cluster.sh up)"') from error
    if jobs:
        raise SystemExit(
            f"jobs {sorted(jobs)} are in the queue, and this benchmark kills every job there; cancel them first"
        )
