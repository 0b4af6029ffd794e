"""A run on several nodes: the numbers of one process, nodes that differ are refused, and none is left behind."""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from repro.execute import execute
from repro.pipeline.stages import list_stages
from repro.spec import Run, base
from repro.spec.identity import run_id
from repro.storage.lease import acquire
from repro.storage.paths import CHECKOUT, run_folder
from repro.train.checkpoint import read_metrics
from slurm import nodes
from slurm.batches import order_batches
from slurm.job import Job
from slurm.launch import Launch
from slurm.nodes import call_meeting, join_meeting, lead_nodes, make_attempt_id
from slurm.profiles import Profile, load_profile
from slurm.ranks import follow
from slurm.signals import Stop, Stopped
from slurm.start import LaunchOptions, start
from slurm.states import JobState, get_run_item
from slurm.status import statuses, why
from slurm.sweep import build_tasks

pytestmark = pytest.mark.enable_socket  # loopback only

RUN = base("smoke", num_steps=6)
TWO_NODES = Job(run=asdict(RUN), num_nodes=2)
HERE = JobState(state="running", job_id="77")


@pytest.fixture(autouse=True)
def on_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Both nodes are this machine; their processes share the cores of one, and a lost one is noticed soon."""
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


def second_node(job: Job, home: Path | None = None) -> subprocess.Popen[str]:
    """The other node, in a process of its own."""
    env = os.environ | {"PYTHONPATH": str(CHECKOUT)} | ({"REPRO_HOME": str(home)} if home else {})
    words = [sys.executable, "-c", FOLLOWER, json.dumps(asdict(job))]
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def first_node(job: Job, stop: Stop) -> str:
    """The first node, in this process, as a job of Slurm does it."""
    with lead_nodes(asdict(job), make_attempt_id("77")):
        return job(stop, where=HERE)


def compared(found: list[dict], expected: list[dict]) -> None:
    """The same batches in the same order, and losses that differ by rounding."""
    assert [line["step"] for line in found] == [line["step"] for line in expected]
    assert [line["batch"] for line in found] == [line["batch"] for line in expected]
    assert [line["loss"] for line in found] == pytest.approx([line["loss"] for line in expected], rel=1e-4)


def wait_for_steps(run: Run, number: int, seconds: float = 240) -> None:
    """Wait until a training has done so many steps."""
    deadline = time.monotonic() + seconds
    while len(read_metrics(run_folder(run_id(run)))) < number:
        assert time.monotonic() < deadline, why(run)
        time.sleep(0.05)


def test_two_nodes_begin_one_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two nodes train the first steps, one process the others: the batches and losses of one process alone."""
    run = replace(RUN, num_steps=40)
    execute(run, progress=lambda line: None)
    expected = read_metrics(run_folder(run_id(run)))
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "two"))
    job, stop = Job(run=asdict(run), num_nodes=2), Stop()
    other = second_node(job)

    def end_soon() -> None:
        wait_for_steps(run, 3)
        stop.reason = "told to end"

    asking = threading.Thread(target=end_soon)
    asking.start()
    with pytest.raises(Stopped):
        first_node(job, stop)
    asking.join()
    said = other.communicate(timeout=60)[0]
    assert other.returncode == 0, said
    num_done = len(read_metrics(run_folder(run_id(run))))
    assert 3 <= num_done < 40
    assert Job(run=asdict(run))(Stop(), where=HERE) == "done"
    compared(read_metrics(run_folder(run_id(run))), expected)


@pytest.fixture
def held() -> Iterator[None]:
    """The lease of the run, as the first node has it."""
    lease = acquire(get_run_item(RUN).lease_folder, note={"job_id": "77"})
    assert lease is not None
    with lease:
        yield


def in_background(work: Callable[[], object]) -> tuple[threading.Thread, list[object]]:
    """Run something in a thread. Return the thread, and a list that its result or ValueError is added to."""
    came: list[object] = []

    def do() -> None:
        try:
            came.append(work())
        except ValueError as error:
            came.append(error)

    thread = threading.Thread(target=do)
    thread.start()
    return thread, came


def test_differing_node_is_refused_first(held: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for stage in list_stages(RUN):
        stage.build(lambda line: None)
    job, attempt = asdict(TWO_NODES), make_attempt_id("77")
    seen = nodes.compute_node_digests(job)
    [tokens] = [name for name in seen if name.startswith("stage tokens")]
    thread, came = in_background(lambda: call_meeting(job, attempt, Stop()))
    with monkeypatch.context() as patch:
        patch.setattr(nodes, "compute_node_digests", lambda job: seen | {tokens: "0123456789abcdef"})
        leaving, _ = in_background(lambda: join_meeting(job, 1, attempt, Stop()))
        thread.join(60)
    [error] = came
    assert f"has another {tokens} than the first node (0123456789ab, not {seen[tokens][:12]})" in str(error)
    assert "node 1 (" in str(error)
    with lead_nodes(job, attempt):
        pass
    leaving.join(60)
    assert not leaving.is_alive()


def test_damaged_file_names_its_node(held: None) -> None:
    for stage in list_stages(RUN):
        stage.build(lambda line: None)
    job, attempt = asdict(TWO_NODES), make_attempt_id("77")
    thread, came = in_background(lambda: call_meeting(job, attempt, Stop()))
    while not list(run_folder(run_id(RUN)).glob("nodes/*/meeting.json")):
        time.sleep(0.05)
    [ids] = run_folder(run_id(RUN)).parents[1].glob("stages/tokens/*/query/ids.npy")
    ids.write_bytes(ids.read_bytes() + b"x")
    with pytest.raises(ValueError, match=r"ids\.npy is not the file that was made"):
        join_meeting(job, 1, attempt, Stop())
    thread.join(60)
    assert "node 1 (" in str(came[0])
    assert "ids.npy is not the file that was made" in str(came[0])


def test_absent_nodes_are_named(held: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DEAD_AFTER_SECONDS", "0.2")
    with pytest.raises(ValueError, match=r"node 1 of 2 did not arrive within 0 s: every node must see"):
        call_meeting(asdict(TWO_NODES), "77.0", Stop())
    with pytest.raises(ValueError, match=r"node 1: no message from the first node within 0 s; do both see"):
        join_meeting(asdict(TWO_NODES), 1, "78.0", Stop())


def test_follower_leaves_without_meeting() -> None:
    job = asdict(TWO_NODES)
    with pytest.raises(RuntimeError), lead_nodes(job, make_attempt_id("77")):
        raise RuntimeError("it could not even begin")
    follow(job, Stop(), "77", 1)


@pytest.mark.usefixtures("stand_in")
def test_unshareable_batch_is_refused_first() -> None:
    site = Profile(name="site", num_nodes=3, processes_per_run=2)
    with pytest.raises(ValueError, match=r"a batch of 16 cannot be shared equally by 6 processes .*3 nodes, 2 on each"):
        build_tasks([replace(RUN, batch_size=16)], site, code={})
    assert build_tasks([replace(RUN, batch_size=16, batches_a_step=6)], site, code={}), "a whole one each"


@pytest.mark.usefixtures("stand_in")
def test_script_requests_nodes_for_runs() -> None:
    site = Profile(name="site", num_nodes=2, processes_per_run=2)
    tasks = build_tasks([RUN], site, code={})
    made = dict(Launch(site, "test").scripts(order_batches(tasks, max_array_size=9, num_at_once=9)))
    *stages, runs = made.values()
    assert "#SBATCH --nodes=2\n" in runs
    assert "#SBATCH --ntasks-per-node=1\n" in runs
    assert all("#SBATCH --nodes=1\n" in script for script in stages)
    with pytest.raises(ValueError, match="num_nodes=2 needs on='slurm'"):
        Profile(name="here", on="local", num_nodes=2)


@pytest.mark.slurm
def test_two_cluster_nodes_resume_together(own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_LAUNCH_NODE_IPADDR")
    run = replace(RUN, num_steps=60)
    lines: list[str] = []
    site = replace(load_profile("dev-cluster"), memory_gb=0.5, num_nodes=2, setup=("export GLOO_SOCKET_IFNAME=lo",))
    start([run], site, sweep="test", options=LaunchOptions(), progress=lines.append)
    wait_for_steps(run, 3)
    [status] = statuses([run])
    subprocess.run(["scancel", "--signal=USR2", status.job_id], check=True)
    deadline = time.monotonic() + 300
    while statuses([run])[0].state != "recorded":
        assert time.monotonic() < deadline, why(run)
        time.sleep(0.2)
    assert statuses([run])[0].num_interruptions == 1
    found = read_metrics(run_folder(run_id(run)))
    logs = sorted(path.name.partition("_")[2] for path in (own_home / "sweeps/test/jobs").glob(f"{status.job_id}_*out"))
    assert logs == ["0_log.out", "1_log.out"], "each node has a log"
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "alone"))
    execute(run, progress=lambda line: None)
    compared(found, read_metrics(run_folder(run_id(run))))
