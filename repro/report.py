"""Rows for readers: tables and claims as text, Markdown, LaTeX or CSV; the only place that formats numbers."""

from __future__ import annotations

import csv
import io
import statistics
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.spec import FIELDS, TRAINED, Column, Exhibit, Row, Run, Table
from repro.store import Record

if TYPE_CHECKING:  # judging loads scipy; planning and the queue, which only print, should not wait for it
    from repro.claims import Judgement

ABSENT = "–"
LEDGER_ORDER = ("DIFFERS", "UNDECIDED", "HOLDS", "WRONG SCALE", "NOT RUN")
"""What does not hold on top, what was not run last."""


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
        """Gives l or r for each column."""
        return self.align or "ll"[: len(self.header)] + "r" * (len(self.header) - 2)


NARROW_SPACE = "\u202f"


def format_number(value: float | None, decimals: int = 1) -> str:
    """Gives a number with its decimals, thousands apart; a dash where there is none."""
    return ABSENT if value is None else f"{value:,.{decimals}f}".replace(",", NARROW_SPACE)


def format_seconds(seconds: float | None) -> str:
    """Gives a duration for a reader: 45 s, 12 min, 3.5 h; nothing where it is not known."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{format_number(seconds / 3600)} h"


def format_mean(values: Sequence[float], decimals: int) -> str:
    """Gives mean ± standard deviation over seeds; the mean alone for one; a dash for none."""
    if not values:
        return ABSENT
    mean = format_number(statistics.fmean(values), decimals)
    return mean if len(values) < 2 else f"{mean} ± {format_number(statistics.stdev(values), decimals)}"


def metric_path(pattern: str, run: Run, context: str = "own") -> str:
    """Gives the path under which a record keeps a metric: `{suite}` becomes the run's suite, seen through a context."""
    return pattern.replace("{suite}", run.suite if context == "own" else f"{run.suite}+{context}")


def cell(column: Column, row: Row, records: Iterable[Record]) -> str:
    """Gives the text of one cell over the records of its row; a dash when one of them lacks the value.

    A row seen through another context differs only in scores: its other cells stay empty.
    """
    if row.context != "own" and "{suite}" not in column.value:
        return ""
    values: list[float] = []
    for record in records:
        if column.value in FIELDS:
            value = getattr(record.run, column.value) if record.run.architecture in TRAINED else None
            return format_number(value, column.decimals)
        path = metric_path(column.value, record.run, row.context).replace("{part}", row.part)
        if path not in record.metrics:
            return ABSENT
        values.append(record.metrics[path] * column.factor)
    return format_mean(values, column.decimals)


def table_view(table: Table, wanted: Sequence[Run], published: Sequence[Record], yours: Sequence[Record]) -> View:
    """Gives a table of the paper with up to three lines a row: paper, published records, this machine's records.

    A published row that lacks one of its records has dashes: what is published is whole or not there. Of your own
    records a row shows those there are, and how many they are.
    """
    scale = wanted[0].scale
    columns = [column for column in table.columns if not column.scales or scale in column.scales]
    lines: list[tuple[str, ...]] = []
    kept = {"published": published, "yours": yours}
    for row in (row for row in table.rows if not row.scales or scale in row.scales):
        if row.paper:
            printed = [format_number(row.paper.get(c.label), c.decimals) for c in columns]
            lines.append((row.label, "paper", "", *printed))
        asked = [run for run in wanted if row.of.matches(run)]
        for whose, records in ((whose, records) for whose, records in kept.items() if records and asked):
            have = [record for record in records if record.run in asked]
            shown = [] if whose == "published" and len(have) < len(asked) else have
            seeds = f"{len(have)}/{len(asked)}"
            lines.append((row.label, whose, seeds, *(cell(column, row, shown) for column in columns)))
    header = ("", "whose", "seeds", *(column.label for column in columns))
    return View(f"{table.name} at scale {scale}: {table.caption}", header, _blank_repeated(lines))


def exhibit_view(exhibit: Exhibit, wanted: Sequence[Run], records: Sequence[Record]) -> View:
    """Gives the rows of text of the first record, in the order of the runs, that carries them."""
    title = f"{exhibit.name} at scale {wanted[0].scale if wanted else ABSENT}: {exhibit.caption}"
    name = exhibit.rows or exhibit.name
    have = {record.run: record for record in reversed(records) if name in record.exhibits}
    for run in (run for run in wanted if exhibit.of.matches(run) and run in have):
        note = f"from record {have[run].id}"
        return exhibit_rows(title, have[run].exhibits[name], columns=exhibit.columns, notes=(note,))
    return exhibit_rows(title, [{}], columns=exhibit.columns, notes=("no record carries these rows yet",))


def exhibit_rows(
    title: str,
    rows: Sequence[Mapping[str, str | float]],
    *,
    columns: Sequence[str] = (),
    notes: tuple[str, ...] = (),
) -> View:
    """Gives rows of text as a view; without `columns` those of the first row."""
    names = tuple(columns or rows[0])
    lines = tuple(tuple(_text(row.get(name)) for name in names) for row in rows)
    return View(title, names, lines, notes, "l" * len(names))


def _text(value: str | float | None) -> str:
    if value is None:
        return ABSENT
    return format_number(value, 3) if isinstance(value, float) else str(value)


def _blank_repeated(lines: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    shown, previous = [], None
    for line in lines:
        shown.append(("", *line[1:]) if line[0] == previous else line)
        previous = line[0]
    return tuple(shown)


def claims_view(judgements: Sequence[Judgement], title: str = "Claims") -> View:
    """Gives the ledger: each claim with its verdict, effect, interval, seeds and runs."""
    rows = []
    for judged in judgements:
        points = 100.0 if judged.is_share else 1.0
        interval = ABSENT
        if judged.low is not None and judged.high is not None:
            interval = f"[{_signed(judged.low * points)}, {_signed(judged.high * points)}]"
        effect = ABSENT if judged.effect is None else _signed(judged.effect * points)
        seeds = str(judged.num_seeds or ABSENT)
        text = judged.claim.says + (f" ({judged.note})" if judged.note else "")
        rows.append((judged.claim.id, judged.verdict, effect, interval, seeds, str(judged.num_runs or ABSENT), text))
    header = ("claim", "verdict", "effect", "interval", "seeds", "runs", "what the paper says")
    return View(title, header, tuple(rows), align="llrrrrl")


def _signed(value: float) -> str:
    return f"{round(value, 2) + 0.0:+.2f}"  # plus zero, lest a loss of next to nothing reads "-0.00"


def sort_judgements(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Gives the judgements with what does not hold first and what was not run last."""
    return sorted(judgements, key=lambda judged: LEDGER_ORDER.index(judged.verdict))


def summary_line(judgements: Sequence[Judgement]) -> str:
    """Gives the number of claims with each verdict, as one line."""
    counts = Counter(judged.verdict for judged in judgements)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in LEDGER_ORDER if counts[verdict])
    return f"{len(judgements)} claims: {told or 'none judged'}"


def as_markdown(view: View) -> str:
    """Gives a view as a Markdown table; text of the data stays text."""
    lines = [view.header, tuple("---" for _ in view.header), *view.rows]
    body = "\n".join("| " + " | ".join(text.translate(MARKDOWN_SPECIAL) for text in line) + " |" for line in lines)
    notes = "".join(f"\n\n{note}" for note in view.notes)
    return f"{view.title}\n\n{body}{notes}\n"


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
    """Gives a view as a LaTeX tabular, its title above it as a comment; every character of the data is escaped."""
    rows = [" & ".join(text.translate(LATEX_SPECIAL) for text in line) + r" \\" for line in (view.header, *view.rows)]
    head, *body = rows
    title, columns = " ".join(view.title.split()), "".join(_latex_column(view, n) for n in range(len(view.header)))
    opening = (f"% {title}", rf"\begin{{tabular}}{{{columns}}}", r"\hline", head, r"\hline")
    return "\n".join((*opening, *body, r"\hline", r"\end{tabular}", ""))


def _latex_column(view: View, number: int) -> str:
    is_long = any(len(line[number]) > LONG_TEXT for line in view.rows)
    return r"p{0.35\linewidth}" if is_long else view.alignment[number]


def as_csv(view: View) -> str:
    """Gives a view as CSV, its numbers in one piece."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([text.replace(NARROW_SPACE, "") for text in line] for line in (view.header, *view.rows))
    return out.getvalue()


FORMATS: Mapping[str, Callable[[View], str]] = {"md": as_markdown, "latex": as_latex, "csv": as_csv}


def render(view: View, format: str = "text") -> None:
    """Prints a view as text, md, latex or csv; ValueError names the formats."""
    if format == "text":
        return _print_text(view)
    if format not in FORMATS:
        raise ValueError(f"unknown format {format!r}; choose of {['text', *FORMATS]}")
    print(FORMATS[format](view))


def _print_text(view: View) -> None:
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
