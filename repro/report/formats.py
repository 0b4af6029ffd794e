"""A view as text for a terminal, Markdown, LaTeX or CSV."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from repro.report.view import NARROW_SPACE, View


def as_markdown(view: View) -> str:
    """Return a view as a Markdown table with title and notes; text of the data stays text."""
    notes = "".join(f"\n{note}\n" for note in view.notes)
    return f"{view.title}\n\n{as_markdown_table(view.header, view.rows)}{notes}"


def as_markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table, each line ended; what would be markup of the table itself is escaped."""
    lines = [header, ["---"] * len(header), *rows]
    return "".join("| " + " | ".join(text.translate(MARKDOWN_SPECIAL) for text in line) + " |\n" for line in lines)


MARKDOWN_SPECIAL = str.maketrans({"|": "\\|", "<": "&lt;", "\n": " ", "\r": " "})

LATEX_SPECIAL = str.maketrans(
    {c: f"\\{c}" for c in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\n": " ", "\r": " "}
    | {"±": r"$\pm$", "–": "--", "·": r"$\cdot$", "<": r"\textless{}", ">": r"\textgreater{}", "|": r"\textbar{}"}
    | {"≥": r"$\geq$", "≤": r"$\leq$", "→": r"$\to$", "×": r"$\times$", "−": "$-$", NARROW_SPACE: r"\,"}
)

LONG_TEXT = 40
"""A column of longer texts is a paragraph in LaTeX."""


def as_latex(view: View) -> str:
    """Return a view as a LaTeX tabular, its title above it as a comment; every character of the data is escaped."""
    rows = [" & ".join(text.translate(LATEX_SPECIAL) for text in line) + r" \\" for line in (view.header, *view.rows)]
    head, *body = rows
    title, columns = " ".join(view.title.split()), "".join(_latex_column(view, n) for n in range(len(view.header)))
    opening = (f"% {title}", rf"\begin{{tabular}}{{{columns}}}", r"\hline", head, r"\hline")
    return "\n".join((*opening, *body, r"\hline", r"\end{tabular}", ""))


def _latex_column(view: View, number: int) -> str:
    is_long = any(len(line[number]) > LONG_TEXT for line in view.rows)
    return r"p{0.35\linewidth}" if is_long else view.alignment[number]


def as_csv(view: View) -> str:
    """Return a view as CSV, its numbers in one piece."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([text.replace(NARROW_SPACE, "") for text in line] for line in (view.header, *view.rows))
    return out.getvalue()


FORMATS: Mapping[str, Callable[[View], str]] = {"md": as_markdown, "latex": as_latex, "csv": as_csv}


def render(view: View, format: str = "text") -> None:
    """Print a view as text, md, latex or csv; ValueError names the formats."""
    if format == "text":
        return _print_text(view)
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; choose of {['text', *FORMATS]}")
    print(FORMATS[format](view))


MOST_FOLDED_ROWS = 1000
"""Rows of a table whose cells are folded to the terminal's width; of more, each is one line as long as it is."""


def plain_lines(view: View) -> Iterator[str]:
    """Return a view as lines, one a row and none folded: what thousands of rows are searched in."""
    widths = [max(map(len, column)) for column in zip(view.header, *view.rows, strict=True)]
    yield from (view.title, "")
    for number, row in enumerate((view.header, *view.rows)):
        cells = zip(row, widths, view.alignment, strict=True)
        yield "  ".join(text.ljust(width) if side == "l" else text.rjust(width) for text, width, side in cells).rstrip()
        if not number:
            yield "  ".join("─" * width for width in widths)
    yield from view.notes


def _print_text(view: View) -> None:
    if len(view.rows) > MOST_FOLDED_ROWS:
        sys.stdout.writelines(f"{line}\n" for line in plain_lines(view))
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False, markup=False, emoji=False)
    table = RichTable(title=Text(view.title), title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for name, side in zip(view.header, view.alignment, strict=True):
        table.add_column(name, justify="left" if side == "l" else "right", overflow="fold")
    for row in view.rows:
        table.add_row(*row)
    console.print(table)
    for note in view.notes:
        console.print(note)
