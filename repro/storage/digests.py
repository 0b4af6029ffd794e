"""Compute and check the sha256 of the files of a folder.

Each machine caches the digests that it computed. A file is read again only if its size or modification time changed.
"""

from __future__ import annotations

import hashlib
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from repro.storage.memo import Memo


def hash_folder(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file below a folder, by its relative path."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[path.relative_to(folder).as_posix()] = hash_file(path)
    return found


@cache
def compute_source_digest(folders: Sequence[Path]) -> str:
    """Return one digest of the names and contents of the Python files in these folders."""
    found = hashlib.sha256()
    for path in (path for folder in folders for path in sorted(folder.glob("*.py"))):
        content = path.read_bytes()
        # with the length, so that text cannot move between files unnoticed
        found.update(f"{path.name} {len(content)} ".encode() + content)
    return found.hexdigest()


def hash_file(path: Path) -> str:
    """Return the sha256 of a file. Raises OSError if it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


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
    found = noted_digests(folder, present, note, deep=deep)
    for name, digest in expected.items():
        if found.get(name) != digest:
            # drop the cache: a restored file may have the same size and time as the wrong one
            with suppress(OSError):
                note.unlink()
            problem = "is not the file that was made" if name in found else "is missing"
            raise ValueError(f"{folder / name} {problem}: remove the folder {folder} and it is built again")


def noted_digests(
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
    memo, found = Memo(note, str(folder)), dict[str, list[Any]]()
    cached = memo.read()
    noted: dict[str, Any] = cached if isinstance(cached, dict) else {}
    for path in paths:
        # The time is read before the content. A file that changes in between gets an old time and is read again.
        name, stat = path.relative_to(folder).as_posix(), path.stat()
        stamp, known = [stat.st_size, stat.st_mtime_ns], noted.get(name)
        if deep or not isinstance(known, list) or len(known) != 3 or known[:2] != stamp:
            known = [*stamp, read(path, *stamp)]
        found[name] = known
    if any(noted.get(name) != row for name, row in found.items()):
        memo.write(noted | found)
    return {name: str(row[2]) for name, row in found.items()}
