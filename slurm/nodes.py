"""Coordinate the nodes of one run through files in its folder. The first node holds the lease.

1. The first node announces a meeting.
2. Each other node writes that it has arrived, then what it sees: digests of the stages (checked against its files), the
   code and the versions. Only the arrival has a time limit, because a node may read terabytes for the digests. A lease
   shows that it is still alive meanwhile.
3. The first node compares these with its own view and publishes the address and port at which the ranks meet.
4. All nodes start their ranks. When the first node ends, the others end too.

Each attempt of a job has its own folder, so that files of an earlier attempt are never mistaken for an answer.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from repro.pipeline import stages as pipeline_stages
from repro.records.provenance import compute_source_digest, list_versions
from repro.spec import run_from_fields
from repro.spec.identity import run_id
from repro.storage.digests import hash_json
from repro.storage.files import read_json, write_json
from repro.storage.lease import acquire, get_lease_timeout, get_live_owner
from repro.storage.paths import get_home, run_folder
from slurm.signals import Stop
from slurm.states import get_run_item

POLL_SECONDS = 0.2
GRACE_SECONDS = 20.0
"""Seconds that the ranks of a node may continue after the first node has ended."""


@dataclass(frozen=True)
class Meeting:
    """The address where the processes of all nodes meet. Port 0: some nodes are still missing."""

    address: str = ""
    port: int = 0
    is_over: bool = False


def make_attempt_id(job_id: str) -> str:
    """Return an id for this attempt of a job. Each requeue starts a new attempt."""
    return f"{job_id}.{os.environ.get('SLURM_RESTART_COUNT', '0')}"


def compute_node_digests(job: Mapping[str, Any]) -> dict[str, str]:
    """Return digests of everything the ranks of this node use, by name. Raises ValueError for a damaged stage."""
    digests = {}
    for stage in pipeline_stages.list_stages(run_from_fields(job["run"])):
        if stage.is_built:
            stage.check()
        digests[f"stage {stage.title}"] = hash_json(stage.files) if stage.is_built else "not there"
    return digests | {"code": compute_source_digest(), "set of package versions": hash_json(list_versions())}


def call_meeting(job: Mapping[str, Any], attempt: str, stop: Stop) -> Meeting:
    """Gather all nodes, as the first node, and return where their processes meet.

    Raises ValueError if a node does not arrive, or if it sees different files, code or packages.
    """
    folder = _get_folder(job, attempt)
    write_json(folder / "meeting.json", asdict(Meeting()))
    digests = compute_node_digests(job)
    for node in range(1, job["num_nodes"]):
        path = folder / f"node-{node}.json"
        report = _wait_for_file(path, stop)
        while report is not None and not report.keys() & {"seen", "error"}:
            if stop():
                raise stop.stopped()
            time.sleep(POLL_SECONDS)
            is_alive = get_live_owner(_get_lease_folder(folder, node)) is not None
            # Read after this check, because a node ends its lease after its report.
            report = dict(read_json(path))
            if not is_alive and not report.keys() & {"seen", "error"}:
                raise ValueError(
                    f"node {node} ({report['host']}) ended while it read the stages; its log is next to this one"
                )
        if report is None:
            absent = f"node {node} of {job['num_nodes']} did not arrive within {_get_timeout():.0f} s"
            raise ValueError(f"{absent}: every node must see {get_home()}; its log is next to this one")
        _check_alike(node, report, digests)
    # srun started on the first node, which is this one. Without Slurm, its host name serves as the address.
    address = os.environ.get("SLURM_LAUNCH_NODE_IPADDR") or socket.gethostname()
    # The address is published only after all nodes agree, so no process starts with wrong files.
    meeting = Meeting(address, _get_free_port(address))
    write_json(folder / "meeting.json", asdict(meeting))
    return meeting


def join_meeting(job: Mapping[str, Any], node: int, attempt: str, stop: Stop) -> Meeting:
    """Join the meeting as a node other than the first. Return it once the processes may start, or once it is over.

    Raises ValueError if no meeting is announced or a stage on this node is damaged.
    """
    folder = _get_folder(job, attempt)
    host = socket.gethostname()
    announcement = _wait_for_file(folder / "meeting.json", stop)
    if announcement is None:
        raise ValueError(
            f"node {node}: no message from the first node in {_get_timeout():.0f} s; do both see {folder}?"
        )
    if not announcement["is_over"]:
        lease = acquire(_get_lease_folder(folder, node))
        assert lease is not None, "each node has its own folder in each attempt"
        with lease:
            write_json(folder / f"node-{node}.json", {"host": host})
            try:
                digests = compute_node_digests(job)
            # for example a disk that fails while a stage is read
            except Exception as error:
                write_json(folder / f"node-{node}.json", {"host": host, "error": str(error)})
                raise
            write_json(folder / f"node-{node}.json", {"host": host, "seen": digests})
    # The file is replaced by rename, so it is always complete.
    while True:
        meeting = Meeting(**read_json(folder / "meeting.json"))
        if meeting.port or meeting.is_over:
            return meeting
        if has_left(job, attempt):
            return replace(meeting, is_over=True)
        time.sleep(POLL_SECONDS)


@contextmanager
def lead_nodes(job: Mapping[str, Any], attempt: str) -> Iterator[None]:
    """Notify the other nodes when the block ends for any reason, even before a meeting."""
    try:
        yield
    finally:
        write_json(_get_folder(job, attempt) / "meeting.json", asdict(Meeting(is_over=True)))


def has_left(job: Mapping[str, Any], attempt: str) -> bool:
    """Return whether the first node has ended or died."""
    meeting = read_json(_get_folder(job, attempt) / "meeting.json")
    owner = get_live_owner(get_run_item(run_from_fields(job["run"])).lease_folder)
    # The job id of the lease distinguishes this attempt's first node from another job with the same run.
    return meeting["is_over"] or owner is None or owner.note.get("job_id") != attempt.rpartition(".")[0]


def make_grace_check(job: Mapping[str, Any], attempt: str) -> Callable[[], bool]:
    """Return a function that checks whether the first node ended more than GRACE_SECONDS ago."""
    end_time: float | None = None

    def is_over() -> bool:
        nonlocal end_time
        if end_time is None and has_left(job, attempt):
            end_time = time.monotonic()
        return end_time is not None and time.monotonic() - end_time > GRACE_SECONDS

    return is_over


def _get_folder(job: Mapping[str, Any], attempt: str) -> Path:
    return run_folder(run_id(run_from_fields(job["run"]))) / "nodes" / attempt


def _get_lease_folder(folder: Path, node: int) -> Path:
    return folder / f"node-{node}"


def _wait_for_file(path: Path, stop: Stop) -> dict[str, Any] | None:
    """Return the content of a JSON file once it exists, or None after the timeout."""
    deadline = time.monotonic() + _get_timeout()
    while time.monotonic() < deadline:
        if path.is_file():
            return dict(read_json(path))
        if stop():
            raise stop.stopped()
        time.sleep(POLL_SECONDS)
    return None


def _get_timeout() -> float:
    # The nodes of a job start together. The first node may have to wait for the lease of a dead one.
    return 2 * get_lease_timeout()


def _check_alike(node: int, report: Mapping[str, Any], expected: Mapping[str, str]) -> None:
    """Raise ValueError with the first difference between a node's view and that of the first node."""
    node_name = f"node {node} ({report['host']})"
    if "error" in report:
        raise ValueError(f"{node_name}: {report['error']}")
    for name, digest in expected.items():
        actual = report["seen"].get(name, "not there")
        if actual != digest:
            difference = f"{node_name} has another {name} than the first node ({actual[:12]}, not {digest[:12]})"
            raise ValueError(f"{difference}: let all nodes share {get_home()} and one checkout, or hold the same files")


def _get_free_port(address: str) -> int:
    """Return a free port at this node's address. Raises ValueError if the node does not have that address."""
    try:
        # IPv4 or IPv6
        family = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][0]
        with socket.create_server((address, 0), family=family) as server:
            port: int = server.getsockname()[1]
            return port
    except OSError as error:
        problem = f"this node cannot listen on {address} ({error.strerror or error})"
        raise ValueError(f"{problem}; set SLURM_LAUNCH_NODE_IPADDR to its address, in the profile's setup") from error
