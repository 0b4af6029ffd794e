"""Compute and check the sha256 of the files of a folder.

Each machine caches its results. A file is read again only if its size, its times or its inode changed. A copy that keeps
the modification time (`cp -p`, `rsync -t`) still gets another change time.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any

from repro.storage.files import read_memo, write_memo
from repro.storage.paths import get_home

SAMPLED_BYTES = 2**26
"""Size from which a file is checked by a sample. Whole files would take minutes per terabyte on every new machine."""
NUM_SAMPLES, BYTES_PER_SAMPLE = 64, 2**16


def hash_folder(folder: Path) -> dict[str, str]:
    """Return the sha256 of each file below a folder, by its relative path."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in paths}


def hash_samples(folder: Path) -> dict[str, str]:
    """Return the digest of a sample of each large file below a folder, by its relative path."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.stat().st_size >= SAMPLED_BYTES]
    return {path.relative_to(folder).as_posix(): hash_sample(path) for path in paths}


def hash_sample(path: Path) -> str:
    """Return the sha256 of the size of a file and of evenly spaced parts of it, including both ends."""
    size = path.stat().st_size
    digest = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for number in range(NUM_SAMPLES):
            file.seek(max(0, size - BYTES_PER_SAMPLE) * number // (NUM_SAMPLES - 1))
            digest.update(file.read(BYTES_PER_SAMPLE))
    return digest.hexdigest()


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


def check_digests(
    folder: Path,
    expected: Mapping[str, str],
    notes: Path,
    samples: Mapping[str, str] | None = None,
    *,
    deep: bool = False,
) -> None:
    """Raise ValueError for the first file that is missing or does not have the expected digest.

    One process per machine reads the files. The others wait for its note and read nothing.

    Args:
        folder: the folder of the files.
        expected: the sha256 of each file, by its relative path.
        notes: the folder for this machine's note of checked files.
        samples: the digests of samples of large files (`hash_sample`). Other files are read whole.
        deep: whether to read every file whole and ignore the note.
    """
    for name in expected:
        if not (folder / name).is_file():
            raise ValueError(f"{folder / name} is missing: {REMEDY.format(folder)}")

    def read(path: Path) -> str:
        name = path.relative_to(folder).as_posix()
        sample = None if deep or samples is None else samples.get(name)
        if sample is None:
            return hash_file(path)
        return expected[name] if hash_sample(path) == sample else "another sample"

    host = socket.gethostname()
    paths = [folder / name for name in expected]
    with ExitStack() as stack:
        # without a writable folder, every process reads the files itself
        with suppress(OSError):
            notes.mkdir(parents=True, exist_ok=True)
            fcntl.flock(stack.enter_context((notes / f"compared.{host}.lock").open("w")), fcntl.LOCK_EX)
        note = notes / f"compared.{host}.json"
        found = get_cached_digests(folder, paths, note, read=read, reads_all=deep)
    for name, digest in expected.items():
        if found[name] != digest:
            raise ValueError(f"{folder / name} is not the file that was made: {REMEDY.format(folder)}")


REMEDY = "remove the folder {} and it is built again"


def get_digests_note(path: Path) -> Path:
    """Return the file in which this machine caches the digests of a file or folder."""
    return get_home() / "digests" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.json"


def get_cached_digests(
    folder: Path,
    paths: Iterable[Path],
    note: Path,
    *,
    read: Callable[[Path], str] | None = None,
    reads_all: bool = False,
) -> dict[str, str]:
    """Return the sha256 of files by their path in a folder. Only files that changed are read.

    Args:
        folder: the folder that the returned paths are relative to.
        paths: the files.
        note: the cache file, which is updated.
        read: computes a digest from a path. The default is `hash_file`.
        reads_all: whether to read files that have not changed, too.
    """
    cached_entries: dict[str, Any] = {} if reads_all else read_memo(note, str(folder)) or {}
    entries: dict[str, list[Any]] = {}
    for path in paths:
        # The times are read before the content. A file that changes in between has old times and is read again.
        stat = path.stat()
        # One of these numbers changes if the content changes.
        stamp = [stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]
        name = path.relative_to(folder).as_posix()
        entry = cached_entries.get(name)
        if entry is None or entry[:-1] != stamp:
            entry = [*stamp, (read or hash_file)(path)]
        entries[name] = entry
    if any(cached_entries.get(name) != entry for name, entry in entries.items()):
        write_memo(note, str(folder), cached_entries | entries)
    return {name: str(entry[-1]) for name, entry in entries.items()}
