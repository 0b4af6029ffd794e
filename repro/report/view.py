"""Tables of text cells, and the formatting of all numbers."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

from repro.text import ABSENT, MINUS, format_number


class Number(str):
    """A text cell that keeps the numbers behind its text, one per seed, so that CSV has them unrounded."""

    values: tuple[float, ...]

    def __new__(cls, text: str, values: Iterable[float] = ()) -> Self:
        """Create a cell from its text and the numbers behind it."""
        cell = super().__new__(cls, text)
        cell.values = tuple(values)
        return cell


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
        """Return the view without empty columns, and without header if it has no rows. A note names dropped columns.

        A column of blanks has no values by design, so no note names it.
        """
        columns = [set(cells) for cells in zip(*self.rows, strict=True)]
        filled = [index for index, cells in enumerate(columns) if cells - {ABSENT, ""}]
        if not filled:
            message = NO_VALUES if self.rows else NO_ROWS
            return View(self.title, (), (), self.notes if self.notes and not self.rows else (*self.notes, message))
        empty = [name for name, cells in zip(self.header, columns, strict=True) if ABSENT in cells <= {ABSENT, ""}]
        notes = (f"Columns without a value are omitted: {', '.join(empty)}",) if empty else ()
        header, *rows = (tuple(cells[index] for index in filled) for cells in (self.header, *self.rows))
        align = "".join(self.alignment[index] for index in filled)
        return View(self.title, header, tuple(rows), (*self.notes, *notes), align)


NO_ROWS, NO_VALUES = "There is nothing to show.", "No row has a value."
SPREAD_NOTE = "±: standard deviation over the runs that “seeds” counts"


def format_mean(values: Sequence[float], decimals: int) -> Number:
    """Return mean ± standard deviation over seeds, the plain mean for one value, or a dash for none."""
    if not values:
        return Number(ABSENT)
    mean = format_number(statistics.fmean(values), decimals)
    spread = f" ± {format_number(statistics.stdev(values), decimals)}" if len(values) > 1 else ""
    return Number(mean + spread, values)


def format_spread_note(rows: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the note that explains ± if a cell contains it."""
    return (SPREAD_NOTE,) if any("±" in cell for row in rows for cell in row) else ()


def format_with_sign(value: float, decimals: int = 2) -> str:
    """Return a number with its sign."""
    # plus zero, so that a tiny loss is not "−0.00"
    return f"{round(value, decimals) + 0.0:+.{decimals}f}".replace("-", MINUS)
