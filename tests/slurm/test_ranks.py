"""Runs in several processes: ranks stop, resume and fail together, and listen on loopback only."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import torch.distributed as dist

from repro.execute import execute
from repro.records.store import read_records, write_record
from repro.spec import Run, base
from repro.spec.identity import run_id
from repro.stopping import Interrupted, delay_stops, is_asked_to_stop
from repro.storage.paths import CHECKOUT, get_home, get_local_records, run_folder
from repro.train.checkpoint import read_metrics
from repro.train.parallel import any_process
from slurm import launch
from slurm.launch import SubmittedJob
from slurm.profiles import Profile, load_profile
from slurm.status import get_statuses
from tests.commands import ignore
from tests.slurm import stand_in as work
from tests.slurm.launching import get_states, launch_runs, read_state, start_requeued, wait_until

RUN = base("smoke", num_steps=60)
TWO = Profile(name="two", on="local", num_at_once=1, parameters={"tasks_per_node": 2, "cpus_per_task": 1})
launch_two = partial(launch_runs, profile=TWO)

LAUNCHER = """
from functools import partial
from slurm.start import start
from tests.slurm.test_ranks import RUN, TWO
start([RUN], TWO, sweep="test", progress=partial(print, flush=True))
"""


def test_stopped_processes_match_one() -> None:
    """Two processes that stop and resume see the batches of one process. Losses and scores differ by rounding only."""
    folder, score = run_folder(run_id(RUN)), f"{RUN.suite}/mean/ndcg_at_10"
    expected_score, expected = execute(RUN, progress=ignore).metrics[score], read_metrics(folder)
    # The stages stay, so that they need not be built again.
    for path in (folder, get_local_records()):
        shutil.rmtree(path)
    queue = subprocess.Popen([sys.executable, "-c", LAUNCHER], cwd=CHECKOUT, stdout=subprocess.PIPE, text=True)
    wait_until(lambda: len(read_metrics(folder)) >= 3)
    queue.send_signal(signal.SIGINT)
    output = queue.communicate(timeout=120)[0]
    assert (get_states(RUN), read_state(RUN).state) == (["missing"], "interrupted"), output
    assert 0 < len(read_metrics(folder)) < RUN.num_steps
    assert (folder / "checkpoint.safetensors").exists()
    launch_two(RUN)
    [record], metrics = read_records(get_local_records()), read_metrics(folder)
    assert record.metrics[score] == pytest.approx(expected_score, abs=0.02)
    for name in ("step", "batch"):
        assert [line[name] for line in metrics] == [line[name] for line in expected]
    assert [line["loss"] for line in metrics] == pytest.approx([line["loss"] for line in expected], rel=1e-4)


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


def listen_and_fail(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> None:
    """Replace `execute`: write down addresses and threads. Then rank 1 fails, and rank 0 waits for it."""
    addresses = sorted(list_listening_addresses(os.getpid()))
    report = {"pid": os.getpid(), "listeners": addresses, "threads": os.environ["OMP_NUM_THREADS"]}
    (get_home() / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(report))
    dist.barrier()
    if os.environ["RANK"] == "1":
        raise ValueError("no such thing")
    dist.barrier()


LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_failed_rank_ends_the_others(stand_in: None, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run fails with the error of the rank that failed first, and no process is left.

    Ranks listen on loopback only. The store of torch would listen on every interface, and it executes what it receives.
    """
    monkeypatch.setenv("STAND_IN_EXECUTE", f"{__name__}:{listen_and_fail.__name__}")
    launch_two(RUN)
    [status] = get_statuses([RUN])
    assert status.state == "failed" and status.reason.startswith("rank 1 on ")
    assert status.reason.endswith("ValueError: no such thing")
    reports = [json.loads((own_home / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert not Path(f"/proc/{reports[0]['pid']}").exists()
    assert [report["threads"] for report in reports] == ["1", "1"]
    listeners = {address for report in reports for address in report["listeners"]}
    assert set() < listeners <= LOOPBACK


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


def count_together(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> None:
    """Replace `execute`: ranks take slow steps together, and stop together with a checkpoint."""
    checkpoint, is_first = run_folder(run_id(run)) / "checkpoint.json", os.environ["RANK"] == "0"
    step = int(checkpoint.read_text()) if checkpoint.exists() else 0
    if is_first:
        work.trace(f"begin {step} of {dist.get_world_size()}")
    with delay_stops():
        while step < NUM_SLOW_STEPS:
            if any_process(should_stop() or is_asked_to_stop(), torch.device("cpu")):
                if is_first:
                    checkpoint.write_text(str(step))
                raise Interrupted(f"stopped at {step}")
            step += 1
            time.sleep(0 if (get_home() / "fast").exists() else 0.25)
    if is_first:
        write_record(get_local_records(), run, metrics={"value": step}, arrays={}, provenance=work.PROVENANCE)
    dist.barrier()


NUM_SLOW_STEPS = 2000


@dataclass(frozen=True)
class CountingJob(SubmittedJob):
    """A job that counts in the process that unpickles it."""

    def __call__(self) -> None:
        """Execute the job."""
        work.replace_work()
        sys.modules["repro.execute"] = work.make_execute_module(count_together)
        super().__call__()


@pytest.mark.slurm
@pytest.mark.usefixtures("stand_in")
@pytest.mark.parametrize("parameters", [{"nodes": 2}, {"tasks_per_node": 2}], ids=["nodes", "tasks"])
def test_slurm_tasks_resume_together(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, parameters: dict[str, int]
) -> None:
    """Tasks of one job meet, stop with one checkpoint, are requeued, and go on from it. Nothing is trained."""
    monkeypatch.delenv("SLURM_LAUNCH_NODE_IPADDR", raising=False)
    monkeypatch.setattr(launch, "SubmittedJob", CountingJob)
    work.stages_of(RUN)[0].build()
    profile = load_profile("dev-cluster")
    parameters = {**profile.parameters, **parameters, "slurm_setup": ["export GLOO_SOCKET_IFNAME=lo"]}
    launch_runs(RUN, profile=replace(profile, parameters=parameters))
    wait_until(lambda: "begin 0 of 2" in work.read_trace(), seconds=900)
    job_id = get_statuses([RUN])[0].job_id
    subprocess.run(["scancel", "--signal=USR2", job_id], check=True)
    start_requeued(job_id)
    work.set_flag("fast")
    wait_until(lambda: get_states(RUN) == ["recorded"], seconds=900)
    assert get_statuses([RUN])[0].num_interruptions == 1
    logs = sorted(path.name.partition("_")[2] for path in (own_home / "sweeps/test/jobs").glob(f"{job_id}_*out"))
    assert logs == ["0_log.out", "1_log.out"], "each task writes a log"
    first, second = [line.split()[1:] for line in work.read_trace() if line.startswith("begin")]
    assert first == ["0", "of", "2"] and int(second[0]) > 0 and second[1:] == ["of", "2"]
