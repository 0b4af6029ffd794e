"""Run one training run in several processes: the job starts one rank per GPU and remains their parent.

On several nodes each node's job does this, and all ranks meet at the first node's address. The ranks of one machine
meet through a file that only this user can write, and communicate over loopback. So nothing listens on the network. A
rank receives a stop request from the job through a file, or from the scheduler, which signals every process of a job.
Between two steps the ranks agree on stopping, so that none waits for a rank that has left. The ranks of a node share
its cores.
"""

from __future__ import annotations

import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from repro.records.store import has_record
from repro.spec import run_from_fields
from repro.spec.identity import run_id
from repro.stopping import Interrupted, Stopped, unwrap_stop
from repro.storage.paths import get_local_records, import_environment, run_folder
from repro.text import shorten
from slurm.nodes import Meeting, call_meeting, has_left, join_meeting, make_attempt_id, make_grace_check
from slurm.signals import REASONS, Stop, die_with_parent, handle_stop_signals, log_line

RANK_MODULE = "slurm.ranks"
"""The module that each rank runs."""
STORE_VARIABLE = "REPRO_RANKS_STORE"
"""Where ranks meet, for `repro.train.parallel`: `file://PATH` or `tcp://ADDRESS:PORT`."""
DESCRIPTION = "ranks.json"
FAILURE = "ranks.failed"
STOP_REQUEST = "stop"
IGNORE_SIGNALS = 'trap "" USR2 TERM INT; exec "$0" "$@"'
"""Start a rank with signals ignored. A signal during its imports would end it before it can write a checkpoint."""
PARENT_VARIABLE = "REPRO_RANKS_PARENT"
LOOPBACK_DEVICE = "lo" if sys.platform == "linux" else "lo0"
SECONDS_TO_END = 30.0
"""Seconds that ranks may take to end once one of them has failed or stopped, or the first node has left."""

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
"""Environment variables that set the number of threads of a process. A job receives its number of cores in them."""


def run_ranks(job: Mapping[str, Any], stop: Stop, job_id: str = "") -> bool:
    """Execute a run with `num_processes` ranks per node. Return whether it ended (False: stopped at a checkpoint).

    `job` is the job as plain values. The caller is its first or only node. Raises RuntimeError with the error of a
    failed rank, whose traceback is in the log, and ValueError if the nodes differ.
    """
    run = run_from_fields(job["run"])
    folder = run_folder(run_id(run))
    request = folder / STOP_REQUEST
    failure = folder / FAILURE
    description_file = folder / DESCRIPTION
    # Files of an earlier attempt would stop or fail this one.
    for stale_file in (request, failure):
        stale_file.unlink(missing_ok=True)
    # Written before the meeting: other nodes read it once they may start.
    description_file.write_text(json.dumps(dict(job)))
    meeting = call_meeting(job, make_attempt_id(job_id), stop) if job.get("num_nodes", 1) > 1 else None
    try:
        # A rank of another node that fails leaves this file. NCCL may not notice the failure for ten minutes.
        has_to_end = failure.is_file if meeting else lambda: False
        status = _run_ranks(job, stop, description_file, meeting, has_to_end=has_to_end)
    finally:
        request.unlink(missing_ok=True)
    if (status != 0 or failure.is_file()) and not stop():
        num_ranks = job["num_processes"] * job.get("num_nodes", 1)
        details = failure.read_text() if failure.is_file() else f"status {status}"
        raise RuntimeError(f"one of {num_ranks} processes failed ({details}); see the log")
    return has_record(get_local_records(), run)


def follow(job: Mapping[str, Any], stop: Stop, job_id: str, node: int) -> None:
    """Execute the ranks of a node other than the first. They start and end with those of the first node.

    Raises RuntimeError if a rank fails here, and ValueError if the first node does not respond or a stage is damaged.
    """
    attempt = make_attempt_id(job_id)
    meeting = join_meeting(job, node, attempt, stop)
    if meeting.is_over:
        return
    has_to_end = make_grace_check(job, attempt)
    description_file = run_folder(run_id(run_from_fields(job["run"]))) / DESCRIPTION
    status = _run_ranks(job, stop, description_file, meeting, node, has_to_end)
    if status != 0 and not stop() and not has_left(job, attempt):
        # A rank that was killed has not recorded its failure.
        with suppress(FileExistsError), description_file.with_name(FAILURE).open("x") as file:
            file.write(f"a rank of node {node} on {socket.gethostname()}: status {status}")
        raise RuntimeError(f"a process of node {node} failed (status {status}); see this log")


def _make_rank_environments(
    job: Mapping[str, Any], meeting: Meeting | None, node: int, private_folder: Path
) -> list[dict[str, str]]:
    """Return the environment of each rank of this node: its number, the meeting point, and its share of the threads.

    Args:
        private_folder: a folder that only this user can write, for the file in which ranks of one machine meet.
    """
    num_local = job["num_processes"]
    if meeting:
        rendezvous = {STORE_VARIABLE: f"tcp://{meeting.address}:{meeting.port}"}
    else:
        # On one machine, traffic stays on the loopback device even if the network is misconfigured.
        interfaces = dict.fromkeys(("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"), LOOPBACK_DEVICE)
        rendezvous = {STORE_VARIABLE: f"file://{private_folder / 'store'}", **interfaces}
    shared = {
        "WORLD_SIZE": str(num_local * job.get("num_nodes", 1)),
        "LOCAL_WORLD_SIZE": str(num_local),
        PARENT_VARIABLE: str(os.getpid()),
    }
    # One thread unless the job says more: ranks with all cores each would slow each other down.
    threads = {"OMP_NUM_THREADS": "1"} | _share_threads(num_local)
    return [
        threads | rendezvous | shared | {"RANK": str(node * num_local + local_rank), "LOCAL_RANK": str(local_rank)}
        for local_rank in range(num_local)
    ]


def _share_threads(num_ranks: int) -> dict[str, str]:
    """Return the variables that give each rank its share of the job's threads, at least one.

    Ignores non-numeric values.
    """
    values = {name: os.environ.get(name, "") for name in THREADS}
    return {name: str(max(1, int(value) // num_ranks)) for name, value in values.items() if value.isdecimal()}


def _run_ranks(
    job: Mapping[str, Any],
    stop: Stop,
    description_file: Path,
    meeting: Meeting | None,
    node: int = 0,
    has_to_end: Callable[[], bool] = lambda: False,
) -> int:
    """Run the ranks of this node to their end. Return 0, or the exit status of the first that failed.

    Once `stop` is set they receive a stop request, which they follow together.
    """
    command = ["bash", "-c", IGNORE_SIGNALS, sys.executable, "-u", "-m", RANK_MODULE, str(description_file)]
    ranks: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(prefix="repro-ranks-") as private_folder:
        try:
            for rank_environment in _make_rank_environments(job, meeting, node, Path(private_folder)):
                ranks.append(subprocess.Popen(command, env=os.environ | import_environment() | rank_environment))
            # If one rank fails, the others would wait for it forever, so the loop ends at the first failure.
            deadline = math.inf
            while any(rank.poll() is None for rank in ranks) and not _find_failure(ranks) and not has_to_end():
                if stop():
                    description_file.with_name(STOP_REQUEST).touch()
                    # A rank that stops outside training leaves the others waiting for it.
                    if any(rank.poll() is not None for rank in ranks):
                        deadline = min(deadline, time.monotonic() + SECONDS_TO_END)
                if time.monotonic() > deadline:
                    break
                time.sleep(0.2)
            status = _find_failure(ranks)
        finally:
            _end_ranks(ranks)
        return status or _find_failure(ranks)


def _find_failure(ranks: Sequence[subprocess.Popen[bytes]]) -> int:
    """Return the first nonzero exit status of the ended ranks, or 0."""
    return next((rank.returncode for rank in ranks if rank.poll()), 0)


def _end_ranks(ranks: Sequence[subprocess.Popen[bytes]]) -> None:
    """End the remaining ranks, which may first write a checkpoint."""
    try:
        for rank in ranks:
            rank.terminate()
        deadline = time.monotonic() + SECONDS_TO_END
        while any(rank.poll() is None for rank in ranks) and time.monotonic() < deadline:
            time.sleep(0.1)
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()


def main() -> int:
    """Run one rank started by a job and return the exit status."""
    # First of all, so that a rank never outlives a job that is killed while it starts.
    die_with_parent(int(os.environ.get(PARENT_VARIABLE, os.getppid())))
    description_file = Path(sys.argv[1])
    job = json.loads(description_file.read_text())
    stop = Stop()
    sys.excepthook = partial(_record_failure, description_file.with_name(FAILURE))
    # The end of `handle_stop_signals` restores this handler. A request may arrive after all ranks have agreed to stop.
    for number in REASONS:
        signal.signal(number, signal.SIG_IGN)
    with handle_stop_signals(stop):
        threading.Thread(
            target=_watch_for_request, args=(description_file.with_name(STOP_REQUEST),), daemon=True
        ).start()
        try:
            with unwrap_stop():
                # Imported here, because loading torch takes seconds. A request in that time must find the handlers.
                from repro.execute import execute

                execute(run_from_fields(job["run"]), should_stop=stop, progress=log_line)
            stop.is_over = True
        except (Interrupted, Stopped) as stopped:
            stop.is_over = True
            log_line(f"rank {os.environ['RANK']} stopped: {stopped}")
        from repro.train.parallel import leave_processes

        leave_processes()
    return 0


def _record_failure(
    path: Path, error_type: type[BaseException], error: BaseException, trace: TracebackType | None
) -> None:
    """Record the error that ended this rank, unless another rank was first. Later errors only result from the first."""
    lines = str(error).splitlines() or [""]
    with suppress(FileExistsError), path.open("x") as file:
        file.write(
            f"rank {os.environ['RANK']} on {socket.gethostname()}: {error_type.__name__}: {shorten(lines[0], 500)}"
        )
    sys.__excepthook__(error_type, error, trace)


def _watch_for_request(request: Path) -> None:
    """Convert the job's request into the signal that the scheduler would send."""
    while not request.exists():
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
