"""The nodes of one run: the first holds its lease and calls the others to a meeting, by files in the run's folder.

1. The first node writes that there is a meeting. 2. Each other one writes what it sees: digests of the stages, which it
compares with its files, the commit, the versions. 3. The first compares that with what it sees itself, and says on
which address and port torchrun's processes meet. 4. All start their ranks. When the first has ended, so do the others.
Each life of a job has a folder of its own, so that what an earlier one left is not taken for an answer.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from repro.records.provenance import compute_source_digest, versions
from repro.spec import run_of_fields
from repro.spec.identity import run_id
from repro.storage.atomic import whole_file
from repro.storage.json_files import read_json
from repro.storage.lease import get_lease_timeout, look
from repro.storage.paths import home, run_folder
from slurm.hooks import named
from slurm.signals import Stop
from slurm.states import item_of_run

LOOK_EVERY_SECONDS = 0.2
GRACE_SECONDS = 20.0
"""How long the ranks of a node may go on once the first node has ended."""


@dataclass(frozen=True)
class Meeting:
    """Where the processes of all nodes meet; port 0: the others are still waited for."""

    attempt: str
    num_nodes: int
    address: str = ""
    port: int = 0
    is_over: bool = False


def make_attempt_id(job_id: str) -> str:
    """Return the name of this life of a job: a requeued job begins another one."""
    return f"{job_id}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"


def what_is_seen(job: Mapping[str, Any]) -> dict[str, str]:
    """Return digests of all that the ranks of this node would work with, by name; ValueError for a damaged stage."""
    found = {}
    for stage in named(job["stages_of"])(run_of_fields(job["run"])):
        if stage.is_built:
            stage.check()
        found[f"stage {stage.title}"] = _digest(stage.files) if stage.is_built else "not there"
    return found | {"code": compute_source_digest(), "set of package versions": _digest(versions())}


def call_meeting(job: Mapping[str, Any], attempt: str, stop: Stop) -> Meeting:
    """Bring all nodes together, as the first of them; return where their processes meet.

    ValueError when a node does not come, or sees other files, other code or other packages.
    """
    place, meeting, seen = _place(job, attempt), Meeting(attempt, job["num_nodes"]), what_is_seen(job)
    _write(place / "meeting.json", asdict(meeting))
    for number in range(1, meeting.num_nodes):
        told = _wait_for_file(place / f"node-{number}.json", stop)
        if told is None:
            raise ValueError(
                f"node {number} of {meeting.num_nodes} did not come within {_patience():.0f} s: every node must see "
                f"{home()}; its own log lies beside this one"
            )
        _check_alike(number, told, seen)
    address = _get_own_address()
    meeting = replace(meeting, address=address, port=_get_free_port(address))
    _write(place / "meeting.json", asdict(meeting))
    return meeting


def join_meeting(job: Mapping[str, Any], number: int, attempt: str, stop: Stop) -> Meeting:
    """Come to the meeting as another node than the first; return it once its processes may start, or it is over.

    ValueError when nobody calls one, or when a stage here is damaged.
    """
    place, mine = _place(job, attempt), {"host": socket.gethostname()}
    told = _wait_for_file(place / "meeting.json", stop)
    if told is None:
        raise ValueError(f"node {number}: no word of the first node within {_patience():.0f} s; do both see {place}?")
    if not told["is_over"]:
        try:
            seen = what_is_seen(job)
        except ValueError as error:
            _write(place / f"node-{number}.json", mine | {"error": str(error)})
            raise
        _write(place / f"node-{number}.json", mine | {"seen": seen})
    while not (meeting := Meeting(**read_json(place / "meeting.json"))).port and not meeting.is_over:
        if has_left(job, attempt):
            return replace(meeting, is_over=True)
        time.sleep(LOOK_EVERY_SECONDS)
    return meeting


@contextmanager
def lead_nodes(job: Mapping[str, Any], attempt: str) -> Iterator[None]:
    """Tell the other nodes when the block has ended, however it did, also when it never called a meeting."""
    try:
        yield
    finally:
        _write(_place(job, attempt) / "meeting.json", asdict(Meeting(attempt, job["num_nodes"], is_over=True)))


def has_left(job: Mapping[str, Any], attempt: str) -> bool:
    """Return whether the first node has ended, or died."""
    told = read_json(_place(job, attempt) / "meeting.json")
    owner = look(item_of_run(run_of_fields(job["run"])).lease_folder)
    is_held = owner is not None and owner.is_alive and owner.note.get("job_id") == attempt.rpartition(".")[0]
    return told["is_over"] or not is_held


def grace_is_over(job: Mapping[str, Any], attempt: str) -> Callable[[], bool]:
    """Return what tells, asked again and again, whether the first node left longer than a while ago."""
    left_at: list[float] = []

    def is_over() -> bool:
        if not left_at and has_left(job, attempt):
            left_at.append(time.monotonic())
        return bool(left_at) and time.monotonic() - left_at[0] > GRACE_SECONDS

    return is_over


def _place(job: Mapping[str, Any], attempt: str) -> Path:
    return run_folder(run_id(run_of_fields(job["run"]))) / "nodes" / attempt


def _write(path: Path, told: Mapping[str, Any]) -> None:
    with whole_file(path) as part:
        part.write_text(json.dumps(told, indent=1))


def _wait_for_file(path: Path, stop: Stop) -> dict[str, Any] | None:
    """Return what a file tells, once it is there; None when it does not come."""
    deadline = time.monotonic() + _patience()
    while time.monotonic() < deadline:
        if path.is_file():
            return dict(read_json(path))
        if stop():
            raise stop.stopped()
        time.sleep(LOOK_EVERY_SECONDS)
    return None


def _patience() -> float:
    # nodes of a job start together; the first may have to wait for the lease of one that died
    return 2 * get_lease_timeout()


def _check_alike(number: int, told: Mapping[str, Any], seen: Mapping[str, str]) -> None:
    """ValueError naming the first thing that a node sees otherwise than the first node."""
    who = f"node {number} ({told['host']})"
    if "error" in told:
        raise ValueError(f"{who}: {told['error']}")
    for name, digest in seen.items():
        other = told["seen"].get(name, "not there")
        if other != digest:
            raise ValueError(
                f"{who} sees another {name} than the first node ({other[:12]}, not {digest[:12]}): let all nodes share "
                f"{home()} and one checkout, or hold the same files"
            )


def _digest(told: object) -> str:
    return hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()


def _get_own_address() -> str:
    # of the node on which srun was started, which is the first; else the name by which others may know this one
    return os.environ.get("SLURM_LAUNCH_NODE_IPADDR") or socket.gethostname()


def _get_free_port(address: str) -> int:
    """Return a free port of this node's address; ValueError if the node does not have that address."""
    try:
        with socket.create_server((address, 0), family=_family(address)) as found:
            port: int = found.getsockname()[1]
            return port
    except OSError as error:
        raise ValueError(
            f"this node cannot listen on {address} ({error.strerror or error}); set SLURM_LAUNCH_NODE_IPADDR to its "
            "address in the cluster's network, in the profile's setup"
        ) from error


def _family(address: str) -> socket.AddressFamily:
    return socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][0]
