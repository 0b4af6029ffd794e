"""Cache of drawn pictures, so that the same rows and code are drawn once.

Each picture has a memo `NAME.drawn.json` next to it. The key is a digest of its inputs: rows, labels, source code,
package versions and style files of the user. The result is the sha256 of each drawn file.
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
from repro.storage.digests import hash_file, hash_json, hash_python_files
from repro.storage.memo import Memo
from repro.storage.paths import EXPERIMENT_FOLDERS, PACKAGE, SOURCES

DRAWING_FOLDERS = (SOURCES / "figures", PACKAGE / "spec", *EXPERIMENT_FOLDERS)
"""Folders whose source affects a picture. Experiments are included, because they may hold drawing functions."""
DRAWING_PACKAGES = ("matplotlib", "seaborn", "pandas", "numpy", "scipy")
STYLE_FILE = "matplotlibrc"


@dataclass(frozen=True)
class CachedPicture:
    """Path of a picture without suffix, and the digest of its inputs."""

    path: Path
    key: str

    @property
    def memo(self) -> Memo:
        """Cached result: the sha256 of each drawn file, by suffix."""
        return Memo(self.path.parent / f"{self.path.name}.drawn.json", self.key)

    def is_current(self, suffixes: Sequence[str]) -> bool:
        """Return whether all files with these suffixes exist unchanged for the current inputs."""
        try:
            files = self.memo.read()
            return files is not None and all(files[suffix] == hash_file(self._file(suffix)) for suffix in suffixes)
        except (OSError, TypeError, KeyError):
            return False

    def write(self, suffixes: Sequence[str]) -> None:
        """Store the digests of newly drawn files. An unwritable folder is ignored."""
        with suppress(OSError):
            self.memo.write({suffix: hash_file(self._file(suffix)) for suffix in suffixes})

    def _file(self, suffix: str) -> Path:
        return self.path.parent / f"{self.path.name}.{suffix}"


def get_cached_picture(path: Path, rows: Sequence[Mapping[str, Any]], picture: Mapping[str, Any]) -> CachedPicture:
    """Return the cache entry of a picture, given its plotted rows and its settings (plain values and functions)."""
    inputs = {
        "rows": json.dumps(rows, default=repr),  # as text, because the order of columns matters
        "picture": ADDRESS.sub("", repr(sorted(picture.items()))),
        "code": hash_python_files(DRAWING_FOLDERS),
        "versions": get_versions(DRAWING_PACKAGES),
        "styles": [hash_file(path) for path in _list_style_files() if path.is_file()],
    }
    return CachedPicture(path, hash_json(inputs))


def _list_style_files() -> list[Path]:
    """Return the paths at which matplotlib searches for style files of the user."""
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "matplotlib"
    configured = [Path(os.environ[name]) for name in ("MATPLOTLIBRC", "MPLCONFIGDIR") if os.environ.get(name)]
    return [Path(STYLE_FILE), *configured, *(folder / STYLE_FILE for folder in (*configured, settings))]
