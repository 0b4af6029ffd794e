"""Files appear whole or not at all: write beside, then rename."""

from __future__ import annotations

import shutil
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Gives a temporary path beside `path`; renames it into place when the block ends well, removes it when not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    try:
        yield part
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def whole_folder(path: Path) -> Iterator[Path]:
    """The same for a folder; when another process was first, its folder stays and ours is removed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.{uuid.uuid4().hex}.part")
    part.mkdir()
    try:
        yield part
        try:
            part.rename(path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
