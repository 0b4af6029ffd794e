"""Leases: one owner at a time. The lease of a dead owner is taken over, and only once."""

import errno
import json
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import repro.storage.lease
from repro.storage.lease import EXIT_LOST, Owner, acquire, look, owners
from repro.storage.paths import CHECKOUT
from repro.storage.stages import Stage
from tests.leases import find_owner, take_lease

HOLD = """
import sys, time
from pathlib import Path
from repro.storage.lease import acquire
lease = acquire(Path(sys.argv[1]))
print("held" if lease else "refused", flush=True)
time.sleep(60)
"""


def start_holder(folder: Path, dead_after_seconds: float = 60) -> subprocess.Popen[str]:
    """Start a process that holds the lease."""
    env = os.environ | {"REPRO_DEAD_AFTER_SECONDS": str(dead_after_seconds), "PYTHONPATH": str(CHECKOUT)}
    started = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], env=env, stdout=subprocess.PIPE, text=True)
    assert started.stdout.readline() == "held\n"
    return started


def test_lease_is_exclusive(tmp_path: Path) -> None:
    assert look(tmp_path / "unused") is None and owners(tmp_path / "unused") == []
    first = take_lease(tmp_path)
    assert acquire(tmp_path) is None
    first.release("done")
    second = take_lease(tmp_path)
    assert second.number == 2
    second.release()
    assert [owner.outcome for owner in owners(tmp_path)] == ["done", ""]


def test_killed_owner_is_replaced_immediately(tmp_path: Path) -> None:
    process = start_holder(tmp_path)
    assert acquire(tmp_path) is None
    process.send_signal(signal.SIGKILL)
    process.wait()
    take_lease(tmp_path).release()


def write_foreign_owner(folder: Path, silent_seconds: float, **values: object) -> None:
    """Write the owner file of a process on another machine. Its last heartbeat was `silent_seconds` ago."""
    owner = {"host": "elsewhere", "pid": 1, "machine": "another boot", "born": "1", "since": 0.0, "note": {}}
    path = folder / "000001.json"
    path.write_text(json.dumps(owner | {"dead_after_seconds": 60} | values))
    os.utime(path, (time.time() - silent_seconds,) * 2)


def test_remote_owner_expires(tmp_path: Path) -> None:
    write_foreign_owner(tmp_path, silent_seconds=50)
    assert acquire(tmp_path) is None
    write_foreign_owner(tmp_path, silent_seconds=70)
    take_lease(tmp_path).release()


def test_unfinished_owner_file_is_alive(tmp_path: Path) -> None:
    (tmp_path / "000001.json").touch()
    assert acquire(tmp_path) is None


def test_heartbeat_extends_the_lease(tmp_path: Path) -> None:
    process = start_holder(tmp_path, dead_after_seconds=0.6)
    time.sleep(1.5)
    owner = find_owner(tmp_path)
    assert owner.is_alive and owner.age_seconds < 0.6
    process.kill()
    process.wait()


def test_heartbeat_survives_failing_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors of a network disk at a heartbeat do not end it."""
    monkeypatch.setenv("REPRO_DEAD_AFTER_SECONDS", "0.6")
    lease = take_lease(tmp_path)
    beats: list[float] = []

    def fails_twice() -> None:
        beats.append(time.monotonic())
        if len(beats) <= 2:
            raise OSError(errno.ESTALE, "Stale file handle")

    lease.on_beat = fails_twice
    time.sleep(1.5)
    owner = find_owner(tmp_path)
    assert owner.is_alive and len(beats) > 4
    lease.release()


@contextmanager
def limit_file_size(num_bytes: int) -> Iterator[None]:
    """Limit the size of files, as a nearly full disk does: a longer write is cut, then fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (num_bytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("num_bytes", [0, 20])
def test_full_disk_leaves_no_owner(num_bytes: int, tmp_path: Path) -> None:
    num_open = len([*Path("/proc/self/fd").iterdir()])
    with limit_file_size(num_bytes), pytest.raises(OSError, match=re.escape(os.strerror(errno.EFBIG))):
        acquire(tmp_path)
    assert (look(tmp_path), [*tmp_path.iterdir()]) == (None, [])
    assert len([*Path("/proc/self/fd").iterdir()]) == num_open
    lease = take_lease(tmp_path)
    assert lease.number == 1, "the lease is free once there is space"
    lease.release()


def test_full_disk_hides_no_error(tmp_path: Path) -> None:
    lease = take_lease(tmp_path)
    with limit_file_size(0), pytest.raises(KeyError, match="the error that matters"), lease:
        raise KeyError("the error that matters")
    assert f"lease {tmp_path.name}" not in [thread.name for thread in threading.enumerate()]
    owner = find_owner(tmp_path)
    assert not owner.is_alive
    assert owner.outcome is None, "an empty outcome would mean success"


def test_unwritable_outcome_is_no_success(tmp_path: Path) -> None:
    lease = take_lease(tmp_path)
    with pytest.raises(OSError, match="no such file"), lease:
        raise OSError("no such file: caf\udce9.json")
    owner = find_owner(tmp_path)
    assert owner.outcome == "OSError: no such file: caf?.json"
    assert f"lease {tmp_path.name}" not in [thread.name for thread in threading.enumerate()]


def test_suspended_owner_writes_nothing(tmp_path: Path) -> None:
    process = start_holder(tmp_path, dead_after_seconds=0.5)
    process.send_signal(signal.SIGSTOP)
    time.sleep(0.8)
    lease = take_lease(tmp_path)
    process.send_signal(signal.SIGCONT)
    assert process.wait(timeout=10) == EXIT_LOST
    owner = find_owner(tmp_path)
    assert (owner.number, owner.is_alive) == (2, True)
    lease.release()


def contend(folder: Path, barrier: Any, won: "multiprocessing.Queue[int]") -> None:
    """Try once to acquire the lease. All processes look for an owner before any creates one."""
    owners_seen = []

    def look_and_wait(folder: Path) -> Owner | None:
        owner = look(folder)
        if not owners_seen:
            barrier.wait()
        owners_seen.append(owner)
        return owner

    repro.storage.lease.look = look_and_wait
    lease = acquire(folder)
    if lease is not None:
        won.put(lease.number)
        time.sleep(1.0)


@pytest.mark.parametrize("takes_over", [False, True])
def test_one_racing_process_wins(tmp_path: Path, takes_over: bool) -> None:
    if takes_over:
        write_foreign_owner(tmp_path, silent_seconds=100)
    context = multiprocessing.get_context("fork")
    won: multiprocessing.Queue[int] = context.Queue()
    barrier = context.Barrier(12)
    racers = [context.Process(target=contend, args=(tmp_path, barrier, won)) for _ in range(12)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert won.get(timeout=1) == (2 if takes_over else 1)
    assert won.empty()


def build_counted(folder: Path, number: int) -> None:
    """Build one stage. Each build leaves a file, so that builds can be counted."""

    def make(part: Path) -> None:
        (folder / f"made-{number}").touch()
        time.sleep(0.5)
        (part / "value").write_text("whole")

    Stage("counted", {"of": "test"}, make).build()


def test_concurrent_stage_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    context = multiprocessing.get_context("fork")
    builders = [context.Process(target=build_counted, args=(tmp_path, number)) for number in range(8)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join()
    assert [builder.exitcode for builder in builders] == [0] * 8
    assert len(list(tmp_path.glob("made-*"))) == 1
    assert len(list(tmp_path.glob("stages/counted/*/value"))) == 1


def test_killed_builder_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))
    context = multiprocessing.get_context("fork")
    first = context.Process(target=build_counted, args=(tmp_path, 1))
    first.start()
    while not list(tmp_path.glob("made-*")):
        time.sleep(0.01)
    os.kill(first.pid or 0, signal.SIGKILL)
    first.join()
    assert not list(tmp_path.glob("stages/counted/*/value"))
    build_counted(tmp_path, 2)
    assert len(list(tmp_path.glob("stages/counted/*/value"))) == 1


FORGED = {
    "far in the future": ({}, -(10**9)),
    "endless timeout": ({"dead_after_seconds": 1e300}, 10**5),
    "timeout is a text": ({"dead_after_seconds": "long"}, 10**5),
    "timeout is null": ({"dead_after_seconds": None}, 10**5),
    "wrong types": ({"machine": 3, "pid": "x", "born": [], "note": 3}, 10**5),
}


@pytest.mark.parametrize("forgery", FORGED)
def test_forged_owner_is_taken_over(forgery: str, tmp_path: Path) -> None:
    """Heartbeats in the future and impossible timeouts do not keep a lease. Timeouts are capped at 24 hours."""
    values, silent_seconds = FORGED[forgery]
    write_foreign_owner(tmp_path, silent_seconds, **values)
    lease = take_lease(tmp_path)
    assert lease.number == 2
    lease.release()


@pytest.mark.parametrize("text", ["{}}", "[" * 50_000 + "}", "\x00}", "3", "null", '{"a": }'])
def test_damaged_owner_file_is_unknown(text: str, tmp_path: Path) -> None:
    (tmp_path / "000001.json").write_text(text)
    (tmp_path / "12x.json").write_text(text)
    owner = find_owner(tmp_path)
    assert (owner.number, owner.host) == (1, "?")
    assert len(owners(tmp_path)) == 1


@pytest.mark.parametrize("value", ["", "x", "nan", "inf", "-1", "0", "1e9"])
def test_impossible_timeout_is_refused(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DEAD_AFTER_SECONDS", value)
    with pytest.raises(ValueError, match="REPRO_DEAD_AFTER_SECONDS="):
        acquire(tmp_path)
