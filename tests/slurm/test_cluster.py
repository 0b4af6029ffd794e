"""Launches on a real Slurm: stages come first, interrupted runs resume, nothing is done twice."""

import os
import shutil
import subprocess
import sys
import time
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
from slurm.status import explain_run, get_statuses, read_progress
from slurm.sweep import read_submissions
from tests.slurm.launching import get_states, launch_runs, start_requeued, wait_until
from tests.slurm.stand_in import clear_flag, compute_undisturbed_metric, read_trace, set_flag, stages_of

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
    assert status.reason.startswith("corpus/") and "ended before it started; see its log " in status.reason
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


def test_time_limit_requeues_an_analysis() -> None:
    """The signal before the time limit interrupts a run that is measured after its training."""
    set_flag("measures-long")
    set_flag("fast")
    # Slurm checks time limits every 30 s, so the signal comes 2 to 32 s after the start.
    launch_built(
        SLOW, profile=replace(PROFILE, parameters={**PROFILE.parameters, "timeout_min": 1, "slurm_signal_delay_s": 58})
    )
    wait_until(lambda: get_statuses([SLOW])[0].num_interruptions == 1)
    clear_flag("measures-long")
    start_requeued(get_statuses([SLOW])[0].job_id)
    wait_for_records(SLOW)
    [status] = get_statuses([SLOW])
    assert "Requeued job" in Path(status.log).read_text() and status.num_interruptions == 1
    assert not [line for line in read_trace() if line.startswith("stop")], "training had ended before the signal"


def test_requeued_too_often_has_failed() -> None:
    launch_built(SLOW, profile=replace(PROFILE, max_requeues=0))
    wait_for_steps(SLOW)
    # The signal by which Slurm announces the time limit.
    subprocess.run(["scancel", "--signal=USR2", get_statuses([SLOW])[0].job_id], check=True)
    wait_until(lambda: get_states(SLOW) == ["failed"])
    assert "interrupted 1 times without progress, the limit is 0" in get_statuses([SLOW])[0].reason
    assert "0 to start" in launch(SLOW)[0]


def test_cancelled_runs_wait_for_retry() -> None:
    by_repro, by_scancel = SLOW, replace(SLOW, seed=1)
    launch_built(by_repro, by_scancel)
    wait_for_steps(by_repro, by_scancel)
    assert [status.state for status, _ in cancel([by_repro])] == ["running"]
    subprocess.run(["scancel", get_statuses([by_scancel])[0].job_id], check=True)
    wait_until(lambda: get_states(by_repro, by_scancel) == ["failed"] * 2)
    assert "0 to start" in launch(by_repro, by_scancel)[0]
    set_flag("fast")
    launch(by_repro, by_scancel, retry=True)
    wait_for_records(by_repro, by_scancel)


def test_failures_are_explained() -> None:
    set_flag("break-clusters")
    bad, blocked = replace(RUNS[0], seed=13), replace(RUNS[0], sampler="cluster", cluster_size=8)
    launch_built(bad, blocked)
    wait_until(lambda: get_states(bad, blocked) == ["failed", "failed"])
    explanation = explain_run(bad)
    for text in (explanation["traceback"], "\n".join(explanation["last_lines"])):
        assert "seed 13 brings bad luck" in text
    assert Path(explanation["script"]).read_text().startswith("#!/bin/bash")
    assert "no room for clusters" in explain_run(blocked)["reason"]


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


SCRIPT = CHECKOUT / "slurm" / "dev-cluster.sh"


@pytest.fixture(scope="module")
def started_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Start a second cluster on this machine, with arrays of at most 3 tasks. Tests may break it."""
    if shutil.which("slurmctld") is None or os.getuid() != 0:
        pytest.skip("starting a cluster needs slurmctld here, and root")
    folder = tmp_path_factory.mktemp("cluster", numbered=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_DEV_CLUSTER_MAX_ARRAY_SIZE", "3")
        use_cluster(patch, folder)
        subprocess.run([SCRIPT, "up"], check=True, stdout=subprocess.DEVNULL)
    yield folder
    with pytest.MonkeyPatch.context() as patch:
        use_cluster(patch, folder)
        subprocess.run([SCRIPT, "down"], check=True)


def use_cluster(patch: pytest.MonkeyPatch, folder: Path) -> None:
    """Direct the commands of Slurm to the cluster of a folder."""
    patch.setenv("REPRO_DEV_CLUSTER", str(folder))
    patch.setenv("OMP_NUM_THREADS", "1")
    patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))


@pytest.fixture
def own_cluster(started_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use the second cluster, and return the script that controls it."""
    use_cluster(monkeypatch, started_cluster)
    return SCRIPT


def test_cluster_has_two_nodes(own_cluster: Path, tmp_path: Path) -> None:
    info = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%N %c"], capture_output=True, text=True).stdout
    cores = len(os.sched_getaffinity(0))
    assert [line.split() for line in info.splitlines()] == [["dev1", str(cores)], ["dev2", str(cores)]]
    command = ["srun", "--nodes=2", "--ntasks=2", "--mem=100", "bash", "-c", "echo $SLURMD_NODENAME of $SLURM_NNODES"]
    job = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert sorted(job.stdout.splitlines()) == ["dev1 of 2", "dev2 of 2"], job.stderr


def test_arrays_respect_the_limit(own_cluster: Path) -> None:
    runs = grid(base("smoke", num_steps=1), seed=(0, 1, 2, 3))
    launch_built(*runs)
    assert sorted(len(entry.jobs) for entry in read_submissions()) == [1, 3]
    wait_for_records(*runs)
    assert count_begins() == 4


def test_runs_outlive_a_killed_slurmd(own_cluster: Path) -> None:
    runs = tuple(replace(run, num_steps=20) for run in RUNS)
    launch_built(*runs)
    wait_for_steps(runs[0])
    subprocess.run([own_cluster, "kill-slurmd"], check=True)
    time.sleep(2)
    assert set(get_states(*runs)) <= {"running", "queued", "recorded"}
    subprocess.run([own_cluster, "start-slurmd"], check=True)
    wait_for_records(*runs, seconds=180)
    assert sum(line.startswith("end") for line in read_trace()) == 3
