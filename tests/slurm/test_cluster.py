"""On a real Slurm: stages first, interruptions survived, nothing done twice, and the disk tells the truth."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path

import pytest

from repro.records.store import read_records
from repro.spec import Run, base, grid
from repro.spec.identity import run_id
from repro.storage.lease import owners
from repro.storage.paths import CHECKOUT, get_local_records, get_sweeps_folder, home
from slurm.profiles import load_profile
from slurm.start import cancel
from slurm.states import get_run_item
from slurm.status import Snapshot, statuses, why
from slurm.sweep import read_submissions
from tests.slurm.launching import launch_runs, states, wait_until
from tests.slurm.stand_in import traced

pytestmark = [pytest.mark.slurm, pytest.mark.usefixtures("stand_in")]

PROFILE = replace(load_profile("dev-cluster"), memory_gb=0.5)
launch = partial(launch_runs, profile=PROFILE)
RUNS = grid(base("smoke", num_steps=3), seed=(0, 1, 2))
SLOW = grid(base("smoke", num_steps=40), seed=(0,))


@pytest.fixture(autouse=True)
def shared_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A home that outlives the test's processes, emptied of jobs at the end."""
    monkeypatch.setenv("STAND_IN_STEP_SECONDS", "0.25")
    yield tmp_path
    jobs = [place["job_id"].split("_")[0] for entry in read_submissions() for place in entry.jobs.values()]
    if jobs:
        subprocess.run(["scancel", *set(jobs)], check=False)


def recorded(*runs: Run) -> Callable[[], bool]:
    """Whether all are recorded, as a condition to wait for."""
    return lambda: states(*runs) == ["recorded"] * len(runs)


def begun(run: Run, times: int = 1) -> Callable[[], bool]:
    """Whether a run has begun that many times, as a condition to wait for."""
    return lambda: sum(line.startswith(f"begin {run_id(run)}") for line in traced()) >= times


def hurry() -> None:
    """Let every further step of the stand-in take no time."""
    (home() / "fast").touch()


def job_of(run: Run) -> str:
    """The number of a run's job."""
    return statuses([run])[0].job_id


def undisturbed(run: Run, monkeypatch: pytest.MonkeyPatch, home: Path) -> float:
    """The number a run gives when nobody disturbs it."""
    from tests.slurm.stand_in import execute, stages_of

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
    assert set(states(*runs)) <= {"queued", "running"}
    assert launch(*runs) == ["6 runs requested, 0 to start"]
    wait_until(recorded(*runs))
    done = traced()
    assert [done.count("build corpus"), done.count("build clusters")] == [1, 1]
    assert done.index("build clusters") < min(done.index(f"begin {run_id(run)} at 0") for run in runs[3:])
    assert sum(line.startswith("begin") for line in done) == 6
    assert [path.name for path in get_sweeps_folder().iterdir() if not path.name.startswith(".")] == ["test"]
    assert launch(*runs) == ["6 runs requested, 0 to start"]


def test_jobs_need_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SBATCH_EXPORT", "NONE")
    launch(RUNS[0])
    wait_until(recorded(RUNS[0]))


INNER = """#!/bin/bash
#SBATCH --mem-per-cpu=300
#SBATCH --output={folder}/outer-%a.log
{python} -c "import tests.slurm.stand_in_job as s, tests.slurm.test_cluster as t
s.replace_all()
print(t.launch(*t.RUNS[:2]))"
"""


@pytest.mark.parametrize("words", [["--array=5"], []], ids=["array task", "memory per core"])
def test_launch_works_inside_a_job(tmp_path: Path, words: list[str]) -> None:
    """Jobs that a job submits know their own numbers and ask for their own memory."""
    script = tmp_path / "outer.sh"
    script.write_text(INNER.format(folder=tmp_path, python=sys.executable))
    told = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    subprocess.run(["sbatch", "--wait", *words, str(script)], check=True, env=told, cwd=CHECKOUT)
    [said] = [path.read_text() for path in tmp_path.glob("outer-*.log")]
    assert "launched from inside job" in said
    wait_until(recorded(*RUNS[:2]))
    logs = [path.read_text() for path in (get_sweeps_folder() / "test/jobs").glob("*_log.out")]
    assert len(logs) == 3
    assert not [log for log in logs if "mutually exclusive" in log or "Waiting" in log]


def test_early_failure_names_its_log(tmp_path: Path) -> None:
    launch(RUNS[0], profile=replace(PROFILE, python=str(tmp_path / "no-python")))
    wait_until(lambda: states(RUNS[0]) == ["missing"])
    [status] = statuses(RUNS[:1])
    assert "stage corpus/" in status.reason and "ended before it started; see its log " in status.reason
    log = Path(status.reason.split("see its log ")[1].split(";")[0])
    assert "no-python" in log.read_text()


def test_requeued_run_resumes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    [run] = SLOW
    launch(run)
    wait_until(begun(run))
    time.sleep(1)
    subprocess.run(["scontrol", "requeue", job_of(run)], check=True)
    wait_until(lambda: states(run) == ["interrupted"])
    assert statuses([run])[0].live_on == "slurm"
    assert launch(run) == ["1 run requested, 0 to start"]
    hurry()
    wait_until(recorded(run))
    begins = [int(line.rsplit(" ", 1)[1]) for line in traced() if line.startswith("begin")]
    assert len(begins) == 2
    assert begins[1] > 0
    [record] = read_records(get_local_records())
    assert record.metrics["value"] == undisturbed(run, monkeypatch, tmp_path)


def test_time_limit_requeues_a_run() -> None:
    # Slurm looks at its clocks every half minute, so the warning comes 10 to 40 s after the start, of 45 s of work
    [run] = (replace(SLOW[0], num_steps=180),)
    launch(run, profile=replace(PROFILE, time_minutes=1, warning_seconds=50))
    wait_until(begun(run))
    wait_until(begun(run, 2), 150)
    said = Path(statuses([run])[0].log).read_text()
    assert "Requeued job" in said
    assert statuses([run])[0].num_interruptions >= 1


def test_analysis_is_interrupted_and_requeued(own_home: Path) -> None:
    own_home.mkdir()
    (own_home / "measures-long").touch()
    hurry()
    [run] = SLOW
    launch(run)
    wait_until(lambda: "measuring" in "\n".join(why(run)["last_lines"]))
    (own_home / "measures-long").unlink()
    subprocess.run(["scancel", "--signal=USR2", job_of(run)], check=True)
    wait_until(recorded(run))
    assert statuses([run])[0].num_interruptions == 1
    assert not [line for line in traced() if line.startswith("stop")], "its training had ended"


def test_requeued_too_often_has_failed() -> None:
    [run] = SLOW
    launch(run, profile=replace(PROFILE, max_requeues=0))
    wait_until(begun(run))
    subprocess.run(["scancel", "--signal=USR2", job_of(run)], check=True)
    wait_until(lambda: states(run) == ["failed"])
    assert "interrupted 1 times without progress, the limit is 0" in statuses([run])[0].reason
    assert launch(run) == ["1 run requested, 0 to start, 1 failed or cancelled (--retry restarts them)"]


@pytest.mark.parametrize("with_our_verb", [True, False])
def test_cancelled_run_waits_for_retry(with_our_verb: bool) -> None:
    [run] = SLOW
    launch(run)
    wait_until(begun(run))
    if with_our_verb:
        assert [status.state for status in cancel([run])] == ["running"]
    else:
        subprocess.run(["scancel", job_of(run)], check=True)
    wait_until(lambda: states(run) == ["cancelled"])
    assert launch(run) == ["1 run requested, 0 to start, 1 failed or cancelled (--retry restarts them)"]
    hurry()
    launch(run, retry=True)
    wait_until(recorded(run))
    assert "begin" in traced()[0] or len(owners(get_run_item(run).lease_folder)) == 2


def test_killed_job_is_launched_again() -> None:
    [run] = SLOW
    launch(run)
    wait_until(begun(run))
    os.kill(owners(get_run_item(run).lease_folder)[-1].pid, signal.SIGKILL)
    wait_until(lambda: statuses([run])[0].state == "interrupted" and not statuses([run])[0].live_on)
    assert "died without an outcome" in statuses([run])[0].reason
    hurry()
    launch(run)
    wait_until(recorded(run))


def test_failures_are_explained(tmp_path: Path) -> None:
    home = Path(os.environ["REPRO_HOME"])
    home.mkdir(parents=True)
    (home / "break-clusters").touch()
    bad, blocked = replace(RUNS[0], seed=13), replace(RUNS[0], sampler="cluster", cluster_size=8)
    launch(bad, blocked)
    wait_until(lambda: states(bad, blocked) == ["failed", "failed"])
    told = why(bad)
    assert "seed 13 brings bad luck" in told["traceback"]
    assert "seed 13 brings bad luck" in "\n".join(told["last_lines"])
    assert Path(told["script"]).read_text().startswith("#!/bin/bash")
    assert "no room for clusters" in why(blocked)["reason"]
    (home / "break-clusters").unlink()
    (home / "mended").touch()
    launch(bad, blocked, retry=True)
    wait_until(recorded(bad, blocked))


def test_concurrent_launchers_submit_once() -> None:
    code = (
        "from tests.slurm.test_cluster import RUNS, launch\nfrom tests.slurm.stand_in_job import replace_all\n"
        "import sys\nreplace_all()\n"
        "print('\\n'.join(launch(*RUNS)), file=sys.stderr)"
    )
    words = [sys.executable, "-c", code]
    both = [subprocess.Popen(words, cwd=CHECKOUT, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    said = [process.communicate(timeout=60)[1] for process in both]
    assert sorted("3 runs requested, 3 to start" in words for words in said) == [False, True], said
    wait_until(recorded(*RUNS))
    assert len(read_submissions()) == 2  # the stage, and one array
    assert sum(line.startswith("begin") for line in traced()) == 3


SCRIPT = CHECKOUT / "slurm" / "dev-cluster.sh"


@pytest.fixture(scope="module")
def started_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A second cluster on this machine, with arrays of 3. Tests may break it."""
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
    """Make Slurm's programs talk to the cluster of a folder."""
    patch.setenv("REPRO_DEV_CLUSTER", str(folder))
    patch.setenv("OMP_NUM_THREADS", "1")
    patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))


@pytest.fixture
def own_cluster(started_cluster: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Send this test to the second cluster, and return the script that controls it."""
    use_cluster(monkeypatch, started_cluster)
    return SCRIPT


def test_site_check_submits_nothing(tmp_path: Path) -> None:
    file = tmp_path / "grid.json"
    file.write_text(json.dumps([asdict(run) for run in RUNS]))
    words = [sys.executable, "-m", "repro", "launch", str(file), "--scale", "smoke", "--check-site", "--profile"]
    fits = subprocess.run([*words, "dev-cluster"], cwd=CHECKOUT, capture_output=True, text=True)
    assert fits.returncode == 0, fits.stderr
    assert all(line.startswith("ok ") and "to start at" in line for line in fits.stdout.splitlines())
    too_much = subprocess.run([*words, "one-gpu"], cwd=CHECKOUT, capture_output=True, text=True)
    assert too_much.returncode == 2
    assert "generic resource" in too_much.stdout
    assert read_submissions() == []
    assert states(*RUNS) == ["missing"] * 3


def test_cluster_has_two_nodes(own_cluster: Path, tmp_path: Path) -> None:
    told = subprocess.run(["sinfo", "--noheader", "--Node", "--format=%N %c"], capture_output=True, text=True).stdout
    cores = len(os.sched_getaffinity(0))
    assert [line.split() for line in told.splitlines()] == [["dev1", str(cores)], ["dev2", str(cores)]]
    words = ["srun", "--nodes=2", "--ntasks=2", "--mem=100", "bash", "-c", "echo $SLURMD_NODENAME of $SLURM_NNODES"]
    job = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert sorted(job.stdout.splitlines()) == ["dev1 of 2", "dev2 of 2"], job.stderr


def test_arrays_respect_the_limit(own_cluster: Path) -> None:
    runs = grid(base("smoke", num_steps=1), seed=tuple(range(8)))
    launch(*runs)
    arrays = [entry for entry in read_submissions() if entry.runs]
    assert sorted(len(entry.jobs) for entry in arrays) == [2, 3, 3]
    wait_until(recorded(*runs))
    assert sum(line.startswith("begin") for line in traced()) == 8


def test_runs_outlive_a_killed_slurmd(own_cluster: Path) -> None:
    runs = tuple(replace(run, num_steps=20) for run in RUNS)
    launch(*runs)
    wait_until(begun(runs[0]))
    subprocess.run([own_cluster, "kill-slurmd"], check=True)
    time.sleep(2)
    assert set(states(*runs)) <= {"running", "queued", "recorded"}
    subprocess.run([own_cluster, "start-slurmd"], check=True)
    wait_until(recorded(*runs), 180)
    assert sum(line.startswith("end") for line in traced()) == 3


def test_disk_replaces_silent_scheduler(monkeypatch: pytest.MonkeyPatch) -> None:
    run = replace(SLOW[0], num_steps=400)
    launch(run)
    wait_until(begun(run))
    with monkeypatch.context() as patch:
        patch.setenv("SLURM_CONF", "/nowhere/slurm.conf")
        assert Snapshot().queue is None
        assert states(run) == ["running"]
