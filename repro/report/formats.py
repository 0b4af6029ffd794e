"""Render a view as text for a terminal, Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import shutil
import statistics
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from repro.report.view import Number, View
from repro.text import ABSENT, MINUS, NARROW_SPACE, make_printable

if TYPE_CHECKING:
    from rich.console import Console

DEFAULT_WIDTH = 200
"""Width in characters if the output is not a terminal and COLUMNS is not set."""
GAP = 3
"""Characters that a column of a table in the terminal needs in addition to its text."""
MAX_TEXT_WIDTH = 24
"""Width below which a column of words is not folded. Numbers are never folded."""
MARKDOWN_SPECIAL = str.maketrans({"|": "\\|", "<": "&lt;", "\n": " ", "\r": " "})
PLAIN_NUMBERS = str.maketrans({NARROW_SPACE: "", MINUS: "-"})


def as_markdown(view: View) -> str:
    """Return a view as a Markdown table with title and notes. Markup in the data is escaped."""
    view = view.shown
    table = [as_markdown_table(view.header, view.rows)] if view.header else []
    return "\n".join([f"{view.title}\n", *table, *(f"{note}\n" for note in view.notes)])


def as_markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table that ends with a newline. Cells are escaped where they contain table markup."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(text.translate(MARKDOWN_SPECIAL) for text in line) + " |\n" for line in lines)


def as_csv(view: View) -> str:
    """Return a view as CSV with unrounded numbers and all columns, because programs select columns by name.

    A column of means over seeds is followed by a column "… sd" with their standard deviations.
    """
    columns: list[list[str | float]] = []
    for name, *cells in zip(view.header, *view.rows, strict=True):
        columns.append([name, *map(_get_mean, cells)])
        spreads = [_get_spread(cell) for cell in cells]
        if any(spread != "" for spread in spreads):
            columns.append([f"{name} sd", *spreads])
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(zip(*columns, strict=True))
    return out.getvalue()


def as_latex(view: View) -> str:
    """Return a view as a LaTeX table of the package booktabs, with title and notes as comments. All cells are escaped."""
    import pandas

    view = view.shown
    engine = "requires lualatex or xelatex if it has letters such as α"
    title, *notes = (f"% {' '.join(text.split())}" for text in (view.title, engine, *view.notes))
    frame = pandas.DataFrame(view.rows, columns=view.header)
    table = frame.to_latex(index=False, escape=True, column_format=view.alignment) if view.header else ""
    return "\n".join((title, table.replace(MINUS, "$-$").replace(NARROW_SPACE, "\\,"), *notes, ""))


def _get_mean(cell: str) -> str | float:
    if isinstance(cell, Number):
        return statistics.fmean(cell.values) if cell.values else ""
    return "" if cell == ABSENT else cell.translate(PLAIN_NUMBERS)


def _get_spread(cell: str) -> str | float:
    return statistics.stdev(cell.values) if isinstance(cell, Number) and len(cell.values) > 1 else ""


FORMATS: Mapping[str, Callable[[View], str]] = {"md": as_markdown, "latex": as_latex, "csv": as_csv}


def render(view: View, format: str = "text") -> None:
    """Print a view as text, md, latex or csv. Raises ValueError for another format."""
    if format == "text":
        return _print_text(view)
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; choose one of {['text', *FORMATS]}")
    # A blank line at the end of CSV would be read as a row.
    print(FORMATS[format](view), end="" if format == "csv" else "\n")


def render_line(text: str, hanging: int = 0) -> None:
    """Print a sentence wrapped at the width of the terminal, with `hanging` spaces before each further line."""
    indent = " " * hanging
    print(textwrap.fill(make_printable(text), get_width(), subsequent_indent=indent, break_on_hyphens=False))


def get_width() -> int:
    """Return the width of COLUMNS if it is set, else that of the terminal, else 200 columns."""
    return shutil.get_terminal_size((DEFAULT_WIDTH, 0)).columns


def make_console() -> Console:
    """Return a console of this width that prints text as it is."""
    from rich.console import Console

    return Console(width=get_width(), highlight=False, markup=False, emoji=False)


def _print_text(view: View) -> None:
    """Print a view. Columns of words are folded to the width of the terminal, and a wider table sticks out."""
    rows = tuple(tuple(map(make_printable, row)) for row in view.rows)
    view = replace(
        view, title=make_printable(view.title), rows=rows, notes=tuple(map(make_printable, view.notes))
    ).shown
    render_line(view.title)
    if view.header:
        _print_table(view)
    for note in view.notes:
        render_line(note)


def _print_table(view: View) -> None:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    least_width = 0
    for name, alignment, *cells in zip(view.header, view.alignment, *view.rows, strict=True):
        longest = max(map(len, [*name.split(), *cells]))
        # rich narrows columns without a fixed width, even below a `min_width`, and then cuts the last ones
        width = longest if alignment == "r" else None
        table.add_column(name, justify="right" if width else "left", overflow="fold", width=width)
        least_width += (width or min(longest, MAX_TEXT_WIDTH)) + GAP
    for row in view.rows:
        table.add_row(*row)
    console = make_console()
    console.width = max(console.width, least_width)
    console.print(table)
