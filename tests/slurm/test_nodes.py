"""A run on several nodes: same numbers as in one process, differing nodes are refused, none is left behind."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from repro.spec.identity import run_id
from repro.storage.files import write_json
from repro.storage.paths import CHECKOUT, run_folder
from repro.train.checkpoint import read_metrics
from slurm import nodes
from slurm.job import Job
from slurm.nodes import call_meeting, join_meeting, lead_nodes, make_attempt_id
from slurm.profiles import Profile, load_profile
from slurm.ranks import follow
from slurm.signals import Stop, Stopped
from slurm.start import scripts
from slurm.states import JobState, get_run_item
from slurm.status import get_statuses
from slurm.sweep import build_tasks
from tests.leases import take_lease
from tests.slurm.launching import get_states, launch_runs, start_requeued, wait_until
from tests.slurm.real_run import RUN, check_training, copy_stages

pytestmark = pytest.mark.enable_socket  # loopback only

TWO_NODES = Job(run=asdict(RUN), num_nodes=2)
HERE = JobState(state="running", job_id="77")


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make both nodes this machine, with one thread per process."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")


FOLLOWER = """
import json, sys
from slurm.ranks import follow
from slurm.signals import Stop, handle_stop_signals
stop = Stop()
with handle_stop_signals(stop):
    follow(json.loads(sys.argv[1]), stop, "77", 1)
"""


def start_second_node(job: Job) -> subprocess.Popen[str]:
    """Start the second node in another process."""
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)}
    command = [sys.executable, "-c", FOLLOWER, json.dumps(asdict(job))]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def run_first_node(job: Job, stop: Stop) -> str:
    """Run the first node in this process, as a job of Slurm does."""
    with lead_nodes(asdict(job), make_attempt_id("77")):
        return job(stop, where=HERE)


def wait_for_steps(number: int) -> None:
    """Wait until the run has trained this many steps."""
    wait_until(lambda: len(read_metrics(run_folder(run_id(RUN)))) >= number, seconds=240)


@pytest.mark.usefixtures("built_stages")
def test_two_nodes_match_one_process(trained_home: Path) -> None:
    """Two nodes train the first steps, one process the rest. Batches and losses equal those of one process."""
    stop = Stop()
    follower = start_second_node(TWO_NODES)

    def end_soon() -> None:
        wait_for_steps(3)
        stop.reason = "told to end"

    stopper = threading.Thread(target=end_soon)
    stopper.start()
    with pytest.raises(Stopped):
        run_first_node(TWO_NODES, stop)
    stopper.join()
    output = follower.communicate(timeout=60)[0]
    assert follower.returncode == 0, output
    assert 3 <= len(read_metrics(run_folder(run_id(RUN)))) < RUN.num_steps
    assert Job(run=asdict(RUN))(Stop(), where=HERE) == "done"
    check_training(trained_home)


@pytest.fixture
def held() -> Iterator[None]:
    """Hold the lease of the run, as the first node does."""
    with take_lease(get_run_item(RUN).lease_folder, note={"job_id": "77"}):
        yield


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Run functions in threads, which must have ended when the test ends."""
    with ThreadPoolExecutor() as pool:
        yield pool


@pytest.fixture
def built_stages(trained_home: Path) -> None:
    """Provide the stages of the run."""
    copy_stages(trained_home)


def show_nodes(monkeypatch: pytest.MonkeyPatch, first: dict[str, str], second: Callable[..., dict[str, str]]) -> None:
    """Set what the first node sees, which is the first thread of the pool, and what the other one sees."""

    def compute(job: Any) -> dict[str, str]:
        return first if threading.current_thread().name.endswith("_0") else second(job)

    monkeypatch.setattr(nodes, "compute_node_digests", compute)


@pytest.mark.usefixtures("held", "built_stages")
def test_differing_node_is_refused_first(monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
    job, attempt = asdict(TWO_NODES), make_attempt_id("77")
    digests = nodes.compute_node_digests(job)
    [tokens] = [name for name in digests if name.startswith("stage tokens")]
    show_nodes(monkeypatch, digests, lambda job: digests | {tokens: "0123456789abcdef"})
    meeting = pool.submit(call_meeting, job, attempt, Stop())
    second = pool.submit(join_meeting, job, 1, attempt, Stop())
    error = str(meeting.exception(60))
    assert f"has another {tokens} than the first node (0123456789ab, not {digests[tokens][:12]})" in error
    assert "node 1 (" in error
    with lead_nodes(job, attempt):
        pass
    second.exception(60)  # the second node leaves, too


@pytest.mark.usefixtures("held", "built_stages")
def test_damaged_file_names_its_node(monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
    job, attempt = asdict(TWO_NODES), make_attempt_id("77")
    show_nodes(monkeypatch, nodes.compute_node_digests(job), nodes.compute_node_digests)
    meeting = pool.submit(call_meeting, job, attempt, Stop())
    wait_until(lambda: list(run_folder(run_id(RUN)).glob("nodes/*/meeting.json")))
    [ids] = run_folder(run_id(RUN)).parents[1].glob("stages/tokens/*/query/ids.npy")
    ids.write_bytes(ids.read_bytes() + b"x")
    with pytest.raises(ValueError, match=r"ids\.npy is not the file that was made"):
        join_meeting(job, 1, attempt, Stop())
    error = str(meeting.exception(60))
    assert "node 1 (" in error and "ids.npy is not the file that was made" in error


@pytest.mark.usefixtures("held", "built_stages")
def test_failed_disk_names_its_node(monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
    job, attempt = asdict(TWO_NODES), make_attempt_id("77")

    def fail(job: Any) -> dict[str, str]:
        raise OSError("Stale file handle")

    show_nodes(monkeypatch, nodes.compute_node_digests(job), fail)
    meeting = pool.submit(call_meeting, job, attempt, Stop())
    with pytest.raises(OSError, match="Stale"):
        pool.submit(join_meeting, job, 1, attempt, Stop()).result(60)
    assert "Stale file handle" in str(meeting.exception(60))


@pytest.mark.usefixtures("held", "built_stages")
def test_node_killed_while_reading_is_named() -> None:
    job, attempt = asdict(TWO_NODES), make_attempt_id("77")
    write_json(run_folder(run_id(RUN)) / "nodes" / attempt / "node-1.json", {"host": "far"})
    with pytest.raises(ValueError, match=r"node 1 \(far\) ended while it read the stages"):
        call_meeting(job, attempt, Stop())


@pytest.mark.usefixtures("held")
def test_absent_nodes_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DEAD_AFTER_SECONDS", "0.2")
    with pytest.raises(ValueError, match=r"node 1 of 2 did not arrive within 0 s: every node must see"):
        call_meeting(asdict(TWO_NODES), "77.0", Stop())
    with pytest.raises(ValueError, match=r"node 1: no message from the first node in 0 s; do both see"):
        join_meeting(asdict(TWO_NODES), 1, "78.0", Stop())


@pytest.mark.usefixtures("held", "built_stages")
def test_slow_node_is_waited_for(monkeypatch: pytest.MonkeyPatch, pool: ThreadPoolExecutor) -> None:
    """A node that has arrived may read its files for longer than the time limit."""
    job, attempt = asdict(TWO_NODES), make_attempt_id("77")
    digests = nodes.compute_node_digests(job)

    def read_slowly(job: Any) -> dict[str, str]:
        time.sleep(4)
        return digests

    monkeypatch.setattr(nodes, "_get_timeout", lambda: 3.0)
    show_nodes(monkeypatch, digests, read_slowly)
    meeting = pool.submit(call_meeting, job, attempt, Stop())
    second = pool.submit(join_meeting, job, 1, attempt, Stop())
    assert meeting.result(60).port == second.result(60).port > 0


def test_follower_leaves_without_meeting() -> None:
    job = asdict(TWO_NODES)
    with pytest.raises(RuntimeError), lead_nodes(job, make_attempt_id("77")):
        raise RuntimeError("failed before the meeting")
    follow(job, Stop(), "77", 1)


@pytest.mark.usefixtures("stand_in")
def test_unshareable_batch_is_refused_first() -> None:
    site = Profile(name="site", num_nodes=3, processes_per_run=2)
    with pytest.raises(ValueError, match=r"a batch of 16 cannot be shared equally by 6 processes .*3 nodes, 2 on each"):
        build_tasks([replace(RUN, batch_size=16)], site, code={})
    assert build_tasks([replace(RUN, batch_size=16, batches_a_step=6)], site, code={})


@pytest.mark.usefixtures("stand_in")
def test_script_requests_nodes_for_runs() -> None:
    site = Profile(name="site", num_nodes=2, processes_per_run=2)
    *stages, runs = dict(scripts([RUN], site, sweep="test")).values()
    assert "#SBATCH --nodes=2\n" in runs and "#SBATCH --ntasks-per-node=1\n" in runs
    assert all("#SBATCH --nodes=1\n" in script for script in stages)
    with pytest.raises(ValueError, match="num_nodes=2 needs on='slurm'"):
        Profile(name="here", on="local", num_nodes=2)


@pytest.mark.slurm
@pytest.mark.usefixtures("built_stages")
def test_two_cluster_nodes_resume_together(own_home: Path, trained_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_LAUNCH_NODE_IPADDR")
    site = replace(load_profile("dev-cluster"), memory_gb=0.5, num_nodes=2, setup=("export GLOO_SOCKET_IFNAME=lo",))
    launch_runs(RUN, profile=site)
    wait_for_steps(3)
    job_id = get_statuses([RUN])[0].job_id
    subprocess.run(["scancel", "--signal=USR2", job_id], check=True)
    start_requeued(job_id)
    wait_until(lambda: get_states(RUN) == ["recorded"], seconds=300)
    assert get_statuses([RUN])[0].num_interruptions == 1
    logs = sorted(path.name.partition("_")[2] for path in (own_home / "sweeps/test/jobs").glob(f"{job_id}_*out"))
    assert logs == ["0_log.out", "1_log.out"], "each node writes a log"
    check_training(trained_home)
