"""A table ready to be shown, every cell text, and the only place that formats numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from repro.spec.artefact import ABSENT


@dataclass(frozen=True)
class View:
    """A table ready to be printed: every cell is text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    align: str = ""  # l or r for each column; empty: two of words, then numbers

    @property
    def alignment(self) -> str:
        """Return l or r for each column."""
        return self.align or "ll"[: len(self.header)] + "r" * (len(self.header) - 2)

    @property
    def shown(self) -> View:
        """Return what a reader is shown: no header without rows, no column without a value; notes say what is missing.

        A column of blanks alone was never meant to have a value here, and is not missed.
        """
        if not self.rows:
            return View(self.title, (), (), self.notes or (NO_ROWS,))
        columns = [set(cells) for cells in zip(*self.rows, strict=True)]
        kept = [number for number, cells in enumerate(columns) if cells - {ABSENT, ""}]
        missed = [name for name, cells in zip(self.header, columns, strict=True) if ABSENT in cells <= {ABSENT, ""}]
        if not kept:
            return View(self.title, (), (), (*self.notes, NO_VALUES))
        notes = (f"Left out, as no row has a value: {', '.join(missed)}",) if missed else ()
        return self.with_columns(kept, (*self.notes, *notes))

    def with_columns(self, numbers: Sequence[int], notes: tuple[str, ...] = ()) -> View:
        """Return some of the columns under the same title, with these notes."""

        def chosen(cells: Sequence[str]) -> tuple[str, ...]:
            return tuple(cells[number] for number in numbers)

        rows = tuple(map(chosen, self.rows))
        return View(self.title, chosen(self.header), rows, notes, "".join(chosen(self.alignment)))


NO_ROWS, NO_VALUES = "There is nothing to show.", "No row has a value."
NARROW_SPACE = "\u202f"
LONG_TEXT = 40
"""Letters from which on a cell is a sentence: a paragraph in LaTeX, below its row on a narrow terminal."""
SPREAD = "±: standard deviation over the runs that “seeds” counts"


def format_number(value: float | None, decimals: int = 1) -> str:
    """Return a number with its decimals, thousands apart; a dash where there is none."""
    if value is None:
        return ABSENT
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace(",", NARROW_SPACE)  # never "-0.0"


A_YEAR = 365.25 * 86_400
"""Seconds."""


def format_seconds(seconds: float | None) -> str:
    """Return a duration for a reader: 45 s, 12 min, 3.5 h, from two years on 76 years; nothing where not known."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds >= 2 * A_YEAR:
        return f"{format_number(seconds / A_YEAR, 0)} years"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{format_number(seconds / 3600)} h"


def format_mean(values: Sequence[float], decimals: int) -> str:
    """Return mean ± standard deviation over seeds; the mean alone for one; a dash for none."""
    if not values:
        return ABSENT
    mean = format_number(statistics.fmean(values), decimals)
    return mean if len(values) < 2 else f"{mean} ± {format_number(statistics.stdev(values), decimals)}"


def format_spread_note(rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the note of a table that has means over its runs; none where no cell has a ±."""
    return (SPREAD,) if any("±" in cell for row in rows for cell in row) else ()


def format_signed(value: float, decimals: int = 2) -> str:
    """Return a number with its sign and its decimals."""
    return f"{round(value, decimals) + 0.0:+.{decimals}f}"  # plus zero, lest a loss of next to nothing reads "-0.00"
