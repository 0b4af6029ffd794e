"""Pictures kept from one command to the next: the same rows drawn by the same code are drawn once.

Beside each drawing lies `NAME.drawn.json`: a digest of all that decides the picture (its rows and words, the source and
versions that draw it, the reader's own style files) and a sha256 of each file drawn. A note that is not there, is
damaged, has another digest, or lacks or contradicts a file is no answer: the picture is drawn again.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.report.verdicts import ADDRESS, versions_of
from repro.storage.atomic import whole_file
from repro.storage.digests import sha256_of, source_digest
from repro.storage.json_files import json_object
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
    def note(self) -> Path:
        """The file that says what was drawn."""
        return self.path.parent / f"{self.path.name}.drawn.json"

    def is_there(self, endings: Sequence[str]) -> bool:
        """Return whether this very picture lies there in every file that is asked for, none of them changed since."""
        try:
            kept = json_object(self.note)
            files: Any = kept["files"]
            return kept["key"] == self.key and all(files[one] == sha256_of(self._file(one)) for one in endings)
        except (OSError, ValueError, TypeError, KeyError):
            return False

    def remember(self, endings: Sequence[str]) -> None:
        """Note the files that were just drawn; in a folder that cannot be written, nothing is noted."""
        with suppress(OSError, ValueError):
            content = {"key": self.key, "files": {one: sha256_of(self._file(one)) for one in endings}}
            with whole_file(self.note) as part:
                part.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")

    def _file(self, ending: str) -> Path:
        return self.path.parent / f"{self.path.name}.{ending}"


def kept_picture(path: Path, rows: Sequence[Mapping[str, Any]], picture: Mapping[str, Any]) -> KeptPicture:
    """Return what is kept of a picture of these rows; `picture`: how they are drawn, plain values and functions."""
    decides = {
        "rows": rows,
        "picture": ADDRESS.sub("", repr(sorted(picture.items()))),
        "code": source_digest(DRAWING_FOLDERS),
        "versions": versions_of(DRAWING_PACKAGES),
        "styles": [sha256_of(one) for one in _style_files() if one.is_file()],
    }
    text = json.dumps(decides, default=repr)
    return KeptPicture(path, hashlib.sha256(text.encode()).hexdigest())


def _style_files() -> list[Path]:
    """Return where matplotlib would find a reader's own settings."""
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "matplotlib"
    named = [Path(os.environ[name]) for name in ("MATPLOTLIBRC", "MPLCONFIGDIR") if os.environ.get(name)]
    return [Path(STYLE_FILE), *named, *(folder / STYLE_FILE for folder in (*named, settings))]
