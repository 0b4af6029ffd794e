"""Pictures kept from one command to the next: the same rows drawn by the same code are drawn once.

Next to each drawing lies a memo, `NAME.drawn.json`. Its key is a digest of all that decides the picture (its rows and
words, the source and versions that draw it, the reader's own style files), its result the sha256 of each file drawn.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.report.verdicts import ADDRESS, get_versions
from repro.storage.digests import compute_source_digest, hash_file
from repro.storage.memo import Memo, get_digest_key
from repro.storage.paths import PACKAGE, SOURCES

DRAWING_FOLDERS = (SOURCES / "figures", PACKAGE / "spec", SOURCES / "experiments")
"""The folders whose source draws; an experiment may hold a function that draws its own picture."""
DRAWING_PACKAGES = ("matplotlib", "seaborn", "pandas", "numpy", "scipy")
STYLE_FILE = "matplotlibrc"


@dataclass(frozen=True)
class KeptPicture:
    """Where a picture's files lie (a path without an ending), and the digest of all that decides it."""

    path: Path
    key: str

    @property
    def memo(self) -> Memo:
        """What is kept of it: the sha256 of each file drawn, by its ending."""
        return Memo(self.path.parent / f"{self.path.name}.drawn.json", self.key)

    def is_there(self, endings: Sequence[str]) -> bool:
        """Return whether this very picture exists in every file that is asked for, none of them changed since."""
        try:
            files = self.memo.read()
            return files is not None and all(files[one] == hash_file(self._file(one)) for one in endings)
        except (OSError, TypeError, KeyError):
            return False

    def remember(self, endings: Sequence[str]) -> None:
        """Note the files that were just drawn."""
        with suppress(OSError):
            self.memo.write({one: hash_file(self._file(one)) for one in endings})

    def _file(self, ending: str) -> Path:
        return self.path.parent / f"{self.path.name}.{ending}"


def kept_picture(path: Path, rows: Sequence[Mapping[str, Any]], picture: Mapping[str, Any]) -> KeptPicture:
    """Return what is kept of a picture of these rows; `picture`: how they are drawn, plain values and functions."""
    decides = {
        "rows": json.dumps(rows, default=repr),  # a text, since the order of columns counts
        "picture": ADDRESS.sub("", repr(sorted(picture.items()))),
        "code": compute_source_digest(DRAWING_FOLDERS),
        "versions": get_versions(DRAWING_PACKAGES),
        "styles": [hash_file(one) for one in _list_style_files() if one.is_file()],
    }
    return KeptPicture(path, get_digest_key(decides))


def _list_style_files() -> list[Path]:
    """Return where matplotlib would find a reader's own settings."""
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "matplotlib"
    named = [Path(os.environ[name]) for name in ("MATPLOTLIBRC", "MPLCONFIGDIR") if os.environ.get(name)]
    return [Path(STYLE_FILE), *named, *(folder / STYLE_FILE for folder in (*named, settings))]
