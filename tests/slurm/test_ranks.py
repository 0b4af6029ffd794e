"""A run in two processes equals the run in one up to rounding. Ranks stop together and listen on loopback only."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from repro.records.store import read_record
from repro.spec import Run, base
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import get_home, get_local_records, run_folder
from repro.train.checkpoint import read_metrics
from repro.train.parallel import join_processes
from slurm import ranks
from slurm.job import Job
from slurm.nodes import Meeting
from slurm.signals import REASONS, Stop, Stopped
from slurm.states import JobState
from tests.slurm.launching import read_state, wait_until
from tests.slurm.real_run import RUN, check_training, copy_stages

SHORT = replace(RUN, num_steps=6)
HERE = JobState(state="running")


@pytest.fixture(autouse=True)
def restore_handlers() -> Iterator[None]:
    """Restore signals and the exception hook, which `ranks.main` sets for its own process."""
    former, hook = {number: signal.getsignal(number) for number in REASONS}, sys.excepthook
    yield
    for number, handler in former.items():
        signal.signal(number, handler)
    sys.excepthook = hook


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give each process one thread."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.mark.slow
def test_sharing_jobs_train_once() -> None:
    """Slow: two jobs train in processes of their own."""
    runs = [SHORT, replace(SHORT, context_seed=SHORT.context_seed + 1)]
    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(lambda run: Job(run=asdict(run), num_processes=2)(Stop(), where=HERE), runs))
    assert outcomes == ["done", "done"]
    records = [read_record(get_local_records() / f"{run_id(run)}.json") for run in runs]
    assert records[0].metrics["train/loss"] == records[1].metrics["train/loss"]
    assert [line["step"] for line in read_metrics(run_folder(get_training_id(SHORT)))] == list(range(1, 7))


def join_and_stop(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> None:
    """Replace `execute`: join a group of one process, and stop."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    raise Stopped("told to end")


@pytest.mark.enable_socket  # gloo's own
def test_stopping_rank_leaves_its_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, execute_with: Callable[..., None]
) -> None:
    execute_with(join_and_stop)
    description_file = tmp_path / ranks.DESCRIPTION
    description_file.write_text(json.dumps({"run": asdict(SHORT)}))
    monkeypatch.setattr(sys, "argv", ["ranks", str(description_file)])
    for name in ("die_with_parent", "_watch_for_request"):
        monkeypatch.setattr(ranks, name, lambda argument: None)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
    try:
        assert (ranks.main(), dist.is_initialized()) == (0, False)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def signal_everyone(stop: Stop) -> None:
    """Wait for the first steps, then send SIGTERM to the job and to every rank, as Slurm does."""
    folder = run_folder(run_id(RUN))
    wait_until(lambda: len(read_metrics(folder)) >= 3)
    stop.on_signal(signal.SIGTERM, None)
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if str(folder / "ranks.json") in path.read_text():
                os.kill(int(path.parent.name), signal.SIGTERM)


def test_stopped_processes_match_one(trained_home: Path) -> None:
    """Two processes that stop and resume see the batches of one process. Losses and scores differ by rounding only."""
    copy_stages(trained_home)
    job, stop = Job(run=asdict(RUN), num_processes=2), Stop()
    signaller = threading.Thread(target=signal_everyone, args=(stop,))
    signaller.start()
    with pytest.raises(Stopped):
        job(stop, where=HERE)
    signaller.join()
    assert read_state(RUN).state == "interrupted"
    folder = run_folder(run_id(RUN))
    assert 0 < len(read_metrics(folder)) < RUN.num_steps
    assert (folder / "checkpoint.safetensors").exists() and not (folder / "stop").exists()
    assert job(Stop(), where=HERE) == "done"
    check_training(trained_home)
    name = f"{run_id(RUN)}.json"
    expected = read_record(trained_home / get_local_records().relative_to(get_home()) / name)
    actual = read_record(get_local_records() / name)
    metric = f"{RUN.suite}/mean/ndcg_at_10"
    assert actual.metrics[metric] == pytest.approx(expected.metrics[metric], abs=0.02)


def run_in_ranks(function: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Make ranks call a function of this module instead of `execute`."""
    monkeypatch.setattr(ranks, "RANK_MODULE", "tests.slurm.stand_in_rank")
    monkeypatch.setenv("STAND_IN_EXECUTE", function.__name__)


def list_listening_addresses(pids: list[int]) -> set[str]:
    """Return the addresses on which any of these processes accepts connections, as the kernel writes them."""
    sockets = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            with suppress(OSError):
                sockets.add(str(file.readlink()))
    rows = [
        line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/self/net/{name}").read_text().splitlines()
    ]
    return {row[1].split(":")[0] for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in sockets}


def record_listeners(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> None:
    """Replace `execute`: join the other ranks, and write down addresses and threads of this job's processes."""
    join_processes(torch.device("cpu"))
    pids = [os.getpid()]
    while (parent := int(Path(f"/proc/{pids[-1]}/stat").read_text().rpartition(")")[2].split()[1])) > 1:
        pids.append(parent)
        if b"pytest" in Path(f"/proc/{parent}/cmdline").read_bytes():
            break
    report = {
        "listeners": sorted(list_listening_addresses(pids)),
        "threads": [os.environ[name] for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS")],
    }
    (get_home() / f"rank-{os.environ['RANK']}.json").write_text(json.dumps(report))
    dist.barrier()


LOOPBACK = {"0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F"}


@pytest.mark.enable_socket  # loopback only
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("several_nodes", [False, True])
def test_ranks_listen_on_loopback(own_home: Path, monkeypatch: pytest.MonkeyPatch, several_nodes: bool) -> None:
    """Ranks on one machine listen on loopback only. With several nodes, the store has the address of the meeting.

    The store of torch would listen on every interface, and it executes what it receives. Ranks also divide the threads
    of their job: each has at least one, and values that are no numbers stay as they are.
    """
    for name, threads in {"OMP_NUM_THREADS": "5", "MKL_NUM_THREADS": "1", "RAYON_NUM_THREADS": "many"}.items():
        monkeypatch.setenv(name, threads)
    job = Job(run=asdict(RUN), num_processes=2)
    run_in_ranks(record_listeners, monkeypatch)
    run_folder(run_id(RUN)).mkdir(parents=True)
    if several_nodes:  # one node that meets like the first of several
        monkeypatch.setenv("GLOO_SOCKET_IFNAME", "lo")
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        described = run_folder(run_id(RUN)) / ranks.DESCRIPTION
        described.write_text(json.dumps(asdict(job)))
        assert ranks._run_ranks(asdict(job), Stop(), described, Meeting("127.0.0.1", port)) == 0
    else:
        assert not ranks.run_ranks(asdict(job), Stop())
    reports = [json.loads((own_home / f"rank-{rank}.json").read_text()) for rank in (0, 1)]
    assert [report["threads"] for report in reports] == [["2", "1", "many"]] * 2
    listeners = {address for report in reports for address in report["listeners"]}
    assert set() < listeners <= LOOPBACK


def fail_or_wait(run: Run, *, should_stop: Callable[[], bool], progress: Callable[[str], None]) -> None:
    """Replace `execute`: rank 1 fails, and rank 0 waits for it forever."""
    pid_file = get_home() / "rank-0.pid"
    if os.environ["RANK"] == "0":
        pid_file.write_text(str(os.getpid()))
        while not should_stop():
            time.sleep(0.05)
        return
    while not pid_file.exists():
        time.sleep(0.05)
    raise ValueError("no such thing")


def test_failed_rank_ends_the_others(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The job fails with the error of the rank, and no rank is left."""
    job = Job(run=asdict(RUN), num_processes=2)
    run_in_ranks(fail_or_wait, monkeypatch)
    with pytest.raises(RuntimeError, match=r"one of 2 processes failed \(rank 1 on .*: ValueError: no such thing\)"):
        job(Stop(), where=HERE)
    assert read_state(RUN).state == "failed"
    assert "RANK" not in os.environ
    assert not Path(f"/proc/{(own_home / 'rank-0.pid').read_text()}").exists()


LATE = """
import os, pathlib, signal, sys, time
from types import SimpleNamespace
import slurm.ranks
from repro.stopping import Interrupted
def agreed(run, **how):
    raise Interrupted("all ranks have agreed")
def leave():
    pathlib.Path(sys.argv[1]).with_name("stop").touch()
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
if __name__ == "__main__":
    sys.modules["repro.execute"] = SimpleNamespace(execute=agreed)
    sys.modules["repro.train.parallel"] = SimpleNamespace(leave_processes=leave)
    status = slurm.ranks.main()
    os.kill(os.getpid(), signal.SIGTERM)
    sys.exit(status)
"""


def test_late_stop_request_is_harmless(tmp_path: Path) -> None:
    (tmp_path / "job.json").write_text(json.dumps({"run": asdict(base("smoke"))}))
    command = [sys.executable, "-c", LATE, str(tmp_path / "job.json")]
    root, env = Path(ranks.__file__).parents[1], os.environ | {"RANK": "1"}
    done = subprocess.run(command, cwd=root, env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout == "rank 1 stopped: all ranks have agreed\n"
