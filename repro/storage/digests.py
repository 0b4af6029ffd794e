"""Digests of the files of a folder: noted when it is made, compared once on each machine, and again when one changed.

A file that has the size and the time it had when it was last compared is not read again.
"""

from __future__ import annotations

import hashlib
import json
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from repro.storage.atomic import whole_file
from repro.storage.json_files import read_json


def digests_of(folder: Path) -> dict[str, str]:
    """Return the sha256 of every file below a folder, by its relative name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            found[path.relative_to(folder).as_posix()] = sha256_of(path)
    return found


def sha256_of(path: Path) -> str:
    """Return the sha256 of a file; OSError when it cannot be read."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_digests(folder: Path, expected: Mapping[str, str], notes: Path, *, deep: bool = False) -> None:
    """ValueError naming the first file that is missing or is not the one that was made.

    `notes` is the folder in which this machine notes what it compared; with `deep` every file is read whatever it says.
    """
    note = notes / f"compared.{socket.gethostname()}.json"
    stamps = {name: _stamp(folder / name) for name in expected}
    if not deep and _noted(note) == {"stamps": stamps, "digests": dict(expected)}:
        return
    for name, digest in expected.items():
        if _digest(folder / name) != digest:
            what = "is not the file that was made" if (folder / name).is_file() else "is missing"
            raise ValueError(f"{folder / name} {what}: remove the folder {folder} and it is built again")
    with suppress(OSError), whole_file(note) as part:  # a disk we may only read is compared each time
        part.write_text(json.dumps({"stamps": stamps, "digests": dict(expected)}), encoding="utf-8")


def _noted(note: Path) -> object:
    if not note.is_file():
        return None
    try:
        return read_json(note)
    except ValueError:
        return None


def _stamp(path: Path) -> list[int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return [found.st_size, found.st_mtime_ns]


def _digest(path: Path) -> str | None:
    return sha256_of(path) if path.is_file() else None
