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
from unittest.mock import Mock

import pytest

import repro.storage.lease
from repro.storage.files import write_json
from repro.storage.lease import DONE, EXIT_LOST, Owner, acquire, get_last_owner, has_succeeded
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
    first.release("ValueError: no")
    assert not has_succeeded(tmp_path)
    second = take_lease(tmp_path)
    second.release()
    assert (second.number, find_owner(tmp_path).outcome, has_succeeded(tmp_path)) == (2, DONE, True)


@pytest.mark.parametrize("is_reaped", [True, False])
def test_killed_owner_is_replaced_immediately(tmp_path: Path, is_reaped: bool) -> None:
    """Also if its parent has not collected its exit status: a zombie is dead."""
    holder = start_holder(tmp_path)
    assert acquire(tmp_path) is None
    os.kill(holder.pid, signal.SIGKILL)
    if is_reaped:
        holder.join()
    else:
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    take_lease(tmp_path).release()


def test_process_of_another_user_is_alive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc may hide the processes of other users. Then only the heart-beat tells whether the owner is alive."""
    holder = start_holder(tmp_path)
    monkeypatch.setattr("repro.storage.lease._read_birth", lambda pid: None)
    monkeypatch.setattr(os, "kill", Mock(side_effect=PermissionError))
    assert acquire(tmp_path) is None
    monkeypatch.undo()
    holder.kill()
    holder.join()


class Clocks:
    """Clocks of this process, and the heart-beat of an owner on another machine, under the control of a test."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Write the owner file of another machine."""
        self.seconds, self.path = 1000.0, folder / "000001.json"
        self.path.write_text(json.dumps({"host": "elsewhere", "pid": 1, "machine": "another boot", "born": "1"}))
        monkeypatch.setattr("repro.storage.lease.time.monotonic", lambda: self.seconds)
        monkeypatch.setenv("REPRO_DEAD_AFTER_SECONDS", "60")

    def wait(self, seconds: float) -> None:
        """Let seconds pass on the monotonic clock."""
        self.seconds += seconds

    def beat(self, at: float) -> None:
        """Set the time of the heart-beat, as the clock of the other machine or of the disk shows it."""
        os.utime(self.path, (at, at))


@pytest.fixture
def clocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Clocks:
    """Control the clocks of an owner on another machine."""
    return Clocks(tmp_path, monkeypatch)


@pytest.mark.parametrize("jump", [-(10**6), 0, 10**6])
def test_jumping_clock_takes_no_lease(tmp_path: Path, clocks: Clocks, jump: float) -> None:
    """Clocks of the owner, the disk and this machine may jump. Only this process's own monotonic clock counts."""
    for second in range(200):
        clocks.beat(time.time() + jump * (-1) ** second + second)
        assert acquire(tmp_path) is None
        clocks.wait(30)


def test_silent_foreign_owner_is_replaced(tmp_path: Path, clocks: Clocks) -> None:
    """Its age by the wall clock does not count, and neither does the time before this process looked."""
    clocks.beat(1.0)
    clocks.wait(1000)
    assert acquire(tmp_path) is None
    clocks.wait(59)
    assert acquire(tmp_path) is None
    clocks.wait(2)
    lease = take_lease(tmp_path)
    assert lease.number == 2
    lease.release()


@pytest.mark.parametrize("text", ["", "[" * 50_000, '{"pid": 1e400}'])
def test_damaged_owner_file_is_judged_by_beats(text: str, tmp_path: Path, clocks: Clocks) -> None:
    clocks.path.write_text(text)
    (tmp_path / "12x.json").write_text(text)
    assert (find_owner(tmp_path).number, find_owner(tmp_path).host) == (1, "?")
    assert acquire(tmp_path) is None
    clocks.wait(61)
    take_lease(tmp_path).release()


def test_heartbeat_extends_the_lease(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It outlasts the timeout, and errors of a network disk do not end it."""
    monkeypatch.setenv("REPRO_DEAD_AFTER_SECONDS", "0.6")
    lease = take_lease(tmp_path)
    num_beats = 0
    has_outlasted_timeout = threading.Event()

    def fail_twice() -> None:
        nonlocal num_beats
        num_beats += 1
        assert acquire(tmp_path) is None
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
    with limit_file_size(num_bytes), pytest.raises(OSError, match=re.escape(os.strerror(errno.EFBIG))):
        acquire(tmp_path)
    assert (get_last_owner(tmp_path), [*tmp_path.iterdir()]) == (None, [])


def test_full_disk_is_no_success(tmp_path: Path) -> None:
    lease = take_lease(tmp_path)
    with limit_file_size(0), pytest.raises(KeyError, match="the error that matters"), lease:
        raise KeyError("the error that matters")
    assert f"lease {tmp_path.name}" not in [thread.name for thread in threading.enumerate()]
    assert (find_owner(tmp_path).outcome, has_succeeded(tmp_path)) == ("", False)
    take_lease(tmp_path).release()


def hold_and_write(folder: Path, barrier: Any) -> None:
    """Hold the lease, with rare heart-beats, and write a file after the second wait."""
    os.environ["REPRO_DEAD_AFTER_SECONDS"] = "6000"
    take_lease(folder)
    barrier.wait()
    barrier.wait()
    write_json(folder / "result", "written")


@pytest.mark.parametrize("is_lost", [True, False])
def test_lost_owner_writes_nothing(tmp_path: Path, is_lost: bool) -> None:
    """An owner that was taken over compares its number before each write, also between two heart-beats."""
    barrier = FORK.Barrier(2, timeout=60)
    holder = FORK.Process(target=hold_and_write, args=(tmp_path, barrier))
    holder.start()
    barrier.wait()
    if is_lost:
        (tmp_path / "000002.json").touch()
    barrier.wait()
    holder.join(timeout=20)
    assert holder.exitcode == (EXIT_LOST if is_lost else 0)
    assert (tmp_path / "result").exists() != is_lost


def test_suspended_owner_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It exits as soon as it continues."""
    monkeypatch.setenv("REPRO_DEAD_AFTER_SECONDS", "0.5")
    holder = start_holder(tmp_path)
    os.kill(holder.pid, signal.SIGSTOP)
    time.sleep(0.2)
    assert acquire(tmp_path) is None
    time.sleep(0.7)
    lease = take_lease(tmp_path)
    os.kill(holder.pid, signal.SIGCONT)
    holder.join(timeout=10)
    assert holder.exitcode == EXIT_LOST
    assert find_owner(tmp_path).number == 2
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
        holder = start_holder(tmp_path)
        holder.kill()
        holder.join()
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


@pytest.mark.parametrize("value", ["nan", "0", "1e9"])
def test_impossible_timeout_is_refused(value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DEAD_AFTER_SECONDS", value)
    with pytest.raises(ValueError, match="REPRO_DEAD_AFTER_SECONDS="):
        acquire(tmp_path)
