"""Launches on a real Slurm: stages come first, interrupted runs resume, nothing is done twice."""

import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from repro.records.store import read_records
from repro.spec import Run, base, grid
from repro.spec.identity import run_id
from repro.storage.paths import CHECKOUT, get_local_records, get_sweeps_folder
from slurm.profiles import load_profile
from slurm.start import cancel
from slurm.status import get_statuses, read_progress
from slurm.sweep import read_submissions
from tests.slurm.launching import get_states, launch_runs, start_requeued, wait_until
from tests.slurm.stand_in import compute_undisturbed_metric, read_trace, set_flag, stages_of

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("stand_in")]

PROFILE = load_profile("dev-cluster")
launch = partial(launch_runs, profile=PROFILE)
RUNS = grid(base("smoke", num_steps=3), seed=(0, 1, 2))
SLOW = base("smoke", num_steps=1000)
"""A run that does not end before a test disturbs it. The flag `fast` lets it end."""


@pytest.fixture(autouse=True)
def cancel_jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slow the stand-in down, and cancel all jobs at the end."""
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.25")
    yield
    jobs = [location["job_id"].split("_")[0] for entry in read_submissions() for location in entry.jobs.values()]
    if jobs:
        subprocess.run(["scancel", *set(jobs)], check=False)


def launch_built(*runs: Run, **options: Any) -> list[str]:
    """Launch runs after their corpus is built, so that they start immediately."""
    stages_of(RUNS[0])[0].build()
    return launch(*runs, **options)


def wait_for_records(*runs: Run, seconds: float = 120) -> None:
    """Wait until all runs are recorded."""
    wait_until(lambda: get_states(*runs) == ["recorded"] * len(runs), seconds)


def wait_for_steps(*runs: Run) -> None:
    """Wait until each run has trained some steps."""
    wait_until(lambda: all(read_progress(run) for run in runs))


def count_begins() -> int:
    """Return how often a run has begun."""
    return sum(line.startswith("begin") for line in read_trace())


def test_array_waits_for_its_stages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs work even if the site passes no environment to them."""
    monkeypatch.setenv("SBATCH_EXPORT", "NONE")
    clustered = tuple(replace(run, sampler="cluster", cluster_size=8) for run in RUNS[:2])
    runs = (*RUNS[:2], *clustered)
    launch(*runs)
    assert set(get_states(*runs)) <= {"queued", "running"}
    assert launch(*runs) == ["4 runs requested, 0 to start"]
    wait_for_records(*runs)
    trace = read_trace()
    assert [trace.count("build corpus"), trace.count("build clusters")] == [1, 1]
    assert trace.index("build clusters") < min(trace.index(f"begin {run_id(run)} at 0") for run in clustered)
    assert count_begins() == 4
    assert [path.name for path in get_sweeps_folder().iterdir() if not path.name.startswith(".")] == ["test"]


OUTER_JOB = """#!/bin/bash
#SBATCH --array=5
#SBATCH --mem-per-cpu=300
#SBATCH --output={folder}/outer-%a.log
{python} -c "import tests.slurm.stand_in_job as s, tests.slurm.test_cluster as t
s.replace_all()
print(t.launch_built(*t.RUNS[:2]))"
"""


def test_launch_works_inside_a_job(tmp_path: Path) -> None:
    """Jobs that a job submits have array numbers and memory of their own."""
    script = tmp_path / "outer.sh"
    script.write_text(OUTER_JOB.format(folder=tmp_path, python=sys.executable))
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    subprocess.run(["sbatch", "--wait", str(script)], check=True, env=env, cwd=CHECKOUT)
    wait_for_records(*RUNS[:2])
    logs = [path.read_text() for path in (get_sweeps_folder() / "test/jobs").glob("*_log.out")]
    assert len(logs) == 2
    assert not [log for log in logs if "mutually exclusive" in log or "Waiting" in log]


def test_early_failure_names_its_log(tmp_path: Path) -> None:
    launch(RUNS[0], profile=replace(PROFILE, python=str(tmp_path / "no-python")))
    wait_until(lambda: get_states(RUNS[0]) == ["missing"])
    [status] = get_statuses(RUNS[:1])
    assert status.reason.startswith("stage corpus/")
    log = Path(status.reason.split("see its log ")[1].split(";")[0])
    assert "no-python" in log.read_text()


def test_requeued_run_resumes() -> None:
    launch_built(SLOW)
    wait_for_steps(SLOW)
    [status] = get_statuses([SLOW])
    subprocess.run(["scontrol", "requeue", status.job_id], check=True)
    wait_until(lambda: get_statuses([SLOW])[0].num_interruptions == 1)
    assert get_states(SLOW) == ["queued"]
    assert launch(SLOW) == ["1 run requested, 0 to start"]
    set_flag("fast")
    start_requeued(status.job_id)
    wait_for_records(SLOW)
    _, first_step, later_step = [int(line.split()[-1]) for line in read_trace() if line.startswith(("begin", "stop"))]
    assert later_step == first_step > 0
    [record] = read_records(get_local_records())
    assert record.metrics["value"] == compute_undisturbed_metric(SLOW)


def test_requeued_too_often_has_failed() -> None:
    launch_built(SLOW, profile=replace(PROFILE, max_requeues=0))
    wait_for_steps(SLOW)
    # The signal by which Slurm announces the time limit.
    subprocess.run(["scancel", "--signal=USR2", get_statuses([SLOW])[0].job_id], check=True)
    wait_until(lambda: get_states(SLOW) == ["failed"])
    assert "interrupted 1 times without progress, the limit is 0" in get_statuses([SLOW])[0].reason
    assert "0 to start" in launch(SLOW)[0]


def test_cancelled_runs_wait_for_retry() -> None:
    """A job that is cancelled in Slurm has only been interrupted."""
    by_repro, by_scancel = SLOW, replace(SLOW, seed=1)
    launch_built(by_repro, by_scancel)
    wait_for_steps(by_repro, by_scancel)
    assert [status.state for status in cancel([by_repro])] == ["running"]
    subprocess.run(["scancel", get_statuses([by_scancel])[0].job_id], check=True)
    wait_until(lambda: get_states(by_repro, by_scancel) == ["failed", "missing"])
    assert launch(by_repro)[0].startswith("1 run requested, 0 to start")
    set_flag("fast")
    launch(by_repro, by_scancel, retry=True)
    wait_for_records(by_repro, by_scancel)


LAUNCHER = """
from tests.slurm.stand_in_job import replace_all
from tests.slurm.test_cluster import RUNS, launch
replace_all()
print(launch(*RUNS)[0].endswith("3 to start"))
"""


def test_concurrent_launchers_submit_once() -> None:
    stages_of(RUNS[0])[0].build()
    command = [sys.executable, "-c", LAUNCHER]
    launchers = [subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[0] for process in launchers]
    assert sorted(outputs) == ["False\n", "True\n"]
    wait_for_records(*RUNS)
    assert len(read_submissions()) == 1
    assert count_begins() == 3
