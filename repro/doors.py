"""How names are found that no file in `repro` answers to: the doors, and the three folders beside it.

`python -m repro.NAME` first imports `repro`, which puts the two finders below on the import path. `Doors`, at its end,
is asked only when no file answers to the name, and offers three lines of source that hand the artefact to `repro run`.
`Beside`, at its front, makes `experiments`, `figures` and `slurm` mean ours: in an installed copy they lie inside
`repro`, and the working directory, which Python looks in first, may well have folders of these names.
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
SOURCE = """import sys
from repro.cli.main import open_door
sys.exit(open_door({name!r}))
"""


class Doors(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads `repro.table1` … `repro.figure18` and any other artefact an experiment shows."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Offer a door for `repro.<artefact>`; None for every other name."""
        package, _, name = fullname.rpartition(".")
        if package != "repro" or not _is_artefact(name):
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def get_source(self, fullname: str) -> str:
        """Return the three lines behind a door."""
        return SOURCE.format(name=fullname.rpartition(".")[2])


class Beside(importlib.abc.MetaPathFinder):
    """Finds `experiments`, `figures` and `slurm` where this copy of `repro` has them."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Return the spec of one of the three folders; None for every other name."""
        if fullname not in FOLDERS:
            return None
        return importlib.machinery.PathFinder.find_spec(fullname, [str(SOURCES)], target)


def _is_artefact(name: str) -> bool:
    if re.fullmatch(r"(table|figure)\d+", name):
        return True
    from repro.spec.registry import artefacts

    return name in artefacts()


def install() -> None:
    """Put the finders on the import path, once."""
    if not any(isinstance(finder, Doors) for finder in sys.meta_path):
        sys.meta_path.append(Doors())
        sys.meta_path.insert(0, Beside())
