"""Leases on a shared disk: exclusive ownership of a folder, with a heart-beat and a take-over from dead owners.

A lease is a folder of numbered owner files, 000001.json, 000002.json, …, and the highest number is the current owner.
A process acquires the lease by creating the next number with O_EXCL, so exactly one of several competing processes
succeeds. This requires only exclusive creation, which is atomic on NFS from version 3. Owner files stay when a lease ends. Only
`repro prune` removes those of a training run, with its checkpoint.

The lease is free if there is no owner, if the owner has ended (a file NNNNNN.ended exists), or if it is dead. An owner
on this machine is dead if its process no longer exists. Any owner is dead if its heart-beat (the modification time of
its file) stands still while the waiting process measures the timeout with its own monotonic clock. A clock that is set
therefore never frees a lease.

An owner that finds a higher number was suspended or cut off from the disk. It exits with EXIT_LOST and writes nothing:
`check_leases` compares the numbers before each write.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

EXIT_LOST = 76
"""Exit status of a process that lost its lease while it was alive."""
DONE = "done"
"""Outcome of an owner that succeeded. Any other outcome is an error, or empty if the disk was full."""
POLL_SECONDS = 1.0
# By lease folder: number and heart-beat of the last owner, and when this process first saw them, on its own clock.
_BEATS: dict[Path, tuple[int, int, float]] = {}
_HELD: set[Lease] = set()


def get_lease_timeout() -> float:
    """Return the seconds without a heart-beat after which others take over (REPRO_DEAD_AFTER_SECONDS, default 180).

    Attribute caches of network disks hide a heart-beat for up to a minute. Values above 120 are safe on a shared disk.
    """
    seconds = float(os.environ.get("REPRO_DEAD_AFTER_SECONDS", "180"))
    if not 0 < seconds <= 86_400:
        raise ValueError(f"REPRO_DEAD_AFTER_SECONDS={seconds}: must be above 0 and at most 86400")
    return seconds


@dataclass(frozen=True)
class Owner:
    """One owner of a lease, read from the disk."""

    number: int  # 1 for the first owner of this lease
    host: str
    pid: int
    beat_ns: int  # time of the last heart-beat
    is_here: bool  # on this machine and in this PID namespace, so its process can be signalled
    is_gone: bool  # it was here and its process no longer exists
    outcome: str | None  # None while it has not ended

    @property
    def age_seconds(self) -> float:
        """Seconds since the last heart-beat, by the clock of this machine."""
        return time.time() - self.beat_ns / 1e9

    @property
    def is_alive(self) -> bool:
        """Whether it seems to be alive. Only for display and advice, because clocks differ: `acquire` decides."""
        return self.outcome is None and not self.is_gone and abs(self.age_seconds) < get_lease_timeout()

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, last heart-beat {self.age_seconds:.0f} s ago"


class Lease:
    """A lease that this process holds. A thread updates its heart-beat until `release`."""

    def __init__(self, folder: Path, number: int) -> None:
        """Start the heart-beat on a new owner file. Use `acquire` to create a lease."""
        self.folder, self.number = folder, number
        self.on_beat: Callable[[], None] = lambda: None
        self._timeout_seconds = get_lease_timeout()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {folder.name}", daemon=True)
        _HELD.add(self)
        self._thread.start()

    def check(self) -> None:
        """Exit the process if another one has taken over this lease."""
        if not self._ended.is_set() and _get_owner_file(self.folder, self.number + 1).exists():
            _exit_lost()

    def release(self, outcome: str = DONE) -> None:
        """End the lease, so that the next process can acquire it immediately."""
        if self._ended.is_set():
            return
        _HELD.discard(self)
        self._ended.set()
        # On a full disk the file stays empty. It frees the lease too, and without one the heart-beat stands still.
        with suppress(OSError):
            _get_ended_file(self.folder, self.number).write_bytes(outcome.encode(errors="replace"))
        # The heart-beat thread may release its own lease, and a thread cannot join itself.
        if threading.current_thread() is not self._thread:
            self._thread.join()

    def _beat(self) -> None:
        last = time.monotonic()
        # Six beats per timeout, so that a few failed ones do not look like a death. Others may have a shorter one.
        while not self._ended.wait(min(30.0, self._timeout_seconds / 6)):
            try:
                os.utime(_get_owner_file(self.folder, self.number))
                last = time.monotonic()
                self.check()
                self.on_beat()
            except OSError:
                # A network disk may fail for a moment. After the timeout, others have taken over.
                if time.monotonic() - last > self._timeout_seconds and not self._ended.is_set():
                    _exit_lost()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release(DONE if error is None else f"{type(error).__name__}: {error}")


def check_leases() -> None:
    """Exit the process if it has lost any of its leases. Call it before each write."""
    for lease in tuple(_HELD):
        lease.check()


def acquire(folder: Path) -> Lease | None:
    """Acquire the lease of a folder. Return None if another owner holds it, as far as this process can tell.

    A process that polls judges heart-beats on its own clock, so it finds a dead owner of another machine in the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        last = get_last_owner(folder)
        if last is not None and last.outcome is None and not last.is_gone and not _stands_still(folder, last):
            return None
        number = last.number + 1 if last else 1
        path = _get_owner_file(folder, number)
        try:
            # Exclusive creation decides the race: a loser finds the new owner in the next iteration.
            file = path.open("x")
        except FileExistsError:
            continue
        pid = os.getpid()
        content = {"host": socket.gethostname(), "pid": pid, "machine": _identify_machine(), "born": _read_birth(pid)}
        try:
            with file:
                file.write(json.dumps(content))
        except OSError:
            # a full disk: remove the owner file, or others would wait for it
            path.unlink()
            raise
        return Lease(folder, number)


def acquire_when_free(
    folder: Path, report: Callable[[Owner | str], None], *, check: Callable[[], None] = lambda: None
) -> Lease:
    """Acquire the lease of a folder, and wait for it if necessary.

    Args:
        folder: The folder of the lease.
        report: Called once with the owner that this process waits for, or its description.
        check: Called before each attempt. An exception ends the wait.
    """
    is_reported = False
    while True:
        check()
        if lease := acquire(folder):
            return lease
        if not is_reported:
            report(get_last_owner(folder) or "another process")
            is_reported = True
        time.sleep(POLL_SECONDS)


def _stands_still(folder: Path, owner: Owner) -> bool:
    """Return whether this process has seen no heart-beat of an owner for longer than the timeout."""
    now = time.monotonic()
    number, beat_ns, since = _BEATS.get(folder, (0, 0, now))
    if (number, beat_ns) != (owner.number, owner.beat_ns):
        since = now
    _BEATS[folder] = owner.number, owner.beat_ns, since
    return now - since > get_lease_timeout()


def get_last_owner(folder: Path) -> Owner | None:
    """Return the last owner of a lease, or None if it never had one."""
    numbers = [int(path.stem) for path in folder.glob("[0-9]*.json") if path.stem.isascii() and path.stem.isdigit()]
    if not numbers:
        return None
    number = max(numbers)
    # a network disk may return an outdated list of files
    while _get_owner_file(folder, number + 1).exists():
        number += 1
    # opening a file refreshes the attribute cache of NFS
    with _get_owner_file(folder, number).open(errors="replace") as file:
        text = file.read()
        beat_ns = os.fstat(file.fileno()).st_mtime_ns
    try:
        values = json.loads(text)
        host, pid = str(values["host"]), int(values["pid"])
        machine, birth = values["machine"], values["born"]
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        # A new owner file may still be empty. Its heart-beat decides.
        host, pid, machine, birth = "?", 0, None, None
    ended = _get_ended_file(folder, number)
    is_here = machine is not None and machine == _identify_machine()
    return Owner(
        number=number,
        host=host,
        pid=pid,
        beat_ns=beat_ns,
        is_here=is_here,
        is_gone=is_here and _is_gone(pid, birth),
        outcome=ended.read_text(encoding="utf-8", errors="replace") if ended.exists() else None,
    )


def get_live_owner(folder: Path) -> Owner | None:
    """Return the owner that seems to hold a lease, or None if the lease is free."""
    owner = get_last_owner(folder)
    return owner if owner is not None and owner.is_alive else None


def has_succeeded(folder: Path) -> bool:
    """Return whether any owner of a lease has ended its work successfully."""
    return any(path.read_text(encoding="utf-8", errors="replace") == DONE for path in folder.glob("[0-9]*.ended"))


def _get_owner_file(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.json"


def _get_ended_file(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.ended"


def _exit_lost() -> None:
    print("another process has taken over this work; exiting without writing", file=sys.stderr, flush=True)
    # No cleanup: handlers and `finally` blocks would write to folders that now belong to another process.
    os._exit(EXIT_LOST)


def _identify_machine() -> str | None:
    """Return an id of the current boot and PID namespace, or None if the system does not provide it."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _read_birth(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot, or None if it has ended."""
    try:
        # The second field is the program's name and may contain spaces and parentheses, so split after the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # Z and X: zombie and dead; field 22 of stat is the start time
    return None if fields[0] in "ZX" else fields[19]


def _is_gone(pid: int, birth: object) -> bool:
    """Return whether a process of this machine no longer exists. `birth` distinguishes it from one with the same PID."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        # It is of another user, whose start time /proc may hide. Its heart-beat decides.
        return False
    except (OSError, OverflowError):
        return True
    return _read_birth(pid) != birth
