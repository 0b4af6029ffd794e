"""Launches on a real Slurm: stages come first, interrupted runs resume, nothing is done twice."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from repro.records.store import read_records
from repro.spec import Run, base, grid
from repro.spec.identity import run_id
from repro.storage.lease import owners
from repro.storage.paths import CHECKOUT, get_local_records, get_sweeps_folder
from slurm.profiles import load_profile
from slurm.start import cancel
from slurm.states import get_run_item
from slurm.status import Snapshot, statuses, why
from slurm.sweep import read_submissions
from tests.slurm.launching import get_states, launch_runs, wait_until
from tests.slurm.stand_in import clear_flag, execute, read_trace, set_flag, stages_of

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("stand_in")]

PROFILE = replace(load_profile("dev-cluster"), memory_gb=0.5)
launch = partial(launch_runs, profile=PROFILE)
RUNS = grid(base("smoke", num_steps=3), seed=(0, 1, 2))
SLOW = base("smoke", num_steps=40)


@pytest.fixture(autouse=True)
def cancel_jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Slow the stand-in down, and cancel all jobs at the end."""
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.25")
    yield
    jobs = [location["job_id"].split("_")[0] for entry in read_submissions() for location in entry.jobs.values()]
    if jobs:
        subprocess.run(["scancel", *set(jobs)], check=False)


def wait_for_records(*runs: Run, seconds: float = 120) -> None:
    """Wait until all runs are recorded."""
    wait_until(lambda: get_states(*runs) == ["recorded"] * len(runs), seconds)


def wait_for_begin(run: Run, times: int = 1, seconds: float = 120) -> None:
    """Wait until a run has begun, or has begun again."""
    wait_until(lambda: sum(line.startswith(f"begin {run_id(run)}") for line in read_trace()) >= times, seconds)


def send_warning(run: Run) -> None:
    """Send the signal by which Slurm announces the time limit of a job."""
    subprocess.run(["scancel", "--signal=USR2", statuses([run])[0].job_id], check=True)


def compute_undisturbed_value(run: Run, monkeypatch: pytest.MonkeyPatch, home: Path) -> float:
    """Return the metric of a run that is not interrupted."""
    monkeypatch.setenv("REPRO_HOME", str(home / "undisturbed"))
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0")
    (home / "undisturbed").mkdir()
    for stage in stages_of(run):
        stage.build()
    get_run_item(run).folder.mkdir(parents=True)
    return execute(run, should_stop=lambda: False, progress=print).metrics["value"]


def test_array_waits_for_its_stages() -> None:
    runs = (*RUNS, *(replace(run, sampler="cluster", cluster_size=8) for run in RUNS))
    launch(*runs)
    assert set(get_states(*runs)) <= {"queued", "running"}
    assert launch(*runs) == ["6 runs requested, 0 to start"]
    wait_for_records(*runs)
    done = read_trace()
    assert [done.count("build corpus"), done.count("build clusters")] == [1, 1]
    assert done.index("build clusters") < min(done.index(f"begin {run_id(run)} at 0") for run in runs[3:])
    assert sum(line.startswith("begin") for line in done) == 6
    assert [path.name for path in get_sweeps_folder().iterdir() if not path.name.startswith(".")] == ["test"]
    assert launch(*runs) == ["6 runs requested, 0 to start"]


def test_jobs_need_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_EXPORT", "NONE")
    launch(RUNS[0])
    wait_for_records(RUNS[0])


INNER = """#!/bin/bash
#SBATCH --mem-per-cpu=300
#SBATCH --output={folder}/outer-%a.log
{python} -c "import tests.slurm.stand_in_job as s, tests.slurm.test_cluster as t
s.replace_all()
print(t.launch(*t.RUNS[:2]))"
"""


@pytest.mark.parametrize("words", [["--array=5"], []], ids=["array task", "memory per core"])
def test_launch_works_inside_a_job(tmp_path: Path, words: list[str]) -> None:
    """Jobs that a job submits have array numbers and memory of their own."""
    script = tmp_path / "outer.sh"
    script.write_text(INNER.format(folder=tmp_path, python=sys.executable))
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    subprocess.run(["sbatch", "--wait", *words, str(script)], check=True, env=env, cwd=CHECKOUT)
    [output] = [path.read_text() for path in tmp_path.glob("outer-*.log")]
    assert "launched from inside job" in output
    wait_for_records(*RUNS[:2])
    logs = [path.read_text() for path in (get_sweeps_folder() / "test/jobs").glob("*_log.out")]
    assert len(logs) == 3
    assert not [log for log in logs if "mutually exclusive" in log or "Waiting" in log]


def test_early_failure_names_its_log(tmp_path: Path) -> None:
    launch(RUNS[0], profile=replace(PROFILE, python=str(tmp_path / "no-python")))
    wait_until(lambda: get_states(RUNS[0]) == ["missing"])
    [status] = statuses(RUNS[:1])
    assert "stage corpus/" in status.reason and "ended before it started; see its log " in status.reason
    log = Path(status.reason.split("see its log ")[1].split(";")[0])
    assert "no-python" in log.read_text()


def test_requeued_run_resumes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    launch(SLOW)
    wait_for_begin(SLOW)
    time.sleep(1)
    subprocess.run(["scontrol", "requeue", statuses([SLOW])[0].job_id], check=True)
    wait_until(lambda: get_states(SLOW) == ["interrupted"])
    assert statuses([SLOW])[0].live_on == "slurm"
    assert launch(SLOW) == ["1 run requested, 0 to start"]
    set_flag("fast")
    wait_for_records(SLOW)
    begins = [int(line.rsplit(" ", 1)[1]) for line in read_trace() if line.startswith("begin")]
    assert len(begins) == 2 and begins[1] > 0
    [record] = read_records(get_local_records())
    assert record.metrics["value"] == compute_undisturbed_value(SLOW, monkeypatch, tmp_path)


def test_time_limit_requeues_a_run() -> None:
    # Slurm checks time limits every 30 s, so the warning comes 10 to 40 s after the start. The work takes 45 s.
    run = replace(SLOW, num_steps=180)
    launch(run, profile=replace(PROFILE, time_minutes=1, warning_seconds=50))
    wait_for_begin(run, times=2, seconds=240)
    [status] = statuses([run])
    assert "Requeued job" in Path(status.log).read_text() and status.num_interruptions >= 1


def test_interrupted_analysis_is_requeued() -> None:
    set_flag("measures-long")
    set_flag("fast")
    launch(SLOW)
    wait_until(lambda: "measuring" in "\n".join(why(SLOW)["last_lines"]))
    clear_flag("measures-long")
    send_warning(SLOW)
    wait_for_records(SLOW)
    assert statuses([SLOW])[0].num_interruptions == 1
    assert not [line for line in read_trace() if line.startswith("stop")], "training had ended before the signal"


def test_requeued_too_often_has_failed() -> None:
    launch(SLOW, profile=replace(PROFILE, max_requeues=0))
    wait_for_begin(SLOW)
    send_warning(SLOW)
    wait_until(lambda: get_states(SLOW) == ["failed"])
    assert "interrupted 1 times without progress, the limit is 0" in statuses([SLOW])[0].reason
    assert launch(SLOW) == ["1 run requested, 0 to start, 1 failed or cancelled (--retry restarts them)"]


@pytest.mark.parametrize("by_repro", [True, False])
def test_cancelled_run_waits_for_retry(by_repro: bool) -> None:
    launch(SLOW)
    wait_for_begin(SLOW)
    if by_repro:
        assert [status.state for status in cancel([SLOW])] == ["running"]
    else:
        subprocess.run(["scancel", statuses([SLOW])[0].job_id], check=True)
    wait_until(lambda: get_states(SLOW) == ["cancelled"])
    assert launch(SLOW) == ["1 run requested, 0 to start, 1 failed or cancelled (--retry restarts them)"]
    set_flag("fast")
    launch(SLOW, retry=True)
    wait_for_records(SLOW)
    assert "begin" in read_trace()[0] or len(owners(get_run_item(SLOW).lease_folder)) == 2


def test_killed_job_is_launched_again() -> None:
    launch(SLOW)
    wait_for_begin(SLOW)
    os.kill(owners(get_run_item(SLOW).lease_folder)[-1].pid, signal.SIGKILL)
    wait_until(lambda: statuses([SLOW])[0].state == "interrupted" and not statuses([SLOW])[0].live_on)
    assert "died without an outcome" in statuses([SLOW])[0].reason
    set_flag("fast")
    launch(SLOW)
    wait_for_records(SLOW)


def test_failures_are_explained() -> None:
    set_flag("break-clusters")
    bad, blocked = replace(RUNS[0], seed=13), replace(RUNS[0], sampler="cluster", cluster_size=8)
    launch(bad, blocked)
    wait_until(lambda: get_states(bad, blocked) == ["failed", "failed"])
    explanation = why(bad)
    for text in (explanation["traceback"], "\n".join(explanation["last_lines"])):
        assert "seed 13 brings bad luck" in text
    assert Path(explanation["script"]).read_text().startswith("#!/bin/bash")
    assert "no room for clusters" in why(blocked)["reason"]
    clear_flag("break-clusters")
    set_flag("mended")
    launch(bad, blocked, retry=True)
    wait_for_records(bad, blocked)


def test_concurrent_launchers_submit_once() -> None:
    code = (
        "from tests.slurm.test_cluster import RUNS, launch\nfrom tests.slurm.stand_in_job import replace_all\n"
        "import sys\nreplace_all()\n"
        "print('\\n'.join(launch(*RUNS)), file=sys.stderr)"
    )
    command = [sys.executable, "-c", code]
    launchers = [subprocess.Popen(command, cwd=CHECKOUT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=60)[1] for process in launchers]
    assert sorted("3 runs requested, 3 to start" in output for output in outputs) == [False, True], outputs
    wait_for_records(*RUNS)
    assert len(read_submissions()) == 2  # the stage, and one array
    assert sum(line.startswith("begin") for line in read_trace()) == 3


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


def test_site_check_submits_nothing(tmp_path: Path) -> None:
    file = tmp_path / "grid.json"
    file.write_text(json.dumps([asdict(run) for run in RUNS]))
    command = [sys.executable, "-m", "repro", "launch", str(file), "--scale", "smoke", "--check-site", "--profile"]
    fits = subprocess.run([*command, "dev-cluster"], cwd=CHECKOUT, capture_output=True, text=True)
    assert fits.returncode == 0, fits.stderr
    assert all(line.startswith("ok ") and "to start at" in line for line in fits.stdout.splitlines())
    too_much = subprocess.run([*command, "one-gpu"], cwd=CHECKOUT, capture_output=True, text=True)
    assert too_much.returncode == 2 and "generic resource" in too_much.stdout
    assert read_submissions() == [] and get_states(*RUNS) == ["missing"] * 3


def test_cluster_has_two_nodes(own_cluster: Path, tmp_path: Path) -> None:
    info = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%N %c"], capture_output=True, text=True).stdout
    cores = len(os.sched_getaffinity(0))
    assert [line.split() for line in info.splitlines()] == [["dev1", str(cores)], ["dev2", str(cores)]]
    command = ["srun", "--nodes=2", "--ntasks=2", "--mem=100", "bash", "-c", "echo $SLURMD_NODENAME of $SLURM_NNODES"]
    job = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert sorted(job.stdout.splitlines()) == ["dev1 of 2", "dev2 of 2"], job.stderr


def test_arrays_respect_the_limit(own_cluster: Path) -> None:
    runs = grid(base("smoke", num_steps=1), seed=tuple(range(8)))
    launch(*runs)
    arrays = [entry for entry in read_submissions() if entry.runs]
    assert sorted(len(entry.jobs) for entry in arrays) == [2, 3, 3]
    wait_for_records(*runs)
    assert sum(line.startswith("begin") for line in read_trace()) == 8


def test_runs_outlive_a_killed_slurmd(own_cluster: Path) -> None:
    runs = tuple(replace(run, num_steps=20) for run in RUNS)
    launch(*runs)
    wait_for_begin(runs[0])
    subprocess.run([own_cluster, "kill-slurmd"], check=True)
    time.sleep(2)
    assert set(get_states(*runs)) <= {"running", "queued", "recorded"}
    subprocess.run([own_cluster, "start-slurmd"], check=True)
    wait_for_records(*runs, seconds=180)
    assert sum(line.startswith("end") for line in read_trace()) == 3


def test_disk_replaces_silent_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(SLOW, num_steps=400)
    launch(run)
    wait_for_begin(run)
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
        assert Snapshot().queue is None
        assert get_states(run) == ["running"]
