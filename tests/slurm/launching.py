"""Launch runs of the stand-in, and wait for their states."""

import json
import subprocess
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

import pytest

from repro.spec import Run, run_from_fields
from slurm.job import JobState, get_run_item
from slurm.profiles import Profile
from slurm.scheduler import fetch_queue
from slurm.start import start
from slurm.status import explain_run, get_statuses
from slurm.sweep import read_submissions
from tests.slurm.stand_in import read_trace


def launch_runs(*runs: Run, profile: Profile, retry: bool = False) -> list[str]:
    """Launch in this process, and return the lines of progress."""
    lines: list[str] = []
    start(runs, profile, sweep="test", retry=retry, progress=lines.append)
    return lines


def write_runs(folder: Path, *runs: Run) -> str:
    """Write a file of runs, and return its path."""
    path = folder / "grid.json"
    path.write_text(json.dumps([asdict(run) for run in runs]))
    return str(path)


def get_states(*runs: Run) -> list[str]:
    """Return the state of each run."""
    return [status.state for status in get_statuses(runs)]


def read_state(run: Run) -> JobState:
    """Return the stored state of a run's job."""
    state = get_run_item(run).read()
    assert state is not None
    return state


def wait_until(condition: Callable[[], object], seconds: float = 120) -> None:
    """Wait until a condition is true. The error shows the trace and the state of every run."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            submitted_runs = [run_from_fields(fields) for entry in read_submissions() for fields in entry.runs.values()]
            pytest.fail(f"still not true after {seconds} s: {[read_trace(), *map(explain_run, submitted_runs)]}")
        time.sleep(0.1)


def start_requeued(job_id: str) -> None:
    """Start a requeued job as soon as it waits in the queue. Slurm would wait ten seconds longer."""
    wait_until(lambda: fetch_queue([job_id])[job_id].reason == "BeginTime")
    subprocess.run(["scontrol", "update", f"JobId={job_id}", "StartTime=now"], check=True)
