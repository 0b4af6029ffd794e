"""Leases: one owner at a time. The lease of a dead owner is taken over, and only once."""

import errno
import json
import multiprocessing
import os
import re
import resource
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest

import repro.storage.lease
from repro.storage.lease import (
    EXIT_LOST,
    Owner,
    acquire,
    get_last_owner,
    lease_folder,
    list_owners,
    remove_leftovers,
)
from repro.storage.paths import get_corpora_folder
from repro.storage.stages import Stage
from tests.leases import find_owner, take_lease

FORK = multiprocessing.get_context("fork")


def run_in_processes(function: Callable[..., None], arguments: list[tuple[Any, ...]]) -> None:
    """Call a function in parallel processes, one per tuple of arguments. All must succeed."""
    processes = [FORK.Process(target=function, args=args) for args in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0] * len(processes)


def hold(folder: Path, barrier: Any) -> None:
    """Acquire the lease, and hold it until this process is killed."""
    take_lease(folder)
    barrier.wait()
    time.sleep(600)


def start_holder(folder: Path) -> BaseProcess:
    """Start a process that holds the lease."""
    barrier = FORK.Barrier(2, timeout=60)
    process = FORK.Process(target=hold, args=(folder, barrier), daemon=True)
    process.start()
    barrier.wait()
    return process


def test_lease_is_exclusive(tmp_path: Path) -> None:
    assert get_last_owner(tmp_path) is None
    first = take_lease(tmp_path)
    assert acquire(tmp_path) is None
    first.release("done")
    second = take_lease(tmp_path)
    assert second.number == 2
    second.release()
    assert [owner.outcome for owner in list_owners(tmp_path)] == ["done", ""]


def test_killed_owner_is_replaced_immediately(tmp_path: Path) -> None:
    holder = start_holder(tmp_path)
    assert acquire(tmp_path) is None
    holder.kill()
    holder.join()
    take_lease(tmp_path).release()


def test_hidden_process_of_another_user_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc may hide the processes of other users. Then only the heart-beat tells whether the owner is alive."""
    holder = start_holder(tmp_path)
    monkeypatch.setattr("repro.storage.lease._read_start_time", lambda pid: None)

    def refuse(pid: int, signal_number: int) -> None:
        raise PermissionError(f"process {pid} is of another user")

    monkeypatch.setattr(os, "kill", refuse)
    assert acquire(tmp_path) is None
    monkeypatch.undo()
    holder.kill()
    holder.join()


def write_foreign_owner(folder: Path, silent_seconds: float, **values: object) -> None:
    """Write the owner file of a process on another machine. Its last heartbeat was `silent_seconds` ago."""
    owner = {"host": "elsewhere", "pid": 1, "machine": "another boot", "born": "1", "note": {}}
    path = folder / "000001.json"
    path.write_text(json.dumps(owner | {"dead_after_seconds": 60} | values))
    os.utime(path, (time.time() - silent_seconds,) * 2)


DAY_SECONDS = 86_400
FOREIGN_OWNERS = {
    "recent heartbeat": ({}, 50, True),
    "old heartbeat": ({}, 70, False),
    "heartbeat far in the future": ({}, -(10**9), False),
    "endless timeout": ({"dead_after_seconds": 1e300}, DAY_SECONDS + 60, False),
    "timeout is a text": ({"dead_after_seconds": "long"}, DAY_SECONDS, False),
    "timeout is null": ({"dead_after_seconds": None}, DAY_SECONDS, False),
    "wrong types": ({"machine": 3, "pid": "x", "born": [], "note": 3}, DAY_SECONDS, False),
}


@pytest.mark.parametrize(("values", "silent_seconds", "is_alive"), FOREIGN_OWNERS.values(), ids=FOREIGN_OWNERS)
def test_silent_foreign_owner_is_replaced(
    values: dict[str, object], silent_seconds: float, is_alive: bool, tmp_path: Path
) -> None:
    """Heartbeats in the future and impossible timeouts do not keep a lease."""
    write_foreign_owner(tmp_path, silent_seconds, **values)
    lease = acquire(tmp_path)
    assert (lease is None) == is_alive
    if lease is not None:
        assert lease.number == 2
        lease.release()


def test_unfinished_owner_file_is_alive(tmp_path: Path) -> None:
    (tmp_path / "000001.json").touch()
    assert acquire(tmp_path) is None


def test_heartbeat_extends_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It outlasts the timeout, and errors of a network disk do not end it."""
    monkeypatch.setenv("REPRO_DEAD_AFTER_SECONDS", "0.6")
    lease = take_lease(tmp_path)
    num_beats = 0
    has_outlasted_timeout = threading.Event()

    def fail_twice() -> None:
        nonlocal num_beats
        num_beats += 1
        if num_beats <= 2:
            raise OSError(errno.ESTALE, "Stale file handle")
        if num_beats == 8:  # six per timeout
            has_outlasted_timeout.set()

    lease.on_beat = fail_twice
    assert has_outlasted_timeout.wait(20)
    assert find_owner(tmp_path).is_alive
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
    assert (get_last_owner(tmp_path), [*tmp_path.iterdir()]) == (None, [])
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
    assert (owner.is_alive, owner.outcome) == (False, None), "an empty outcome would mean success"
    assert owner.is_released, "it did not die"


def test_unwritable_outcome_is_no_success(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no such file"), take_lease(tmp_path):
        raise OSError("no such file: caf\udce9.json")
    assert find_owner(tmp_path).outcome == "OSError: no such file: caf?.json"


def test_suspended_owner_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that was taken over while it was suspended exits as soon as it continues."""
    with monkeypatch.context() as patch:
        patch.setenv("REPRO_DEAD_AFTER_SECONDS", "0.5")
        holder = start_holder(tmp_path)
    os.kill(holder.pid, signal.SIGSTOP)
    time.sleep(0.7)
    lease = take_lease(tmp_path)
    os.kill(holder.pid, signal.SIGCONT)
    holder.join(timeout=10)
    assert holder.exitcode == EXIT_LOST
    owner = find_owner(tmp_path)
    assert (owner.number, owner.is_alive) == (2, True)
    lease.release()


def contend(folder: Path, barrier: Any, winners: "multiprocessing.Queue[int]") -> None:
    """Try once to acquire the lease. All processes look for an owner before any creates one."""
    has_looked = False

    def look_and_wait(folder: Path) -> Owner | None:
        nonlocal has_looked
        owner = get_last_owner(folder)
        if not has_looked:
            barrier.wait()
        has_looked = True
        return owner

    repro.storage.lease.get_last_owner = look_and_wait
    lease = acquire(folder)
    if lease is not None:
        winners.put(lease.number)
    barrier.wait()  # the winner lives until all have tried


@pytest.mark.parametrize("takes_over", [False, True])
def test_one_racing_process_wins(tmp_path: Path, takes_over: bool) -> None:
    if takes_over:
        write_foreign_owner(tmp_path, silent_seconds=100)
    winners: multiprocessing.Queue[int] = FORK.Queue()
    barrier = FORK.Barrier(12, timeout=60)
    run_in_processes(contend, [(tmp_path, barrier, winners)] * 12)
    assert winners.get(timeout=1) == (2 if takes_over else 1)
    assert winners.empty()


def build_counted(folder: Path, number: int) -> None:
    """Build one stage. Each build leaves a file, so that builds can be counted."""

    def make(part: Path) -> None:
        (folder / f"made-{number}").touch()
        time.sleep(0.3)
        (part / "value").write_text("whole")

    Stage("counted", {"of": "test"}, make).build()


def test_concurrent_stage_is_built_once(own_home: Path, tmp_path: Path) -> None:
    run_in_processes(build_counted, [(tmp_path, number) for number in range(4)])
    assert len(list(tmp_path.glob("made-*"))) == 1
    assert len(list(own_home.glob("stages/counted/*/value"))) == 1


def test_killed_builder_is_replaced(own_home: Path, tmp_path: Path) -> None:
    builder = FORK.Process(target=build_counted, args=(tmp_path, 1))
    builder.start()
    while not (tmp_path / "made-1").exists():
        time.sleep(0.01)
    builder.kill()
    builder.join()
    assert not list(own_home.glob("stages/counted/*/value"))
    build_counted(tmp_path, 2)
    assert len(list(own_home.glob("stages/counted/*/value"))) == 1


@pytest.mark.parametrize("text", ["{}}", "[" * 50_000 + "}", "\x00}", "3", "null", '{"a": }'])
def test_damaged_owner_file_is_unknown(text: str, tmp_path: Path) -> None:
    (tmp_path / "000001.json").write_text(text)
    (tmp_path / "12x.json").write_text(text)
    owner = find_owner(tmp_path)
    assert (owner.number, owner.host) == (1, "?")
    assert len(list_owners(tmp_path)) == 1


@pytest.mark.parametrize("value", ["", "x", "nan", "inf", "-1", "0", "1e9"])
def test_impossible_timeout_is_refused(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DEAD_AFTER_SECONDS", value)
    with pytest.raises(ValueError, match="REPRO_DEAD_AFTER_SECONDS="):
        acquire(tmp_path)


def test_leftovers_of_similar_names_stay() -> None:
    """The name of an import may continue that of another one after a dot."""
    path, other = get_corpora_folder() / "mine", get_corpora_folder() / "mine.v2"
    parts = [each.with_name(f".{each.name}.0123abcd.part") for each in (path, other)]
    for each, part in zip((path, other), parts, strict=True):
        part.mkdir(parents=True)
        take_lease(lease_folder(each))
    remove_leftovers(path)
    assert [part.exists() for part in parts] == [False, True]
