"""A run in two processes equals the run in one up to rounding. Ranks stop together and listen on loopback only."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch.distributed as dist

from repro.records.store import read_record
from repro.spec import Run
from repro.spec.identity import run_id
from repro.storage.paths import CHECKOUT, get_home, get_local_records, run_folder
from repro.train.checkpoint import read_metrics
from slurm import launch
from slurm.profiles import Profile, load_profile
from slurm.status import get_statuses
from slurm.sweep import build_tasks
from tests.slurm.launching import get_states, launch_runs, read_state, start_requeued, wait_until
from tests.slurm.real_run import RUN, check_training, copy_stages

TWO = Profile(name="two", on="local", num_at_once=1, parameters={"tasks_per_node": 2, "cpus_per_task": 1})
launch_two = partial(launch_runs, profile=TWO)

LAUNCHER = """
from functools import partial
from slurm.start import start
from tests.slurm.test_ranks import RUN, TWO
start([RUN], TWO, sweep="test", progress=partial(print, flush=True))
"""


def test_stopped_processes_match_one(trained_home: Path) -> None:
    """Two processes that stop and resume see the batches of one process. Losses and scores differ by rounding only."""
    copy_stages(trained_home)
    queue = subprocess.Popen([sys.executable, "-c", LAUNCHER], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    folder = run_folder(run_id(RUN))
    wait_until(lambda: len(read_metrics(folder)) >= 3)
    queue.send_signal(signal.SIGINT)
    output = queue.communicate(timeout=120)[0]
    assert (get_states(RUN), read_state(RUN).state) == (["missing"], "interrupted"), output
    assert 0 < len(read_metrics(folder)) < RUN.num_steps
    assert (folder / "checkpoint.safetensors").exists()
    launch_two(RUN)
    assert get_states(RUN) == ["recorded"]
    check_scores(trained_home)


def check_scores(trained_home: Path) -> None:
    """Check that training and scores equal those of the run in one process, up to rounding."""
    check_training(trained_home)
    name = f"{run_id(RUN)}.json"
    expected = read_record(trained_home / get_local_records().relative_to(get_home()) / name)
    actual = read_record(get_local_records() / name)
    metric = f"{RUN.suite}/mean/ndcg_at_10"
    assert actual.metrics[metric] == pytest.approx(expected.metrics[metric], abs=0.02)


def run_in_ranks(function: Callable[..., None], trained_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the processes of the local queue call a function of this module instead of `execute`."""
    copy_stages(trained_home)
    monkeypatch.setattr("slurm.local.CHILD_MODULE", "tests.slurm.stand_in_rank")
    monkeypatch.setenv("STAND_IN_EXECUTE", function.__name__)


def list_listening_addresses(pid: int) -> set[str]:
    """Return the addresses on which a process accepts connections, as the kernel writes them."""
    sockets = set()
    for file in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            sockets.add(str(file.readlink()))
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/self/net/{name}").read_text().splitlines()
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def record_listeners(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> None:
    """Replace `execute`: write down addresses and threads of this process."""
    addresses = sorted(list_listening_addresses(os.getpid()))
    report = {"listeners": addresses, "threads": os.environ["OMP_NUM_THREADS"]}
    (get_home() / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(report))
    dist.barrier()


LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_ranks_listen_on_loopback(trained_home: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store of torch would listen on every interface, and it executes what it receives."""
    run_in_ranks(record_listeners, trained_home, monkeypatch)
    # The function writes no record, and is not tried again.
    launch_runs(RUN, profile=replace(TWO, max_requeues=0))
    assert get_states(RUN) == ["failed"]
    reports = [json.loads((own_home / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert [report["threads"] for report in reports] == ["1", "1"]
    listeners = {address for report in reports for address in report["listeners"]}
    assert set() < listeners <= LOOPBACK


def fail_or_wait(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> None:
    """Replace `execute`: rank 1 fails, and rank 0 waits for it in a collective call."""
    if os.environ["RANK"] == "1":
        time.sleep(0.5)
        raise ValueError("no such thing")
    (get_home() / "rank-0.pid").write_text(str(os.getpid()))
    dist.barrier()


def test_failed_rank_ends_the_others(trained_home: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run fails with the error of the rank that failed first, and no process is left."""
    run_in_ranks(fail_or_wait, trained_home, monkeypatch)
    launch_two(RUN)
    [status] = get_statuses([RUN])
    assert status.state == "failed" and status.reason.startswith("rank 1 on ")
    assert status.reason.endswith("ValueError: no such thing")
    assert not Path(f"/proc/{(own_home / 'rank-0.pid').read_text()}").exists()


def test_unshareable_batch_is_refused_first() -> None:
    site = Profile(name="site", parameters={"nodes": 3, "tasks_per_node": 2})
    with pytest.raises(ValueError, match=r"a batch of 16 cannot be shared equally by 6 processes .*3 nodes, 2 on each"):
        build_tasks([replace(RUN, batch_size=16)], site, code={})
    assert build_tasks([replace(RUN, batch_size=16, batches_a_step=6)], site, code={})[-1].job.num_processes == 6


def describe(num_nodes: int, rank: int) -> dict[str, str]:
    """Return the variables of a task of a job with two tasks per node."""
    task = SimpleNamespace(
        num_tasks=2 * num_nodes, num_nodes=num_nodes, job_id="7_1", global_rank=rank, hostnames=["first", "second"]
    )
    return launch.describe_task(task)


def test_tasks_know_where_to_meet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one node in a private file, on several at an address and port. Each attempt meets in another place."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.delenv("SLURM_LAUNCH_NODE_IPADDR", raising=False)
    one, two = describe(1, 1), describe(2, 3)
    assert [one[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE", "GLOO_SOCKET_IFNAME")] == ["1", "1", "2", "lo"]
    assert [two[name] for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")] == ["3", "1", "4"]
    assert one["REPRO_RANKS_STORE"].startswith(f"file://{tmp_path}/repro-ranks-")
    assert re.fullmatch(r"tcp://first:[23]\d{4}", two["REPRO_RANKS_STORE"]) and "GLOO_SOCKET_IFNAME" not in two
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    for num_nodes, earlier in ((1, one), (2, two)):
        assert describe(num_nodes, 0)["REPRO_RANKS_STORE"] != earlier["REPRO_RANKS_STORE"]
    [folder] = tmp_path.iterdir()
    folder.chmod(0o777)
    with pytest.raises(ValueError, match="others can write"):
        describe(1, 0)


@pytest.mark.slurm
@pytest.mark.parametrize("parameters", [{"nodes": 2}, {"tasks_per_node": 2}], ids=["nodes", "tasks"])
def test_slurm_tasks_resume_together(
    own_home: Path, trained_home: Path, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, int]
) -> None:
    copy_stages(trained_home)
    monkeypatch.delenv("SLURM_LAUNCH_NODE_IPADDR", raising=False)
    profile = load_profile("dev-cluster")
    parameters = {**profile.parameters, **parameters, "slurm_setup": ["export GLOO_SOCKET_IFNAME=lo"]}
    launch_runs(RUN, profile=replace(profile, parameters=parameters))
    wait_until(lambda: len(read_metrics(run_folder(run_id(RUN)))) >= 3, seconds=300)
    job_id = get_statuses([RUN])[0].job_id
    subprocess.run(["scancel", "--signal=USR2", job_id], check=True)
    start_requeued(job_id)
    wait_until(lambda: get_states(RUN) == ["recorded"], seconds=300)
    assert get_statuses([RUN])[0].num_interruptions == 1
    logs = sorted(path.name.partition("_")[2] for path in (own_home / "sweeps/test/jobs").glob(f"{job_id}_*out"))
    assert logs == ["0_log.out", "1_log.out"], "each task writes a log"
    check_scores(trained_home)
