"""Leases on a shared disk: exclusive ownership of a folder, with a heart-beat and a take-over from dead owners.

A lease is a folder of numbered owner files, 000001.json, 000002.json, …, and the highest number is the current owner.
The lease is free if there is no owner, if the current owner has ended (a file NNNNNN.ended exists), or if it is dead.
A process acquires the lease by creating the next number with O_EXCL, so exactly one of several competing processes
succeeds. No file of a living owner is ever renamed or removed. This requires only exclusive creation, which is atomic
on NFS from version 3.

An owner is dead if its heart-beat is older than its own timeout, or if it ran on this machine and its process no longer
exists. The heart-beat is the modification time of the owner file, compared with the clock of the disk. An owner that
finds a higher number was considered dead, because it was suspended or cut off from the disk. It must not write any
more, so its process exits.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from repro.storage.paths import get_building_folder, get_corpora_folder, get_imports_folder

MAX_OWNER_BYTES = 2**16
MAX_TIMEOUT_SECONDS = 86_400.0
"""Lease timeouts are capped at 24 hours."""
NO_HEART_BEAT = 0
"""Time of the heart-beat of an owner that could not store its outcome."""
OFFSET_VALID_SECONDS = 60.0
# by device: the offset of its clock, and the time of the measurement
_OFFSETS: dict[int, tuple[float, float]] = {}
EXIT_LOST = 76
"""Exit status of a process that lost its lease while it was alive."""


def get_lease_timeout() -> float:
    """Return the seconds without a heart-beat after which others take over (REPRO_DEAD_AFTER_SECONDS, default 180).

    Attribute caches of network disks hide a heart-beat for up to a minute. Values above 120 are safe on a shared disk.
    """
    return parse_timeout(os.environ.get("REPRO_DEAD_AFTER_SECONDS", "180"), "REPRO_DEAD_AFTER_SECONDS")


def parse_timeout(value: Any, where: str) -> float:
    """Return a lease timeout in seconds. Raises ValueError unless it is above 0 and at most a day.

    `where` is the name of the setting in the message.
    """
    try:
        seconds = float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}={str(value)[:40]!r}: expected seconds, as a number") from error
    if not 0 < seconds <= MAX_TIMEOUT_SECONDS:
        raise ValueError(f"{where}={seconds}: must be above 0 and at most {MAX_TIMEOUT_SECONDS:.0f}")
    return seconds


@dataclass(frozen=True)
class Owner:
    """One owner of a lease, read from the disk."""

    number: int  # 1 for the first owner of this lease
    host: str
    pid: int
    age_seconds: float  # since the last heart-beat
    is_alive: bool
    is_here: bool  # on this machine and in this PID namespace, so its process can be signalled
    outcome: str | None  # message at its end, or None while it has not ended
    is_released: bool  # it has ended by itself, even if a full disk did not store its outcome
    note: Mapping[str, Any]

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, last heart-beat {self.age_seconds:.0f} s ago"


class Lease:
    """A lease that this process holds. A thread updates its heart-beat until `release`."""

    def __init__(self, folder: Path, number: int, *, descriptor: int) -> None:
        """Start the heart-beat on a new owner file. Use `acquire` to create a lease."""
        self.folder, self.number = folder, number
        self.on_beat: Callable[[], None] = lambda: None
        self._descriptor = descriptor
        self._timeout_seconds = get_lease_timeout()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {folder.name}", daemon=True)
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken over this lease."""
        return _get_owner_file(self.folder, self.number + 1).exists()

    def release(self, outcome: str = "") -> None:
        """End the lease, so that the next process can acquire it immediately."""
        if self._ended.is_set():
            return
        self._ended.set()
        is_written = _write_outcome(_get_ended_file(self.folder, self.number), outcome)
        # the heart-beat thread may release its own lease, and a thread cannot join itself
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if not is_written:
            # on a full disk, an old heart-beat frees the lease without using space
            with suppress(OSError):
                os.utime(self._descriptor, (NO_HEART_BEAT, NO_HEART_BEAT))
        os.close(self._descriptor)

    def _beat(self) -> None:
        last = time.monotonic()
        # six beats per timeout, so that a few failed ones do not look like a death
        while not self._ended.wait(self._timeout_seconds / 6):
            try:
                # by descriptor, so that a heart-beat never touches the file of another owner
                os.utime(self._descriptor)
                last = time.monotonic()
                # a released lease may have its next owner already
                if self.is_lost and not self._ended.is_set():
                    _exit_lost()
                self.on_beat()
            except OSError:
                # a network disk may fail for a moment; the next beat tries again
                if time.monotonic() - last > self._timeout_seconds and not self._ended.is_set():
                    _exit_lost()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release("" if error is None else f"{type(error).__name__}: {error}")


def acquire(folder: Path, *, note: Mapping[str, Any] | None = None) -> Lease | None:
    """Acquire the lease of a folder. Return None if a living owner holds it.

    `note` is stored in the owner file, for example a job number or the path of a log. If the lease is lost, the
    heart-beat thread exits the process with EXIT_LOST, because another process now does the work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        last = get_last_owner(folder)
        if last is not None and last.is_alive:
            return None
        # The dead or ended owner keeps its number. Removing its file could remove that of a faster competitor.
        number = last.number + 1 if last else 1
        try:
            # O_EXCL decides the race: a loser finds the new owner in the next iteration
            descriptor = os.open(_get_owner_file(folder, number), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        except FileExistsError:
            continue
        try:
            # unlike os.write, it never writes only a part
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(json.dumps(_describe_owner() | {"note": dict(note or {})}).encode())
            # Other machines must see the content, or they would judge this owner by the default timeout.
            os.fsync(descriptor)
        except OSError:
            # a full disk: remove the owner file, or others would wait for it
            os.close(descriptor)
            _get_owner_file(folder, number).unlink()
            raise
        return Lease(folder, number, descriptor=descriptor)


def get_last_owner(folder: Path) -> Owner | None:
    """Return the last owner of a lease, or None if it never had one."""
    numbers = _list_numbers(folder)
    if not numbers:
        return None
    number = max(numbers)
    # a network disk may return an outdated list of files
    while _get_owner_file(folder, number + 1).exists():
        number += 1
    return _read_owner(folder, number)


def get_live_owner(folder: Path) -> Owner | None:
    """Return the owner that holds a lease, or None if the lease is free."""
    owner = get_last_owner(folder)
    return owner if owner is not None and owner.is_alive else None


def lease_folder(path: Path) -> Path:
    """Return the folder of the lease for building a stage or importing a corpus, given the path of the result."""
    if path.parent == get_corpora_folder():
        return get_imports_folder() / path.name / "owner"
    return get_building_folder(path) / "owner"


def get_part_owner(part: Path) -> Owner | None:
    """Return the last owner that wrote a temporary path (`.NAME.DIGITS.part`), or None if there was no lease."""
    return get_last_owner(lease_folder(_get_target(part)))


def _get_target(part: Path) -> Path:
    # names may contain dots, so the last two are those of the digits and the ending
    return part.with_name(part.name[1:].rsplit(".", 2)[0])


def remove_leftovers(path: Path) -> None:
    """Remove the temporary folders that killed writers left next to `path`. The caller holds the lease of `path`."""
    for part in path.parent.glob(".*.part"):
        owner = get_part_owner(part)
        is_ours = _get_target(part) == path
        # A temporary folder without an owner may belong to another program, so it stays.
        if owner is not None and (is_ours or not owner.is_alive):
            shutil.rmtree(part, ignore_errors=True)


def list_owners(folder: Path) -> list[Owner]:
    """Return all owners of a lease, first to last."""
    return [_read_owner(folder, number) for number in sorted(_list_numbers(folder))]


def _list_numbers(folder: Path) -> list[int]:
    files = folder.glob("[0-9]*.json") if folder.is_dir() else ()
    return [int(path.stem) for path in files if path.stem.isascii() and path.stem.isdigit() and path.is_file()]


def _read_owner(folder: Path, number: int) -> Owner:
    # opening a file refreshes the attribute cache of NFS
    with _get_owner_file(folder, number).open(errors="replace") as file:
        text = file.read(MAX_OWNER_BYTES)
        beat = os.fstat(file.fileno()).st_mtime
    # a new owner file may still be empty: it counts as alive, with the default timeout
    values = _parse_owner(text)
    # abs: a heart-beat far in the future is not from a living owner, which would have updated it since
    age = abs(time.time() + _get_clock_offset(folder) - beat)
    ended = _get_ended_file(folder, number)
    outcome = ended.read_text(encoding="utf-8", errors="replace") if ended.exists() else None
    # Each owner is judged by the timeout it started with, not by that of the reader.
    is_alive = outcome is None and age < values["dead_after_seconds"] and not _is_gone(values)
    return Owner(
        number=number,
        host=values.get("host", "?"),
        pid=values.get("pid", 0),
        age_seconds=age,
        is_alive=is_alive,
        is_here=_is_here(values),
        outcome=outcome,
        is_released=outcome is not None or beat == NO_HEART_BEAT,
        note=values.get("note", {}),
    )


def _parse_owner(text: str) -> dict[str, Any]:
    """Return the valid values of an owner file. Values of a wrong type are dropped."""
    try:
        content = json.loads(text) if text.endswith("}") else {}
    except (ValueError, RecursionError):
        content = {}
    types: dict[str, Any] = {"host": str, "pid": int, "machine": str, "born": str, "note": dict}
    stored = content if isinstance(content, dict) else {}
    values = {name: stored[name] for name, kind in types.items() if isinstance(stored.get(name), kind)}
    try:
        timeout = parse_timeout(stored.get("dead_after_seconds"), "dead_after_seconds")
    except ValueError:
        timeout = get_lease_timeout()
    return {**values, "dead_after_seconds": timeout}


def _get_owner_file(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.json"


def _get_ended_file(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.ended"


def _write_outcome(path: Path, outcome: str) -> bool:
    """Write the outcome of an owner and return whether it succeeded.

    On a full disk, the file is removed, because an empty one would mean success.
    """
    try:
        path.write_bytes(outcome.encode(errors="replace"))
    except OSError:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return False
    return True


def _exit_lost() -> None:
    print("another process has taken over this work; exiting without writing", file=sys.stderr, flush=True)
    # No cleanup: handlers and `finally` blocks would write to folders that now belong to another process.
    os._exit(EXIT_LOST)


def _describe_owner() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "machine": _identify_machine(),
        "born": _read_start_time(os.getpid()),
        "dead_after_seconds": get_lease_timeout(),
    }


def _identify_machine() -> str | None:
    """Return an id of the current boot and PID namespace, or None if the system does not provide it."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _read_start_time(pid: int) -> str | None:
    """Return the start time of a process in clock ticks since boot, or None if it has ended.

    The start time distinguishes the process from a later one with the same PID.
    """
    try:
        # The second field is the program's name and may contain spaces and parentheses, so split after the last one.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    # Z and X: zombie and dead; field 22 of stat is the start time
    return None if fields[0] in "ZX" else fields[19]


def _is_here(owner: Mapping[str, Any]) -> bool:
    machine = owner.get("machine")
    return machine is not None and machine == _identify_machine()


def _is_gone(owner: Mapping[str, Any]) -> bool:
    """Return whether an owner ran on this machine and its process no longer exists."""
    if not _is_here(owner):
        return False
    start_time = _read_start_time(owner.get("pid", 0))
    if start_time is None and _is_of_another_user(owner.get("pid", 0)):
        # /proc may hide processes of other users, so the heart-beat decides
        return False
    return start_time != owner.get("born")


def _is_of_another_user(pid: int) -> bool:
    """Return whether a process exists that this one may not signal."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return False


def _get_clock_offset(folder: Path) -> float:
    """Return the clock of the disk minus ours in seconds, measured once per minute and disk. 0 if not writable."""
    device = folder.stat().st_dev
    if device in _OFFSETS:
        offset, measured_at = _OFFSETS[device]
        if time.monotonic() - measured_at <= OFFSET_VALID_SECONDS:
            return offset
    # The modification time of a new file shows the clock of the disk, which may be another machine's.
    probe = folder / f".clock.{uuid.uuid4().hex}"
    try:
        probe.touch()
        offset = probe.stat().st_mtime - time.time()
        probe.unlink()
    except OSError:
        return 0.0
    # Below a second, the difference is the delay of the measurement itself.
    if abs(offset) <= 1:
        offset = 0.0
    _OFFSETS[device] = offset, time.monotonic()
    return offset
