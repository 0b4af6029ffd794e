"""Render a view as text for a terminal, Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from repro.report.latex import as_latex
from repro.report.view import LONG_TEXT, View
from repro.text import NARROW_SPACE, visible

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable


def as_markdown(view: View) -> str:
    """Return a view as a Markdown table with title and notes. Markup in the data is escaped."""
    view = view.shown
    table = [as_markdown_table(view.header, view.rows)] if view.header else []
    return "\n".join([f"{view.title}\n", *table, *(f"{note}\n" for note in view.notes)])


def as_markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table that ends with a newline. Cells are escaped where they contain table markup."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(text.translate(MARKDOWN_SPECIAL) for text in line) + " |\n" for line in lines)


MARKDOWN_SPECIAL = str.maketrans({"|": "\\|", "<": "&lt;", "\n": " ", "\r": " "})


def as_csv(view: View) -> str:
    """Return a view as CSV with plain numbers and all columns, because programs select columns by name."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([text.replace(NARROW_SPACE, "") for text in line] for line in (view.header, *view.rows))
    return out.getvalue()


FORMATS: Mapping[str, Callable[[View], str]] = {"md": as_markdown, "latex": as_latex, "csv": as_csv}


def render(view: View, format: str = "text") -> None:
    """Print a view as text, md, latex or csv. Raises ValueError for another format."""
    if format == "text":
        return _print_text(view)
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; choose one of {['text', *FORMATS]}")
    # a blank line would be read as a row
    print(FORMATS[format](view), end="" if format == "csv" else "\n")


def render_line(text: str, hanging: int = 0) -> None:
    """Print a sentence wrapped at the width of the terminal, with `hanging` spaces before each further line."""
    print(textwrap.fill(visible(text), _width(), subsequent_indent=" " * hanging, break_on_hyphens=False))


def console_here() -> Console:
    """Return a console as wide as the terminal, or 200 columns wide if the output is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else ELSEWHERE, highlight=False, markup=False, emoji=False)


def _width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else ELSEWHERE


MAX_FOLDED_ROWS = 1000
"""Largest table whose cells are folded to the terminal's width. In longer tables each row is one line."""


def format_plain_lines(view: View) -> Iterator[str]:
    """Return a view as lines, one per row and not folded, so that thousands of rows can be searched."""
    view = view.shown
    widths = [max(map(len, column)) for column in zip(view.header, *view.rows, strict=True)]
    yield from (view.title, "")
    for number, row in enumerate((view.header, *view.rows)):
        cells = zip(row, widths, view.alignment, strict=True)
        yield "  ".join(text.ljust(width) if side == "l" else text.rjust(width) for text, width, side in cells).rstrip()
        if not number:
            yield "  ".join("─" * width for width in widths)
    yield from view.notes


def _print_text(view: View) -> None:
    """Print a view within the width of the terminal, or 200 columns if the output is not a terminal.

    In a very long table each row is one line. In other tables no number is broken. Columns that do not fit follow in
    further parts, and each part repeats the names of the rows. A last column of sentences that would be too narrow is
    printed below its row.
    """
    rows = tuple(tuple(map(visible, row)) for row in view.rows)
    view = replace(view, title=visible(view.title), rows=rows, notes=tuple(map(visible, view.notes)))
    if len(view.rows) > MAX_FOLDED_ROWS:
        sys.stdout.writelines(f"{line}\n" for line in format_plain_lines(view))
        return
    view, console = view.shown, console_here()
    if not view.header:
        for line in (view.title, "", *view.notes, ""):
            console.print(line)
        return
    *others, last = [_measure_width(view, number) for number in range(len(view.header))]
    is_sentence = view.alignment[-1] == "l" and "r" in view.alignment and last > LONG_TEXT
    if is_sentence and console.width - sum(others) - GAP * len(others) < LONG_TEXT:
        _print_with_sentences(view, console.width)
    else:
        print(textwrap.fill(view.title, console.width, break_on_hyphens=False))
        is_narrow = console.width < NARROW
        for part in [_select_columns(view, console.width)] if is_narrow else _split_columns(view, console.width):
            console.print(_make_rich_table(part))
            if dropped := [name for name in view.header if is_narrow and name not in part.header]:
                print(textwrap.fill(f"{DROPPED} {', '.join(dropped)}", console.width))
    for note in view.notes:
        console.print(note)


ELSEWHERE, GAP, LONG_WORDS = 200, 3, 24
"""Width if the output is not a terminal, gap between two columns, and widest column of words before folding."""
NARROW = 100
"""Width from which a table that does not fit is printed in parts. On narrower terminals it has fewer columns."""
FIRST = ("NDCG@10", "mean", "95 %")
"""Headers of the columns that a narrow terminal shows first. The others follow in order while there is room."""
DROPPED = "Not shown in a terminal this narrow:"
INDENT = "    "
"""Indentation of a sentence below its row."""


def _measure_width(view: View, number: int) -> int:
    """Return the natural width of a column: that of its longest cell or header word."""
    return max(map(len, [*view.header[number].split(), *(row[number] for row in view.rows), ""]))


def _select_columns(view: View, width: int) -> View:
    """Return the view with the columns that fit into a width: the names of the rows, scores, intervals, then others."""
    names = len(view.alignment) - len(view.alignment.lstrip("l"))
    widths = [_get_least_width(view, number) + GAP for number in range(len(view.header))]
    room = width - sum(widths[:names])
    # a second column of names, for example whose records, makes room for a number
    kept = list(range(names))
    while len(kept) > 1 and room < min(widths[names:], default=0):
        room += widths[kept.pop()]
    others = range(names, len(view.header))
    for number in sorted(others, key=lambda number: _get_priority(view.header[number])):
        if widths[number] <= room or len(kept) == len(view.header[:1]):
            kept.append(number)
            room -= widths[number]
    return view.with_columns(sorted(kept))


def _get_priority(name: str) -> int:
    return next((place for place, word in enumerate(FIRST) if name.startswith(word)), len(FIRST))


def _get_least_width(view: View, number: int) -> int:
    """Return the width that a column needs. Words are folded, numbers are not."""
    width = _measure_width(view, number)
    return min(width, LONG_WORDS) if view.alignment[number] == "l" else width


def _split_columns(view: View, width: int) -> Iterator[View]:
    """Yield the view in parts that fit into a width. Each part repeats the leading columns of words."""
    # Leading left-aligned columns hold the names of the rows.
    names = len(view.alignment) - len(view.alignment.lstrip("l"))
    widths = [_get_least_width(view, number) for number in range(len(view.header))]
    kept = list(range(names))
    for number in range(names, len(view.header)):
        room = width - sum(widths[n] + GAP for n in [*kept, number])
        if room < 0 and len(kept) > names:
            yield view.with_columns(kept)
            kept = list(range(names))
        kept.append(number)
    yield view.with_columns(kept)


def _make_rich_table(view: View) -> RichTable:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, (name, side) in enumerate(zip(view.header, view.alignment, strict=True)):
        is_number = side == "r"
        least = _measure_width(view, number) if is_number else None
        table.add_column(name, justify="right" if is_number else "left", overflow="fold", min_width=least)
    for row in view.rows:
        table.add_row(*row)
    return table


def _print_with_sentences(view: View, width: int) -> None:
    """Print the rows of a view with the last cell of each row as a paragraph below it."""
    widths = [max(_measure_width(view, number), len(name)) for number, name in enumerate(view.header[:-1])]
    print(textwrap.fill(view.title, width), end="\n\n")
    for row in (view.header, *view.rows):
        cells = zip(row[:-1], widths, view.alignment, strict=False)
        print("  ".join(cell.ljust(size) if side == "l" else cell.rjust(size) for cell, size, side in cells).rstrip())
        print(textwrap.fill(row[-1], width, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False))
    print()
