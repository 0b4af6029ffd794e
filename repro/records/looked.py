"""Records that were read before and found whole, noted by size and time, so that a look at thousands reads none again.

A note counts as long as the source that reads records is what it was, and so is the list of digests beside them. One
that is damaged, or cannot be written, is no note.
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Any

from repro.records.checks import DIGESTS_FILE
from repro.records.store import explain_unreadable
from repro.spec import Run
from repro.spec.identity import run_id
from repro.storage.digests import compute_source_digest, hash_file
from repro.storage.memo import Memo, get_digest_key
from repro.storage.paths import PACKAGE, home

READING_FOLDERS = (PACKAGE / "records", PACKAGE / "spec", PACKAGE / "storage")
"""The folders whose source decides whether a record can be read."""


class Looked:
    """What is known of the records of one folder, from the note of before and from what is asked."""

    def __init__(self, folder: Path) -> None:
        """Read the note."""
        self.folder, listed = folder, folder / DIGESTS_FILE
        read_by = [compute_source_digest(READING_FOLDERS), hash_file(listed) if listed.is_file() else ""]
        self.memo = Memo(home() / "records-looked-at.json", get_digest_key({"folder": str(folder), "read by": read_by}))
        told = self.memo.read()
        self._whole: dict[str, Any] = told if isinstance(told, dict) else {}
        self._is_new = False

    def explain_unreadable(self, run: Run) -> str | None:
        """Return why the record that a run has cannot be read, "" where it can; None where there is none."""
        id = run_id(run)
        try:
            found = (self.folder / f"{id}.json").stat()
        except OSError:
            return None
        if not stat.S_ISREG(found.st_mode):
            return None
        stamp = [found.st_size, found.st_mtime_ns]
        if self._whole.get(id) == stamp:
            return ""
        why = explain_unreadable(self.folder, run)
        if not why:  # the stamp is of before it was read: one that is replaced meanwhile is read again
            self._whole[id], self._is_new = stamp, True
        return why

    def keep(self) -> None:
        """Note what was found whole, where there is anything new; in a folder that cannot be written, nothing."""
        if self._is_new:
            self.memo.write(self._whole)
            self._is_new = False
