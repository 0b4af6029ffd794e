"""Files appear whole or not at all: write beside, then rename; what must last is on disk before it has its name."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

MAKE_ROOM = "make room there, or let REPRO_HOME name a folder on a larger disk"


@contextmanager
def whole_file(path: Path, *, lasts: bool = False) -> Iterator[Path]:
    """Return a temporary path beside `path`; renames it into place when the block ends well, removes it when not.

    `lasts`: file and folder are synced, so that after a power loss there is the whole file or the one before.
    ValueError where a folder, FIFO, socket or device has the name: a rename would put a file in its place.
    """
    check_replaceable(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name[:100]}.{uuid.uuid4().hex}.part")
    try:
        yield part
        if lasts:
            sync(part)
        part.replace(path)
        if lasts:
            sync(path.parent)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path, *, must_be_first: bool = False) -> Iterator[Path]:
    """The same for a folder, always synced; when another process was first, its folder stays and ours is removed.

    `must_be_first`: that is a ValueError, for what is not the same whoever makes it; else nothing is said.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    part.mkdir()
    try:
        yield part
        for made in [*part.rglob("*"), part]:
            sync(made)
        try:
            part.rename(path)
        except OSError:
            if not path.is_dir():
                raise
            if must_be_first:
                raise ValueError(
                    f"{path} was made by another process meanwhile and is left as it is; nothing else was written: "
                    "choose another name, or remove it first"
                ) from None
        sync(path.parent)
    finally:
        shutil.rmtree(part, ignore_errors=True)


def check_replaceable(path: Path) -> None:
    """ValueError where something that is no regular file has this name."""
    if path.exists() and not path.is_file():
        kind = "a folder" if path.is_dir() else "a FIFO, socket or device"
        raise ValueError(f"{path} is {kind}: nothing was written; choose the name of a file")


def check_room(num_bytes: int, folder: Path, what: str) -> None:
    """ValueError, before anything is written, where the disk of `folder` has less room than `what` needs."""
    there = next(path for path in (folder, *folder.parents) if path.exists())
    free = shutil.disk_usage(there).free
    if num_bytes > free:
        shown = next(path for path in (folder, *folder.parents) if path.suffix != ".part")
        need, have = format_bytes(num_bytes), format_bytes(free)
        raise ValueError(f"{what} needs about {need} in {shown}, where {have} are free: {MAKE_ROOM}")


def format_bytes(num_bytes: float) -> str:
    """Return a number of bytes for a reader: 12 KiB, 120 MiB, 3.5 GiB."""
    if num_bytes >= 2**30 / 10:
        return f"{num_bytes / 2**30:,.1f} GiB"
    return f"{num_bytes / 2**20:.0f} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:.0f} KiB"


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on disk; a disk that cannot sync folders is let be."""
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
