"""Who is working on it: owner files by exclusive creation, a heart-beat, and a take-over once an owner has died.

A lease is a folder of numbered owner files, 000001.json, 000002.json, …; the highest number decides. It is free when
there is none, when the highest has ended (a file NNNNNN.ended beside it), or when its owner is dead. Whoever wants it
creates the next number with O_EXCL, so of any number of racing processes exactly one succeeds, and nothing is ever
renamed away or removed under a living owner. This needs only exclusive creation, which NFS (v3 and later) keeps atomic.

An owner is dead when its heart-beat (the file's modification time, read against the clock of the disk itself) is older
than the time the owner promised, or, on the same machine, when its process is gone. An owner that finds a higher number
has been taken for dead (it was suspended, or cut off from the disk) and must not write any more: its process ends.
"""

from __future__ import annotations

import json
import os
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

from repro.storage.paths import get_corpora_folder, imports_folder

MOST_OWNER_BYTES = 2**16
EXIT_LOST = 70
"""Exit status of a process whose lease was taken over while it was still alive."""


def get_lease_timeout() -> float:
    """Return how long an owner may be silent before others take over (REPRO_DEAD_AFTER_SECONDS, default 180).

    Attribute caches of network disks hide a heart-beat for up to a minute, so stay above 120 on a shared disk.
    """
    return bounded_patience(os.environ.get("REPRO_DEAD_AFTER_SECONDS", "180"), "REPRO_DEAD_AFTER_SECONDS")


MOST_PATIENT_SECONDS = 86_400.0
"""Nobody is waited for longer than a day, whatever was promised."""


def bounded_patience(value: Any, where: str) -> float:
    """Return how long an owner may be silent, seconds; ValueError when that is no number above 0 and up to a day."""
    try:
        seconds = float(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{where}={str(value)[:40]!r}: expected seconds, as a number") from error
    if not 0 < seconds <= MOST_PATIENT_SECONDS:
        raise ValueError(f"{where}={seconds}: must be above 0 and at most {MOST_PATIENT_SECONDS:.0f}")
    return seconds


@dataclass(frozen=True)
class Owner:
    """One owner as the disk shows it."""

    number: int  # 1 for the first owner of this lease
    host: str
    pid: int
    since: float  # seconds since the epoch
    age_seconds: float  # since the last heart-beat
    is_alive: bool
    outcome: str | None  # what it said when it ended; None: it has not
    note: Mapping[str, Any]

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, last heart-beat {self.age_seconds:.0f} s ago"


class Lease:
    """A lease this process holds; a thread keeps its heart-beat until `release`."""

    def __init__(self, folder: Path, number: int, *, descriptor: int) -> None:
        """Start the heart-beat on an owner file that was just created; made by `acquire`."""
        self.folder, self.number = folder, number
        self.on_beat: Callable[[], None] = lambda: None
        self._descriptor = descriptor
        self._patience_seconds = get_lease_timeout()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._beat, name=f"lease {folder.name}", daemon=True)
        self._thread.start()

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken this lease over."""
        return _get_owner_file(self.folder, self.number + 1).exists()

    def release(self, outcome: str = "") -> None:
        """End the lease: the next one to ask gets it at once."""
        if self._ended.is_set():
            return
        self._ended.set()
        is_told = _write_outcome(_get_ended_file(self.folder, self.number), outcome)
        if threading.current_thread() is not self._thread:
            self._thread.join()
        if not is_told:
            with suppress(OSError):
                os.utime(self._descriptor, (0, 0))  # which takes no room: nobody is to wait for a heart-beat
        os.close(self._descriptor)

    def _beat(self) -> None:
        last = time.monotonic()
        while not self._ended.wait(self._patience_seconds / 6):
            try:
                # by descriptor: a heart-beat must never touch the file of another owner
                os.utime(self._descriptor)
                last = time.monotonic()
                if self.is_lost:
                    _leave()
                self.on_beat()
            except OSError:  # a network disk may fail for a moment, at either: the next beat tries again
                if time.monotonic() - last > self._patience_seconds:
                    _leave()

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release("" if error is None else f"{type(error).__name__}: {error}")


def acquire(folder: Path, *, note: Mapping[str, Any] | None = None) -> Lease | None:
    """Return the lease of a folder, or None while a living owner has it.

    `note` is kept in the owner file (a job's number, a log's path). When the lease is lost, the heart-beat thread ends
    the process with EXIT_LOST, because another one now does its work.
    """
    folder.mkdir(parents=True, exist_ok=True)
    while True:
        last = look(folder)
        if last is not None and last.is_alive:
            return None
        number = last.number + 1 if last else 1
        try:
            descriptor = os.open(_get_owner_file(folder, number), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644)
        except FileExistsError:
            continue
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:  # unlike os.write it writes all, or fails
                file.write(json.dumps(_myself() | {"note": dict(note or {})}).encode())
            os.fsync(descriptor)
        except OSError:  # a full disk: nobody is to wait for an owner that never was
            os.close(descriptor)
            _get_owner_file(folder, number).unlink()
            raise
        return Lease(folder, number, descriptor=descriptor)


def look(folder: Path) -> Owner | None:
    """Return the last owner of a lease as the disk shows it; None when there was none."""
    numbers = _numbers(folder)
    if not numbers:
        return None
    number = max(numbers)
    while _get_owner_file(folder, number + 1).exists():  # a network disk may list a folder as it was a while ago
        number += 1
    return _read_owner(folder, number)


def lease_folder(path: Path) -> Path:
    """Return the folder that holds the lease of whoever makes a stage, or imports a corpus."""
    if path.parent == get_corpora_folder():
        return imports_folder() / path.name / "owner"
    return path.with_name(f"{path.name}.building") / "owner"


def owner_of_part(part: Path) -> Owner | None:
    """Return the last maker of what a temporary name (`.NAME.DIGITS.part`) stands for; None if it had no lease."""
    return look(lease_folder(part.with_name(part.name[1:].rsplit(".", 2)[0])))


def owners(folder: Path) -> list[Owner]:
    """Return every owner a lease has had, first to last."""
    return [_read_owner(folder, number) for number in sorted(_numbers(folder))]


def _numbers(folder: Path) -> list[int]:
    found = folder.glob("[0-9]*.json") if folder.is_dir() else ()
    return [int(path.stem) for path in found if path.stem.isascii() and path.stem.isdigit() and path.is_file()]


def _read_owner(folder: Path, number: int) -> Owner:
    with _get_owner_file(folder, number).open(errors="replace") as file:  # opening makes a network disk look again
        text = file.read(MOST_OWNER_BYTES)
        beat = os.fstat(file.fileno()).st_mtime
    # an owner that has just created its file has not filled it yet: alive, for as long as anybody else
    found = _told_by_owner(text)
    # a beat that is far ahead of the disk's own clock is no beat of a living owner: it would have been renewed since
    age = abs(time.time() + _get_clock_offset(folder) - beat)
    ended = _get_ended_file(folder, number)
    outcome = ended.read_text(encoding="utf-8", errors="replace") if ended.exists() else None
    alive = outcome is None and age < found["dead_after_seconds"] and not _is_gone(found)
    return Owner(
        number=number, host=found.get("host", "?"), pid=found.get("pid", 0), since=found.get("since", beat),
        age_seconds=age, is_alive=alive, outcome=outcome, note=found.get("note", {}),
    )  # fmt: skip


def _told_by_owner(text: str) -> dict[str, Any]:
    """Return what an owner file tells, each value of its type; what is forged or damaged is left out."""
    try:
        told = json.loads(text) if text.endswith("}") else {}
    except (ValueError, RecursionError):
        told = {}
    kinds: dict[str, Any] = {"host": str, "pid": int, "machine": str, "born": str, "since": (int, float), "note": dict}
    plain = told if isinstance(told, dict) else {}
    found = {name: plain[name] for name, kind in kinds.items() if isinstance(plain.get(name), kind)}
    try:
        patience = bounded_patience(plain.get("dead_after_seconds"), "dead_after_seconds")
    except ValueError:
        patience = get_lease_timeout()
    return {**found, "dead_after_seconds": patience}


def _get_owner_file(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.json"


def _get_ended_file(folder: Path, number: int) -> Path:
    return folder / f"{number:06d}.ended"


def _write_outcome(path: Path, outcome: str) -> bool:
    """Write how an owner ended; on a full disk no file is left, since an empty one would say that all went well."""
    try:
        path.write_bytes(outcome.encode(errors="replace"))
    except OSError:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return False
    return True


def _leave() -> None:
    print("another process has taken over this work; leaving without writing", file=sys.stderr, flush=True)
    os._exit(EXIT_LOST)


def _myself() -> dict[str, Any]:
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "machine": _machine(),
        "born": _born(os.getpid()),
        "since": time.time(),
        "dead_after_seconds": get_lease_timeout(),
    }


def _machine() -> str | None:
    """Return one boot of one machine and one space of process numbers; None where that cannot be told."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _born(pid: int) -> str | None:
    """Return when a process started, in clock ticks since boot, which tells it from a later one of the same number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def _is_gone(found: Mapping[str, Any]) -> bool:
    machine = found.get("machine")
    return machine is not None and machine == _machine() and _born(found.get("pid", 0)) != found.get("born")


def _get_clock_offset(folder: Path) -> float:
    """Return the disk's clock minus ours, seconds; 0 where we may not write. Asked once a minute and disk."""
    device = folder.stat().st_dev
    if device not in _OFFSETS or time.monotonic() - _OFFSETS[device][1] > ASK_AGAIN_SECONDS:
        probe = folder / f".clock.{uuid.uuid4().hex}"
        try:
            probe.touch()
            offset = probe.stat().st_mtime - time.time()
            probe.unlink()
        except OSError:
            return 0.0
        _OFFSETS[device] = (offset if abs(offset) > 1 else 0.0), time.monotonic()
    return _OFFSETS[device][0]


ASK_AGAIN_SECONDS = 60.0
_OFFSETS: dict[int, tuple[float, float]] = {}  # offset, and when it was asked for
