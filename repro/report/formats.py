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
from repro.text import NARROW_SPACE, make_printable

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
    # A blank line at the end of CSV would be read as a row.
    print(FORMATS[format](view), end="" if format == "csv" else "\n")


def render_line(text: str, hanging: int = 0) -> None:
    """Print a sentence wrapped at the width of the terminal, with `hanging` spaces before each further line."""
    print(
        textwrap.fill(
            make_printable(text), _get_terminal_width(), subsequent_indent=" " * hanging, break_on_hyphens=False
        )
    )


def make_console() -> Console:
    """Return a console as wide as the terminal, or 200 columns wide if the output is not a terminal."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else DEFAULT_WIDTH, highlight=False, markup=False, emoji=False)


def _get_terminal_width() -> int:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else DEFAULT_WIDTH


MAX_FOLDED_ROWS = 1000
"""Largest table whose cells are folded to the terminal's width. In longer tables each row is one line."""


def format_plain_lines(view: View) -> Iterator[str]:
    """Return a view as lines, one per row and not folded, so that thousands of rows can be searched."""
    view = view.shown
    widths = [max(map(len, column)) for column in zip(view.header, *view.rows, strict=True)]
    yield from (view.title, "")
    for index, row in enumerate((view.header, *view.rows)):
        yield _join_cells(row, widths, view.alignment)
        if index == 0:
            yield "  ".join("─" * width for width in widths)
    yield from view.notes


def _join_cells(cells: Sequence[str], widths: Sequence[int], alignments: str) -> str:
    """Return a row of cells as a line, each padded to the width of its column."""
    columns = zip(cells, widths, alignments, strict=True)
    return "  ".join(text.ljust(width) if side == "l" else text.rjust(width) for text, width, side in columns).rstrip()


def _print_text(view: View) -> None:
    """Print a view within the width of the terminal, or 200 columns if the output is not a terminal.

    In a very long table each row is one line. In other tables no number is broken. Columns that do not fit follow in
    further parts, and each part repeats the names of the rows. A last column of sentences that would be too narrow is
    printed below its row.
    """
    rows = tuple(tuple(map(make_printable, row)) for row in view.rows)
    view = replace(view, title=make_printable(view.title), rows=rows, notes=tuple(map(make_printable, view.notes)))
    if len(view.rows) > MAX_FOLDED_ROWS:
        sys.stdout.writelines(f"{line}\n" for line in format_plain_lines(view))
        return
    view, console = view.shown, make_console()
    if not view.header:
        for line in (view.title, "", *view.notes, ""):
            console.print(line)
        return
    *widths, last_width = [_measure_width(view, index) for index in range(len(view.header))]
    is_sentence = view.alignment[-1] == "l" and "r" in view.alignment and last_width > LONG_TEXT
    if is_sentence and console.width - sum(widths) - GAP * len(widths) < LONG_TEXT:
        _print_with_sentences(view, console.width)
    else:
        print(textwrap.fill(view.title, console.width, break_on_hyphens=False))
        is_narrow = console.width < MIN_WIDTH_FOR_PARTS
        parts = [_select_columns(view, console.width)] if is_narrow else _split_columns(view, console.width)
        for part in parts:
            console.print(_make_rich_table(part))
            dropped = [name for name in view.header if is_narrow and name not in part.header]
            if dropped:
                print(textwrap.fill(f"{DROPPED_NOTE} {', '.join(dropped)}", console.width))
    for note in view.notes:
        console.print(note)


DEFAULT_WIDTH = 200
"""Width in characters if the output is not a terminal."""
GAP = 3
"""Gap between two columns."""
MAX_TEXT_WIDTH = 24
"""Widest column of words before folding."""
MIN_WIDTH_FOR_PARTS = 100
"""Width from which a table that does not fit is printed in parts. On narrower terminals it has fewer columns."""
PRIORITY_COLUMNS = ("NDCG@10", "mean", "95 %")
"""Headers of the columns that are shown if not all fit, or in the first part. The others follow in order."""
DROPPED_NOTE = "Not shown in a terminal this narrow:"
INDENT = "    "
"""Indentation of a sentence below its row."""


def _measure_width(view: View, index: int) -> int:
    """Return the natural width of a column: that of its longest cell or header word."""
    return max(map(len, [*view.header[index].split(), *(row[index] for row in view.rows), ""]))


def _select_columns(view: View, width: int) -> View:
    """Return the view with the columns that fit into a width: the names of the rows, scores, intervals, then others."""
    num_names = _count_name_columns(view)
    widths = [_get_least_width(view, index) + GAP for index in range(len(view.header))]
    space_left = width - sum(widths[:num_names])
    # A second column of names, for example the source of the records, is dropped if no number fits.
    selected = list(range(num_names))
    while len(selected) > 1 and space_left < min(widths[num_names:], default=0):
        space_left += widths[selected.pop()]
    for index in _sort_by_priority(view):
        if widths[index] <= space_left or len(selected) == len(view.header[:1]):
            selected.append(index)
            space_left -= widths[index]
    return view.with_columns(sorted(selected))


def _count_name_columns(view: View) -> int:
    """Return the number of leading left-aligned columns, which hold the names of the rows."""
    return len(view.alignment) - len(view.alignment.lstrip("l"))


def _sort_by_priority(view: View) -> list[int]:
    """Return the columns after the names of the rows: scores, intervals, then others in their order."""

    def get_priority(index: int) -> int:
        ranks = (rank for rank, prefix in enumerate(PRIORITY_COLUMNS) if view.header[index].startswith(prefix))
        return next(ranks, len(PRIORITY_COLUMNS))

    return sorted(range(_count_name_columns(view), len(view.header)), key=get_priority)


def _get_least_width(view: View, index: int) -> int:
    """Return the width that a column needs. Words are folded, numbers are not."""
    width = _measure_width(view, index)
    return min(width, MAX_TEXT_WIDTH) if view.alignment[index] == "l" else width


def _split_columns(view: View, width: int) -> Iterator[View]:
    """Yield the view in parts that fit into a width. Each part repeats the names of the rows, the first has the scores."""
    num_names = _count_name_columns(view)
    widths = [_get_least_width(view, index) for index in range(len(view.header))]
    selected = list(range(num_names))
    for index in _sort_by_priority(view):
        space_left = width - sum(widths[index] + GAP for index in [*selected, index])
        if space_left < 0 and len(selected) > num_names:
            yield view.with_columns(sorted(selected))
            selected = list(range(num_names))
        selected.append(index)
    yield view.with_columns(sorted(selected))


def _make_rich_table(view: View) -> RichTable:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, (name, alignment) in enumerate(zip(view.header, view.alignment, strict=True)):
        is_number = alignment == "r"
        min_width = _measure_width(view, index) if is_number else None
        table.add_column(name, justify="right" if is_number else "left", overflow="fold", min_width=min_width)
    for row in view.rows:
        table.add_row(*row)
    return table


def _print_with_sentences(view: View, width: int) -> None:
    """Print the rows of a view with the last cell of each row as a paragraph below it."""
    widths = [max(_measure_width(view, index), len(name)) for index, name in enumerate(view.header[:-1])]
    print(textwrap.fill(view.title, width), end="\n\n")
    for row in (view.header, *view.rows):
        print(_join_cells(row[:-1], widths, view.alignment[:-1]))
        print(textwrap.fill(row[-1], width, initial_indent=INDENT, subsequent_indent=INDENT, break_on_hyphens=False))
    print()
