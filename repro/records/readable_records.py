"""Cache which records of a folder are readable, by size and modification time, so that thousands are not read again.

The cache is valid as long as the source code that reads records and the list of digests are unchanged. A damaged cache
is ignored. If it cannot be written, nothing is cached.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from repro.records.store import DIGESTS_FILE, explain_unreadable
from repro.spec import Run
from repro.spec.identity import run_id
from repro.storage.digests import hash_file, hash_json, hash_python_files
from repro.storage.memo import Memo
from repro.storage.paths import PACKAGE, get_home

READING_FOLDERS = tuple(PACKAGE / name for name in ("records", "spec", "storage", "data"))
"""Packages whose source code determines whether a record can be read."""


class ReadableRecords:
    """The readable records of one folder, from the cache file and from this process."""

    def __init__(self, folder: Path) -> None:
        """Read the cache file."""
        self.folder = folder
        digests = folder / DIGESTS_FILE
        read_by = [hash_python_files(READING_FOLDERS), hash_file(digests) if digests.is_file() else ""]
        self.memo = Memo(get_home() / "readable-records.json", hash_json({"folder": str(folder), "read by": read_by}))
        cached = self.memo.read()
        self._readable: dict[str, Any] = cached if isinstance(cached, dict) else {}
        self._is_new = False

    def explain_unreadable(self, run: Run) -> str | None:
        """Return why the record of a run cannot be read, "" if it can be read, or None if there is no record."""
        id = run_id(run)
        try:
            status = (self.folder / f"{id}.json").stat()
        except OSError:
            return None
        if not stat.S_ISREG(status.st_mode):
            return None
        stamp = [status.st_size, status.st_mtime_ns]
        if self._readable.get(id) == stamp:
            return ""
        reason = explain_unreadable(self.folder, run)
        # the stamp predates the read, so a record that is replaced in the meantime is read again
        if not reason:
            self._readable[id] = stamp
            self._is_new = True
        return reason

    def save(self) -> None:
        """Write the cache file if there is anything new. A folder without write permission is ignored."""
        if self._is_new:
            self.memo.write(self._readable)
            self._is_new = False
