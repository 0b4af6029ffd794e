"""Digests of the files of a folder: noted when it is made, compared once on each machine, and again when one changed.

A file that has the size and the time it had when it was last compared is not read again.
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
    """Return the sha256 of every file below a folder, by its relative name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[path.relative_to(folder).as_posix()] = hash_file(path)
    return found


@cache
def compute_source_digest(folders: Sequence[Path]) -> str:
    """Return the digest of the Python files in some folders, by name and content."""
    found = hashlib.sha256()
    for path in (path for folder in folders for path in sorted(folder.glob("*.py"))):
        content = path.read_bytes()
        found.update(f"{path.name} {len(content)} ".encode() + content)
    return found.hexdigest()


def hash_file(path: Path) -> str:
    """Return the sha256 of a file; OSError when it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_digests(folder: Path, expected: Mapping[str, str], notes: Path, *, deep: bool = False) -> None:
    """ValueError naming the first file that is missing or is not the one that was made.

    `notes` is the folder in which this machine notes what it compared; with `deep` every file is read whatever it says.
    """
    there = [folder / name for name in expected if (folder / name).is_file()]
    note = notes / f"compared.{socket.gethostname()}.json"
    found = noted_digests(folder, there, note, deep=deep)
    for name, digest in expected.items():
        if found.get(name) != digest:
            with suppress(OSError):  # the right file may come back with the time of the wrong one
                note.unlink()
            what = "is not the file that was made" if name in found else "is missing"
            raise ValueError(f"{folder / name} {what}: remove the folder {folder} and it is built again")


def noted_digests(
    folder: Path,
    paths: Iterable[Path],
    note: Path,
    *,
    deep: bool = False,
    read: Callable[[Path, int, int], str] = lambda path, size, time: hash_file(path),
) -> dict[str, str]:
    """Return the sha256 of files by their names in a folder, read only where size or time is not the one of the note.

    `note` is the file that says what was found before, and is written anew; with `deep` every file is read. `read`
    gets a file with its size in bytes and its time in nanoseconds, and returns its sha256.
    """
    memo, found = Memo(note, str(folder)), dict[str, list[Any]]()
    told = memo.read()
    noted: dict[str, Any] = told if isinstance(told, dict) else {}
    for path in paths:
        name, stat = path.relative_to(folder).as_posix(), path.stat()
        stamp, known = [stat.st_size, stat.st_mtime_ns], noted.get(name)
        if deep or not isinstance(known, list) or len(known) != 3 or known[:2] != stamp:
            known = [*stamp, read(path, *stamp)]
        found[name] = known
    if any(noted.get(name) != kept for name, kept in found.items()):
        memo.write(noted | found)
    return {name: str(kept[2]) for name, kept in found.items()}
