"""The words an experiment is declared with: Run, grid, pick, Claim, Table, Figure, Experiment; all frozen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from repro.choices import CHOICES, MEASURES
from repro.run import (
    EVALUATION_FIELDS,
    FIELDS,
    TRAINED,
    Run,
    base,
    check_fields,
    first_phase_of,
    grid,
    training_of,
)
from repro.shows import Column, Exhibit, Figure, Row, Table
from repro.statements import POINTS, Claim, Pick, Term, pick, term

__all__ = [
    "CHOICES",
    "EVALUATION_FIELDS",
    "FIELDS",
    "MEASURES",
    "POINTS",
    "TRAINED",
    "Claim",
    "Column",
    "Exhibit",
    "Experiment",
    "Figure",
    "Pick",
    "Row",
    "Run",
    "Table",
    "Term",
    "base",
    "check_fields",
    "first_phase_of",
    "grid",
    "pick",
    "term",
    "training_of",
]


@dataclass(frozen=True, kw_only=True)
class Experiment:
    """One experiment: which runs it needs at a scale, what it shows and which claims it judges."""

    number: int
    title: str
    runs: Callable[[str], tuple[Run, ...]]
    shows: tuple[Table | Figure | Exhibit, ...]
    claims: tuple[Claim, ...] = ()
    local_seeds: tuple[int, ...] = (0,)  # what a reader's own machine runs; published records have more

    @property
    def artefacts(self) -> tuple[str, ...]:
        """The names of what it shows, e.g. ("table1",)."""
        return tuple(shown.name for shown in self.shows)
