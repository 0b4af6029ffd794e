"""Tables of the paper, exhibits and ledgers of claims as views: records in, cells of text out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from repro.records.store import Record
from repro.report.needed import needed_words
from repro.report.view import View, format_mean, format_number, format_signed, spread_note
from repro.spec import FIELDS, TRAINED, Column, Exhibit, Row, Run, Table, Unit, is_blind
from repro.spec.artefact import ABSENT, MAIN, MINUTES, PAPERS
from repro.spec.registry import paper_of
from repro.spec.values import counted

if TYPE_CHECKING:  # judging loads scipy; what only prints should not wait for it
    from repro.claims.judge import Judgement

INTERVAL_WORDS = "intervals at 95 %, corrected for the number of an artefact's claims"
WITHOUT = "{num} rows have records older than these measures; `repro run {name} --scale {scale}` makes new ones"
READS_TOKENS = {"max_tokens": ("surrogate",)}
"""Fields that a reference system, which is not trained, shows too."""
LEDGER_ORDER = ("DIFFERS", "NO EFFECT", "UNDECIDED", "HOLDS", "WRONG SCALE", "NOT RUN")
"""What does not hold on top, what was not run last."""


def metric_path(pattern: str, run: Run, context: str = "own") -> str:
    """Return the path under which a record keeps a metric: `{suite}` becomes the run's suite, seen through a context"""
    return pattern.replace("{suite}", run.suite if context == "own" else f"{run.suite}+{context}")


def cell(column: Column, row: Row, records: Iterable[Record]) -> str:
    """Return the text of one cell over the records of its row; a dash when one of them lacks the value.

    A row seen through another context differs only in scores: its other cells stay empty.
    """
    values: list[float] = []
    for record in records:
        if row.context != "own" and "{suite}" not in column.value and not is_blind(record.run):
            return ""
        if column.value == MINUTES:
            if record.run.architecture not in TRAINED:
                return ""
            values.append(record.provenance["training"]["seconds"] / 60)
            continue
        if column.value in FIELDS:
            shown = record.run.architecture in (*TRAINED, *READS_TOKENS.get(column.value, ()))
            value = getattr(record.run, column.value) if shown else None
            return format_number(value, column.decimals)
        path = metric_path(column.value, record.run, row.context).replace("{part}", row.part)
        found = [record.metrics.get(one) for one in path.split(" & ")]
        if None in found:
            return ABSENT
        values.append(fmean(value for value in found if value is not None) * column.factor)
    return format_mean(values, column.decimals)


def table_view(table: Table, wanted: Sequence[Run], published: Sequence[Record], yours: Sequence[Record]) -> View:
    """Return a table of the paper with up to three lines a row: paper, published records, this machine's records.

    A published row that lacks one of its records has dashes: what is published is whole or not there. Of your own
    records a row shows those there are, and how many they are. Published rows whose records are older than all that
    the table shows are left out, and a note says so.
    """
    scale = wanted[0].scale
    columns = [column for column in table.columns if not column.scales or scale in column.scales]
    lines: list[tuple[str, ...]] = []
    num_without = 0
    kept = {"published": published, "yours": yours}
    for row in (row for row in table.rows if not row.scales or scale in row.scales):
        if row.paper:
            printed = [format_number(row.paper.get(c.label), c.decimals) for c in columns]
            lines.append((row.label, "paper", "", *printed))
        asked = [run for run in wanted if row.of.matches(run)]
        meant = set(asked)
        for whose, records in ((whose, records) for whose, records in kept.items() if records and asked):
            have = [record for record in records if record.run in meant]
            shown = [] if whose == "published" and len(have) < len(asked) else have
            cells = [cell(column, row, shown) for column in columns]
            if shown and not set(cells) - {ABSENT, ""}:
                num_without += 1
                continue
            lines.append((row.label, whose, f"{len(have)}/{len(asked)}", *cells))
    header = ("", "whose", "seeds", *(column.label for column in columns))
    notes = (WITHOUT.format(num=num_without, name=table.name, scale=scale),) if num_without else ()
    if not notes and all(whose == "paper" for _, whose, *_ in lines):
        notes = (no_records_note(table.name, scale),)
    title = f"{table.name} at scale {scale}: {table.caption}"
    return View(title, header, _blank_repeated(lines), (*spread_note(lines), *notes))


def exhibit_view(exhibit: Exhibit, wanted: Sequence[Run], records: Sequence[Record]) -> View:
    """Return the rows of text of the first record, in the order of the runs, that carries them."""
    title = f"{exhibit.name} at scale {wanted[0].scale if wanted else ABSENT}: {exhibit.caption}"
    name = exhibit.rows or exhibit.name
    have = {record.run: record for record in reversed(records) if name in record.exhibits}
    for run in (run for run in wanted if exhibit.of.matches(run) and run in have):
        note = f"from record {have[run].id}"
        return exhibit_rows(title, have[run].exhibits[name], columns=exhibit.columns, notes=(note,))
    notes = (no_records_note(exhibit.name, wanted[0].scale),) if wanted else ()
    return View(title, tuple(exhibit.columns), (), notes, "l" * len(exhibit.columns))


def no_records_note(name: str, scale: str) -> str:
    """Return what stands for the rows of an artefact of which no record has one yet, and what to type next."""
    return f"No record has a row of it yet; `repro plan {name} --scale {scale}` says what its runs would take."


def exhibit_rows(
    title: str,
    rows: Sequence[Mapping[str, str | float]],
    *,
    columns: Sequence[str] = (),
    notes: tuple[str, ...] = (),
) -> View:
    """Return rows of text as a view; without `columns` those of the first row."""
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


LEDGER_HEADER = ("claim", "verdict", "effect", "interval", "holds if", "seeds", "what is claimed")


def claims_view(judgements: Sequence[Judgement], title: str = "Claims") -> View:
    """Return the ledger: each claim with its verdict, effect and interval, the bar with its unit, and its seeds."""
    rows = []
    for judged in judgements:
        unit, interval = judged.unit, ABSENT
        if judged.low is not None and judged.high is not None:
            interval = f"[{in_unit(judged.low, unit)}, {in_unit(judged.high, unit)}]"
        effect = ABSENT if judged.effect is None else in_unit(judged.effect, unit)
        bar = ABSENT if judged.effect is None else f"{judged.claim.bar} {unit.name}"
        text = judged.claim.says + (f" ({judged.note})" if judged.note else "")
        text = "; ".join(filter(None, (text, needed_words(judged))))
        rows.append((judged.claim.id, judged.verdict, effect, interval, bar, str(judged.num_seeds or ABSENT), text))
    return View(f"{title}; {INTERVAL_WORDS}", LEDGER_HEADER, tuple(rows), align="llrrlrl")


def in_unit(value: float, unit: Unit) -> str:
    """Return a difference as it is printed, with its sign, without the unit's name."""
    return format_signed(value * unit.factor, unit.decimals)


def sort_judgements(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Return the judgements with what does not hold first and what was not run last."""
    return sorted(judgements, key=ledger_place)


def ledger_place(judged: Judgement) -> tuple[int, bool]:
    """Return the place of a judgement in a ledger: by its verdict, what was measured before what was reckoned."""
    return LEDGER_ORDER.index(judged.verdict), judged.effect is None


def by_paper(judgements: Iterable[Judgement]) -> dict[str, list[Judgement]]:
    """Return the judgements by the paper whose claims they are, that of this suite first, sorted as a ledger."""
    found: dict[str, list[Judgement]] = {paper: [] for paper in PAPERS}
    for judged in sort_judgements(judgements):
        found[paper_of(judged.claim.id)].append(judged)
    return {paper: those for paper, those in found.items() if those or paper == MAIN}


def summary_line(judgements: Sequence[Judgement]) -> str:
    """Return the number of claims with each verdict, as one line."""
    counts = Counter(judged.verdict for judged in judgements)
    told = ", ".join(f"{counts[verdict]} {verdict}" for verdict in LEDGER_ORDER if counts[verdict])
    return f"{counted(len(judgements), 'claim')}: {told or 'none judged'}"
