"""A run in several processes: the job starts torchrun, which starts one rank for each GPU, and stays their parent.

On several nodes each node's job does so, and the ranks of all find each other where the first node says. A rank hears
that it should stop from the job, through a file, or from the scheduler, which signals every process of a job. Between
two steps the ranks agree on it, so that none waits for another that has left. torchrun itself must ignore the signals:
it would end the ranks. What a job has of a node's cores, its ranks there share.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from repro.records.store import has_record
from repro.spec import run_of_fields
from repro.spec.identity import run_id
from repro.stopping import Interrupted, Stopped, undisguised
from repro.storage.json_files import short
from repro.storage.paths import import_environment, local_records, run_folder
from slurm.hooks import named
from slurm.nodes import Meeting, attempt_of, call_meeting, grace_is_over, has_left, join_meeting
from slurm.signals import REASONS, Stop, ask_for_signal, die_with_parent, listening, say

LEAVE = "repro.train.parallel:leave_processes"
DESCRIBED, FAILURE = "ranks.json", "ranks.failed"
DEAF_SHELL = 'trap "" USR2 TERM INT; exec "$0" "$@"'
DEAF = dict.fromkeys(("PET_SIGNALS_TO_HANDLE", "TORCHELASTIC_SIGNALS_TO_HANDLE"), "SIGHUP")

THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "RAYON_NUM_THREADS")
"""The variables that say how many threads a process may have; a job is given the number of its cores."""


def run_ranks(job: Mapping[str, Any], stop: Stop, job_id: str = "") -> bool:
    """Do a run with `num_processes` ranks on each node; return whether it ended (False: it stopped at a checkpoint).

    `job` is the job as plain values; this is its first node, or its only one.
    RuntimeError when a rank failed, with its error; its traceback is in the log. ValueError when the nodes differ.
    """
    run = run_of_fields(job["run"])
    folder = run_folder(run_id(run))
    request, described, failure = (folder / name for name in ("stop", DESCRIBED, FAILURE))
    for left in (request, failure):
        left.unlink(missing_ok=True)
    described.write_text(json.dumps(dict(job)))
    meeting = call_meeting(job, attempt_of(job_id), stop) if job.get("num_nodes", 1) > 1 else None
    try:
        status = _run_torchrun(job, stop, described, where_to_meet(meeting))
    finally:
        request.unlink(missing_ok=True)
    if status != 0 and not stop():
        number = job["num_processes"] * job.get("num_nodes", 1)
        why = failure.read_text() if failure.is_file() else f"status {status}"
        raise RuntimeError(f"one of {number} processes failed ({why}); see the log")
    return has_record(local_records(), run)


def follow(job: Mapping[str, Any], stop: Stop, job_id: str, number: int) -> None:
    """Do the ranks of another node than the first, which it follows: they start and end with those there.

    RuntimeError when a rank failed here. ValueError when the first node is not heard of, or a stage here is damaged.
    """
    meeting = join_meeting(job, number, attempt_of(job_id), stop)
    if meeting.is_over:
        return
    has_to_end = grace_is_over(job, meeting.attempt)
    described = run_folder(run_id(run_of_fields(job["run"]))) / DESCRIBED
    status = _run_torchrun(job, stop, described, where_to_meet(meeting, number), has_to_end)
    if status != 0 and not stop() and not has_left(job, meeting.attempt):
        raise RuntimeError(f"a process of node {number} failed (status {status}); see this log")


def where_to_meet(meeting: Meeting | None, number: int = 0) -> list[str]:
    """Return the words that tell torchrun where its ranks find those of other nodes."""
    if meeting is None:
        return ["--standalone"]
    place = ["--master-addr", meeting.address, "--master-port", str(meeting.port)]
    return ["--nnodes", str(meeting.num_nodes), "--node-rank", str(number), *place]


def _shares(num_ranks: int) -> dict[str, str]:
    """Return the variables that give each rank its share of its job's threads, at least one; no other word is read."""
    given = {name: os.environ.get(name, "") for name in THREADS}
    return {name: str(max(1, int(told) // num_ranks)) for name, told in given.items() if told.isdecimal()}


def _run_torchrun(
    job: Mapping[str, Any],
    stop: Stop,
    described: Path,
    words: list[str],
    has_to_end: Callable[[], bool] = lambda: False,
) -> int:
    """Return the exit status of torchrun, after asking its ranks to stop where `stop` says so."""
    command = [sys.executable, "-u", "-m", "torch.distributed.run", *words]
    command += ["--nproc-per-node", str(job["num_processes"]), "-m", "slurm.ranks", str(described)]
    parent = subprocess.Popen(
        ["bash", "-c", DEAF_SHELL, *command],
        env=os.environ | _shares(job["num_processes"]) | DEAF | import_environment(),
        preexec_fn=partial(ask_for_signal, signal.SIGKILL),  # its ranks then get SIGTERM, and write their checkpoint
    )
    try:
        while parent.poll() is None and not has_to_end():
            if stop():
                described.with_name("stop").touch()
            time.sleep(0.2)
    finally:
        parent.kill()  # nothing when it has ended; else the ranks follow, since they die with their parent
        parent.wait()
    return parent.returncode


def main() -> int:
    """Run one rank, started by torchrun; return the exit status."""
    die_with_parent(os.getppid())
    described = Path(sys.argv[1])
    job, stop = json.loads(described.read_text()), Stop()
    sys.excepthook = partial(_tell_failure, described.with_name(FAILURE))
    # The end of `listening` goes back to this: a request may come when all ranks have agreed to stop.
    for number in REASONS:
        signal.signal(number, signal.SIG_IGN)
    with listening(stop):
        threading.Thread(target=_await_request, args=(described.with_name("stop"),), daemon=True).start()
        try:
            with undisguised():
                named(job["execute"])(run_of_fields(job["run"]), should_stop=stop, progress=say)
            stop.is_over = True
        except (Interrupted, Stopped) as stopped:
            stop.is_over = True
            say(f"rank {os.environ['RANK']} stopped: {stopped}")
        named(LEAVE)()
    return 0


def _tell_failure(path: Path, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Write down the error that ended this rank, unless another rank was first: the others only miss this one."""
    lines = str(error).splitlines() or [""]
    with suppress(FileExistsError), path.open("x") as file:
        file.write(f"rank {os.environ['RANK']} on {socket.gethostname()}: {kind.__name__}: {short(lines[0], 500)}")
    sys.__excepthook__(kind, error, trace)


def _await_request(request: Path) -> None:
    """Turn the job's request into the signal that the scheduler would send."""
    while not request.exists():
        time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    sys.exit(main())
