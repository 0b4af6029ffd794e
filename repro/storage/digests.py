"""Compute and check the sha256 of the files of a folder.

Each machine caches the digests that it computed. A file is read again only if its size or modification time changed.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from repro.storage.memo import Memo
from repro.storage.paths import get_home


def hash_folder(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file below a folder, by its relative path."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in paths}


@cache
def hash_python_files(folders: Sequence[Path]) -> str:
    """Return one digest of the names and contents of the Python files in these folders."""
    digest = hashlib.sha256()
    paths = [path for folder in folders for path in sorted(folder.glob("*.py"))]
    for path in paths:
        content = path.read_bytes()
        # with the length, so that text cannot move between files unnoticed
        digest.update(f"{path.name} {len(content)} ".encode() + content)
    return digest.hexdigest()


def hash_file(path: Path, algorithm: str = "sha256") -> str:
    """Return the digest of a file. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def hash_json(values: Any) -> str:
    """Return the sha256 of plain values, whatever the order of their keys. Other values are converted to text."""
    return hashlib.sha256(json.dumps(values, sort_keys=True, default=str).encode()).hexdigest()


def check_digests(folder: Path, expected: Mapping[str, str], notes: Path, *, deep: bool = False) -> None:
    """Raise ValueError for the first file that is missing or does not have the expected digest.

    Args:
        folder: the folder of the files.
        expected: the sha256 of each file, by its relative path.
        notes: the folder for this machine's cache of digests.
        deep: whether to read every file and ignore the cache.
    """
    present = [folder / name for name in expected if (folder / name).is_file()]
    note = notes / f"compared.{socket.gethostname()}.json"
    actual = get_cached_digests(folder, present, note, deep=deep)
    for name, digest in expected.items():
        if actual.get(name) != digest:
            # drop the cache: a restored file may have the same size and time as the wrong one
            with suppress(OSError):
                note.unlink()
            problem = "is not the file that was made" if name in actual else "is missing"
            raise ValueError(f"{folder / name} {problem}: remove the folder {folder} and it is built again")


def get_digests_note(path: Path, suffix: str = "") -> Path:
    """Return the file in which this machine caches the digests of a file or folder."""
    return get_home() / "digests" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:16]}{suffix}.json"


def get_cached_digests(
    folder: Path,
    paths: Iterable[Path],
    note: Path,
    *,
    deep: bool = False,
    read: Callable[[Path, int, int], str] = lambda path, size, time: hash_file(path),
) -> dict[str, str]:
    """Return the sha256 of files by their path in a folder. Only files whose size or time changed are read.

    Args:
        folder: the folder that the returned paths are relative to.
        paths: the files.
        note: the cache file, which is updated.
        deep: whether to read every file and ignore the cache.
        read: computes a digest from a path, a size in bytes and a modification time in nanoseconds.
    """
    memo = Memo(note, str(folder))
    cached = memo.read()
    cached_entries: dict[str, Any] = cached if isinstance(cached, dict) else {}
    entries: dict[str, list[Any]] = {}
    for path in paths:
        # The time is read before the content. A file that changes in between gets an old time and is read again.
        stat = path.stat()
        stamp = [stat.st_size, stat.st_mtime_ns]
        name = path.relative_to(folder).as_posix()
        entry = cached_entries.get(name)
        if deep or not isinstance(entry, list) or len(entry) != 3 or entry[:2] != stamp:
            entry = [*stamp, read(path, *stamp)]
        entries[name] = entry
    if any(cached_entries.get(name) != entry for name, entry in entries.items()):
        memo.write(cached_entries | entries)
    return {name: str(digest) for name, (_, _, digest) in entries.items()}
