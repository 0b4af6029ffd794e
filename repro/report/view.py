"""Tables of text cells, and the formatting of all numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from repro.text import ABSENT, format_number


@dataclass(frozen=True)
class View:
    """A table ready to print. Every cell is text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()
    align: str = ""  # l or r per column, empty: two columns of words, then numbers

    @property
    def alignment(self) -> str:
        """Return the alignment of each column, l or r."""
        return self.align or "ll"[: len(self.header)] + "r" * (len(self.header) - 2)

    @property
    def shown(self) -> View:
        """Return the view without empty columns, and without header if it has no rows. Notes name dropped columns.

        A column of blanks has no values by design, so no note names it.
        """
        if not self.rows:
            return View(self.title, (), (), self.notes or (NO_ROWS,))
        columns = [set(cells) for cells in zip(*self.rows, strict=True)]
        columns_with_values = [index for index, cells in enumerate(columns) if cells - {ABSENT, ""}]
        empty_columns = [
            name for name, cells in zip(self.header, columns, strict=True) if ABSENT in cells <= {ABSENT, ""}
        ]
        if not columns_with_values:
            return View(self.title, (), (), (*self.notes, NO_VALUES))
        notes = (f"Columns without a value are omitted: {', '.join(empty_columns)}",) if empty_columns else ()
        return self.with_columns(columns_with_values, (*self.notes, *notes))

    def with_columns(self, indices: Sequence[int], notes: tuple[str, ...] = ()) -> View:
        """Return the view with some of its columns and with these notes."""

        def select(cells: Sequence[str]) -> tuple[str, ...]:
            return tuple(cells[index] for index in indices)

        rows = tuple(map(select, self.rows))
        return View(self.title, select(self.header), rows, notes, "".join(select(self.alignment)))


NO_ROWS, NO_VALUES = "There is nothing to show.", "No row has a value."
LONG_TEXT = 40
"""Length in characters above which a cell is a sentence.

Sentences are paragraphs in LaTeX, and are printed below their row on a narrow terminal.
"""
SPREAD_NOTE = "±: standard deviation over the runs that “seeds” counts"


def format_mean(values: Sequence[float], decimals: int) -> str:
    """Return mean ± standard deviation over seeds, the plain mean for one value, or a dash for none."""
    if not values:
        return ABSENT
    mean = format_number(statistics.fmean(values), decimals)
    return mean if len(values) < 2 else f"{mean} ± {format_number(statistics.stdev(values), decimals)}"


def format_spread_note(rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the note that explains ± if a cell contains it."""
    return (SPREAD_NOTE,) if any("±" in cell for row in rows for cell in row) else ()


def format_with_sign(value: float, decimals: int = 2) -> str:
    """Return a number with its sign."""
    # plus zero, so that a tiny loss is not "-0.00"
    return f"{round(value, decimals) + 0.0:+.{decimals}f}"
