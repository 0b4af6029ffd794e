"""Makes `python -m repro.table1` work for every artefact without a file each.

`python -m repro.NAME` first imports `repro`, which puts the finder below at the end of the import path. The finder is
asked only when no file answers to the name, and offers three lines of source that hand the artefact to `repro run`.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import re
import sys
from collections.abc import Sequence
from types import ModuleType

SOURCE = """import sys
from repro.cli import open_door
sys.exit(open_door({name!r}))
"""


class Doors(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Finds and loads `repro.table1` … `repro.figure18` and any other artefact an experiment shows."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """Offers a door for `repro.<artefact>`; None for every other name."""
        package, _, name = fullname.rpartition(".")
        if package != "repro" or not _is_artefact(name):
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def get_source(self, fullname: str) -> str:
        """Gives the three lines behind a door."""
        return SOURCE.format(name=fullname.rpartition(".")[2])


def _is_artefact(name: str) -> bool:
    if re.fullmatch(r"(table|figure)\d+", name):
        return True
    from repro.registry import artefacts

    return name in artefacts()


def install() -> None:
    """Puts the doors at the end of the import path, once."""
    if not any(isinstance(finder, Doors) for finder in sys.meta_path):
        sys.meta_path.append(Doors())
