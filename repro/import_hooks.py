"""Import hooks for `python -m repro.<artefact>` and for the sibling packages experiments, figures and slurm.

`python -m repro.NAME` first imports `repro`, which installs two finders on the import path. `ArtefactFinder` is the
last one. If no file matches the name, it supplies a small module that passes the artefact to `repro run`.
`SiblingFinder` is the first one. It resolves `experiments`, `figures` and `slurm` to our folders, which lie inside
`repro` in an installed copy. Python searches the working directory early, and it may hold folders of the same names.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import re
import sys
from collections.abc import Sequence
from types import ModuleType

from repro.storage.paths import SOURCES

FOLDERS = ("experiments", "figures", "slurm")
SOURCE = "from repro.cli.main import main\nmain({name!r})\n"


class ArtefactFinder(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Find and load `repro.table1` … `repro.figure18` and every other artefact of an experiment."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return a spec for `repro.<artefact>`, and None for every other name."""
        package, _, name = fullname.rpartition(".")
        if package != "repro" or not _is_artefact(name):
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def get_source(self, fullname: str) -> str:
        """Return the source of an artefact module."""
        return SOURCE.format(name=fullname.rpartition(".")[2])


class SiblingFinder(importlib.abc.MetaPathFinder):
    """Find `experiments`, `figures` and `slurm` in the folder that belongs to this copy of `repro`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of a sibling package, and None for every other name."""
        if fullname not in FOLDERS:
            return None
        return importlib.machinery.PathFinder.find_spec(fullname, [str(SOURCES)], target)


def _is_artefact(name: str) -> bool:
    # the pattern answers for most names without importing the experiments
    if re.fullmatch(r"(table|figure)\d+", name):
        return True
    from repro.spec.registry import artefacts

    return name in artefacts()


def install() -> None:
    """Add both finders to the import path, unless they are already installed."""
    if not any(isinstance(finder, ArtefactFinder) for finder in sys.meta_path):
        sys.meta_path.append(ArtefactFinder())
        sys.meta_path.insert(0, SiblingFinder())
