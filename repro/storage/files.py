"""Write files and folders atomically, and read JSON files with errors that name the file.

A write goes to a temporary name in the same folder and is then renamed. Readers see the whole new file or the old one.
Files that must survive a power loss are synced before the rename.

A memo is a result that is cached between commands, in a file with a key, the result as a text, and its sha256. The key is a
digest of everything that determines the result. If a file is missing, damaged, edited or has another key, the caller
computes the result again. If the folder cannot be written, nothing is cached.
"""

from __future__ import annotations

import fcntl
import glob
import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn

from repro.storage.lease import check_leases
from repro.text import shorten

MAKE_ROOM = "free some space, or set REPRO_HOME to a folder on a larger disk"


@contextmanager
def atomic_file(path: Path, *, lasts: bool = False) -> Iterator[Path]:
    """Yield a temporary path in the folder of `path`, and rename it to `path` if the block succeeds.

    If the block raises, the temporary file is removed.

    Args:
        path: the file to write or replace.
        lasts: whether to sync the file and its folder, so that a power loss leaves the old file or the new one.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # in the same folder, because a rename is atomic only within one file system
    part = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.part")
    try:
        yield part
        # the content must be on disk before the name refers to it
        if lasts:
            sync(part)
        check_leases()
        part.replace(path)
        if lasts:
            sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: Path, *, must_be_first: bool = False) -> Iterator[Path]:
    """Yield a temporary folder, sync it, and rename it to `path` if the block succeeds.

    If another process created `path` first, its folder stays and this one is removed. The writer holds a lock on its
    folder, so that `remove_dead_parts` leaves it alone.

    Raises:
        ValueError: with `must_be_first`, if another process was first. Use it if the content depends on the writer.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    part.mkdir()
    lock = os.open(part, os.O_RDONLY)
    try:
        # a disk without locks keeps leftovers
        with suppress(OSError):
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield part
        # The folder itself comes last, because its list of names must not refer to unwritten files.
        for entry in [*part.rglob("*"), part]:
            sync(entry)
        check_leases()
        try:
            part.rename(path)
        except OSError:
            if not path.is_dir():
                raise
            if must_be_first:
                raise ValueError(f"{path} was created by another process: choose another name, or remove it") from None
        sync(path.parent)
    finally:
        os.close(lock)
        shutil.rmtree(part, ignore_errors=True)


def remove_dead_parts(path: Path, *, is_leased: bool = False) -> None:
    """Remove the temporary folders that killed processes left in `atomic_folder(path)`. Those of living ones are locked.

    If the caller holds the lease of all writers (`is_leased`), it removes them also on a disk without locks.
    """
    for part in path.parent.glob(f".{glob.escape(path.name)}.*.part"):
        if is_leased or is_dead_part(part):
            shutil.rmtree(part, ignore_errors=True)


def is_dead_part(part: Path) -> bool:
    """Return whether no process holds the lock on a temporary folder. False on a disk without locks, or if it is gone."""
    try:
        lock = os.open(part, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        finally:
            os.close(lock)
    except OSError:
        return False
    return True


@contextmanager
def name_in_errors(path: Path | str) -> Iterator[None]:
    """Add a path to errors of the block that do not name it, for the line that the command line prints."""
    try:
        yield
    except Exception as error:
        if str(path) not in str(error):
            error.add_note(str(path))
        raise


def write_json(path: Path, content: Any, *, lasts: bool = False) -> None:
    """Write plain values as an indented JSON file with sorted keys, atomically. `lasts` is that of `atomic_file`."""
    with atomic_file(path, lasts=lasts) as part:
        part.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on disk. Disks that cannot sync folders are ignored."""
    if path.is_symlink():
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError:
        if not path.is_dir():
            raise
    finally:
        os.close(descriptor)


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises ValueError if the file cannot be read or is malformed, and if it holds NaN, an infinity, or a number that
    overflows.
    """
    try:
        # Python's parser accepts NaN and Infinity, which are not JSON.
        return json.loads(path.read_bytes(), parse_constant=_refuse_constant, parse_float=_parse_finite)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        # includes malformed JSON and text that is not UTF-8
        raise ValueError(f"{path} is not JSON: {error}") from error


def json_object(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file. Raises ValueError as `read_json` does, and if it holds no object."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds a {type(values).__name__}, not an object of fields")
    return values


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a valid number")


def _parse_finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{shorten(text)} is too large for a float")
    return value


def read_memo(path: Path, key: str) -> Any | None:
    """Return the result that is cached in a file under a key, or None if there is no valid one."""
    try:
        content = json_object(path)
        text = content["result"]
        if content["key"] != key or content["sha256"] != _compute_digest(key, text):
            return None
        return json.loads(text)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_memo(path: Path, key: str, result: Any) -> None:
    """Store a result of plain values in a file."""
    # a nested text, because a result may hold NaN, which `json_object` refuses
    text = json.dumps(result)
    content = {"key": key, "sha256": _compute_digest(key, text), "result": text}
    with suppress(OSError, ValueError), atomic_file(path) as part:
        part.write_text(json.dumps(content) + "\n", encoding="utf-8")


def _compute_digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key} {text}".encode()).hexdigest()
