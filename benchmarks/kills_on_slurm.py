"""Run a sweep on Slurm whose jobs are killed, cancelled and requeued until no kills remain. Used by `kills.py`.

From outside, at random moments: SIGKILL to every process of a job, `scancel`, `scontrol requeue`, or a kill of the
launch itself. From inside, because the jobs use this module's `execute`: during the write of a checkpoint, arrays or a
record. Jobs that leave the queue are launched again with --retry, as after a mistaken cancellation.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from fates import RANDOM, Fates, await_moment, write_checkpoints_often

from repro.execute import execute as carry_out
from repro.records.store import Record
from repro.spec import Run
from repro.storage.paths import home
from slurm.hooks import Hooks
from slurm.profiles import Profile, load_profile
from slurm.start import LaunchOptions, start
from slurm.status import RunStatus, statuses

SETTINGS = ("KILLS_FOLDER", "KILLS_NUMBER", "KILLS_SEED")
WAYS = ("all processes of a job", "scancel", "requeue")
PAUSE_SECONDS = (4.0, 20.0)
"""Seconds between two kills from outside, so that jobs also reach their writes."""
MOST_FROM_OUTSIDE = 0.5
"""Maximum share of kills from outside. The others are for moments that only a job can reach."""
MOST_SECONDS_OF_A_LAUNCH, LAUNCHES_A_KILL = 4.0, 3
ENOUGH_TO_LAUNCH = 5
LOOK_SECONDS = 1.0


def execute(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> Record:
    """Execute a run in a job that may be killed during a write."""
    folder, number, seed = (os.environ[name] for name in SETTINGS)
    Fates.current = Fates(Path(folder), int(number), int(seed))
    write_checkpoints_often()
    drawn = Fates.current.draw()
    if drawn is not None and drawn[0] != RANDOM:  # random kills come from outside
        await_moment(*drawn, f"run {run.architecture} {run.seed}")
    return carry_out(run, should_stop=should_stop, progress=progress)


def sweep_on_slurm(runs: tuple[Run, ...], fates: Fates) -> list[str]:
    """Launch and disturb until every run has its record and no job is left. Return failures with another cause."""
    profile, random, problems = make_profile(fates), Random(f"{fates.seed}/outside/{home().name}"), dict[str, None]()
    next_kill = time.monotonic()
    while True:
        found = statuses(runs)
        left = [one for one in found if one.state != "recorded"]
        problems |= dict.fromkeys(f"{one.id} failed: {one.reason}" for one in left if has_failed(one))
        jobs = list_queued_jobs()
        if not left and not jobs:
            return list(problems)
        idle = [one for one in left if one.may_launch("slurm", retry=True)]
        if len(idle) >= ENOUGH_TO_LAUNCH or (idle and not jobs):
            launch(runs, profile, fates, random)
        if may_disturb(fates) and time.monotonic() >= next_kill:
            disturb([job for job, state in jobs.items() if state == "RUNNING"], fates, random)
            next_kill = time.monotonic() + random.uniform(*PAUSE_SECONDS)
        time.sleep(LOOK_SECONDS)


def may_disturb(fates: Fates) -> bool:
    """Return whether kills from outside remain."""
    from_outside = sum(hit.partition(",")[0] in WAYS for hit in fates.hits())
    return bool(fates.num_left) and from_outside < MOST_FROM_OUTSIDE * fates.num_kills


def has_failed(status: RunStatus) -> bool:
    """Return whether a run failed for a reason other than the kills of its job or its stages."""
    return status.state == "failed" and " cancelled: " not in status.reason


def make_profile(fates: Fates) -> Profile:
    """Return the profile of the development cluster, with the settings that the jobs of this benchmark need."""
    told = zip(SETTINGS, (fates.folder, fates.num_kills, fates.seed), strict=True)
    lines = [
        f"export PYTHONPATH={Path(__file__).parent}:$PYTHONPATH",
        *(f"export {name}={value}" for name, value in told),
    ]
    return replace(load_profile("dev-cluster"), max_requeues=10**6, memory_gb=0.9, setup=tuple(lines))


def launch(runs: Sequence[Run], profile: Profile, fates: Fates, random: Random) -> None:
    """Launch from a separate process, which is sometimes killed at a random moment."""
    is_hit, seed = not random.randrange(LAUNCHES_A_KILL), random.random()
    pid = os.fork()
    if not pid:
        if is_hit and fates.num_left:
            fates.kill_me_later(Random(seed), MOST_SECONDS_OF_A_LAUNCH, "launch", moment="launch")
        os._exit(_launch_sweep_jobs(runs, profile))
    _, status = os.waitpid(pid, 0)
    if (code := os.waitstatus_to_exitcode(status)) > 0:
        raise SystemExit(f"a launch ended with {code}; see what is above")


def _launch_sweep_jobs(runs: Sequence[Run], profile: Profile) -> int:
    options = LaunchOptions(retry=True, hooks=Hooks(execute="kills_on_slurm:execute"))
    try:
        with (home() / "launches.log").open("a") as log:
            start(
                runs, profile, sweep="kills", options=options, progress=lambda line: print(line, file=log, flush=True)
            )
    except ValueError as error:
        print(error, file=sys.stderr, flush=True)
        return 1
    return 0


def disturb(running: Sequence[str], fates: Fates, random: Random) -> None:
    """Disturb one of the running jobs, if there are any."""
    if not running:
        return
    job, way = random.choice(sorted(running)), random.choice(WAYS)
    if way == WAYS[0]:
        was_hit = kill_processes(job)
    else:
        words = {"scancel": ["scancel", job], "requeue": ["scontrol", "requeue", job]}[way]
        was_hit = not subprocess.run(words, capture_output=True, check=False).returncode
    if was_hit:
        fates.note(way, job)


def kill_processes(job: str) -> bool:
    """Kill every process with a job's number in its environment. Return whether there was one."""
    hit = False
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"SLURM_JOB_ID={job}" in (folder / "environ").read_text(errors="replace").split("\0"):
                os.kill(int(folder.name), signal.SIGKILL)
                hit = True
    return hit


def list_queued_jobs() -> dict[str, str]:
    """Return the state of each job of this user in Slurm's queue, by job number."""
    words = ["squeue", "--me", "--array", "--noheader", "--format=%A|%T"]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.split("|") for line in lines)


def check_cluster() -> None:
    """Exit with a message if Slurm does not respond or jobs of others could be hit."""
    try:
        jobs: Any = list_queued_jobs()
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f'no Slurm answers ({error}); eval "$(slurm/dev-cluster.sh up)"') from error
    if jobs:
        raise SystemExit(f"jobs {sorted(jobs)} are in the queue, and every job there is disturbed; cancel them first")
