"""Rows for readers: tables and claims as text, Markdown, LaTeX or CSV; the only place that formats numbers."""

from __future__ import annotations

import csv
import io
import statistics
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.claims import Judgement
from repro.spec import FIELDS, TRAINED, Column, Row, Run, Table
from repro.store import Record
from repro.writing import whole_file

ABSENT = "–"


@dataclass(frozen=True)
class View:
    """A table ready to be printed: every cell is text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    notes: tuple[str, ...] = ()


def format_number(value: float | None, decimals: int = 1) -> str:
    """Gives a number with its decimals, or a dash where there is none."""
    return ABSENT if value is None else f"{value:.{decimals}f}"


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
        path = metric_path(column.value, record.run, row.context)
        if path not in record.metrics:
            return ABSENT
        values.append(record.metrics[path] * column.factor)
    return format_mean(values, column.decimals)


def table_view(table: Table, wanted: Sequence[Run], published: Sequence[Record], yours: Sequence[Record]) -> View:
    """Gives a table of the paper with up to three lines a row: paper, published records, this machine's records."""
    scale = wanted[0].scale
    columns = [column for column in table.columns if not column.scales or scale in column.scales]
    lines: list[tuple[str, ...]] = []
    for row in (row for row in table.rows if not row.scales or scale in row.scales):
        if row.paper:
            printed = [format_number(row.paper.get(c.label), c.decimals) for c in columns]
            lines.append((row.label, "paper", "", *printed))
        asked = [run for run in wanted if row.of.matches(run)]
        for who, records in (("published", published), ("yours", yours)):
            if not records:
                continue
            have = [record for record in records if record.run in asked]
            seeds = f"{len(have)}/{len(asked)}"
            lines.append((row.label, who, seeds, *(cell(column, row, have) for column in columns)))
    header = ("", "whose", "seeds", *(column.label for column in columns))
    return View(f"{table.name} at scale {scale}: {table.caption}", header, _blank_repeated(lines))


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
            interval = f"[{judged.low * points:+.2f}, {judged.high * points:+.2f}]"
        effect = ABSENT if judged.effect is None else f"{judged.effect * points:+.2f}"
        seeds = str(judged.num_seeds or ABSENT)
        text = judged.claim.says + (f" ({judged.note})" if judged.note else "")
        rows.append((judged.claim.id, judged.verdict, effect, interval, seeds, str(judged.num_runs or ABSENT), text))
    header = ("claim", "verdict", "effect", "interval", "seeds", "runs", "what the paper says")
    return View(title, header, tuple(rows))


def as_markdown(view: View) -> str:
    """Gives a view as a Markdown table."""
    lines = [view.header, tuple("---" for _ in view.header), *view.rows]
    body = "\n".join("| " + " | ".join(text.replace("|", "\\|") for text in line) + " |" for line in lines)
    notes = "".join(f"\n\n{note}" for note in view.notes)
    return f"{view.title}\n\n{body}{notes}\n"


LATEX_SPECIAL = str.maketrans({c: f"\\{c}" for c in "&%$#_{}"} | {"±": r"$\pm$", "–": "--", "·": r"$\cdot$", "\\": ""})


def as_latex(view: View) -> str:
    """Gives a view as a LaTeX tabular."""
    rows = [" & ".join(text.translate(LATEX_SPECIAL) for text in line) + r" \\" for line in (view.header, *view.rows)]
    head, *body = rows
    columns = "l" * 2 + "r" * (len(view.header) - 2)
    return "\n".join(
        [rf"\begin{{tabular}}{{{columns}}}", r"\hline", head, r"\hline", *body, r"\hline", r"\end{tabular}", ""]
    )


def as_csv(view: View) -> str:
    """Gives a view as CSV."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerows([view.header, *view.rows])
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

    console = Console(width=None if sys.stdout.isatty() else 200, highlight=False)
    table = RichTable(title=view.title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False)
    for number, name in enumerate(view.header):
        table.add_column(name, justify="left" if number < 2 or name == view.header[-1] else "right", overflow="fold")
    for row in view.rows:
        table.add_row(*row)
    console.print(table)
    for note in view.notes:
        console.print(note)


BLOCK_START, BLOCK_END = "<!-- claims: written by `repro check --write` -->", "<!-- claims: end -->"


def write_claims_block(judgements: Sequence[Judgement], scale: str, path: Path) -> None:
    """Renews the claims between the two markers of a Markdown file; ValueError when the markers are not there."""
    text = path.read_text()
    if text.count(BLOCK_START) != 1 or text.count(BLOCK_END) != 1:
        raise ValueError(f"{path} must have {BLOCK_START!r} and {BLOCK_END!r} once each; put them where the claims go")
    before, rest = text.split(BLOCK_START)
    block = as_markdown(claims_view(judgements, f"Claims at scale `{scale}`, from the published records."))
    with whole_file(path) as part:
        part.write_text(f"{before}{BLOCK_START}\n\n{block}\n{BLOCK_END}{rest.split(BLOCK_END)[1]}")
