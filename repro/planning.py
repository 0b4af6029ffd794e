"""What a set of runs asks for: shared, recorded and missing runs, and what the missing would cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from repro.identity import difference, run_id
from repro.spec import Run
from repro.store import split_recorded


@dataclass(frozen=True)
class Plan:
    """The runs an artefact asks for, sorted by what is still to do."""

    num_asked: int
    recorded: tuple[Run, ...]
    missing: tuple[Run, ...]

    def as_dict(self) -> dict[str, Any]:
        """Gives the plan as plain values."""
        return {
            "num_asked": self.num_asked,
            "num_unique": len(self.recorded) + len(self.missing),
            "recorded": [run_id(run) for run in self.recorded],
            "missing": [{"id": run_id(run), **asdict(run)} for run in self.missing],
        }

    def lines(self) -> list[str]:
        """Gives the plan as lines for a reader."""
        unique = len(self.recorded) + len(self.missing)
        asked = f"{self.num_asked} runs asked for, {unique} different"
        counts = f"{asked}, {len(self.recorded)} recorded, {len(self.missing)} missing"
        return [counts, *(f"  {run_id(run)}  {_words(run)}" for run in self.missing)]


def _words(run: Run) -> str:
    return ", ".join(f"{name}={value}" for name, value in difference(run).items())


def make_plan(runs: Sequence[Run], folders: Iterable[Path]) -> Plan:
    """Gives the plan for these runs; a run is recorded when one of the folders has its record."""
    recorded, missing = split_recorded(runs, folders)
    return Plan(len(runs), tuple(recorded), tuple(missing))
