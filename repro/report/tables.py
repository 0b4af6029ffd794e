"""Views of the paper's tables, of exhibits and of ledgers of claims, from records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from repro.records.store import Record
from repro.report.view import View, format_mean, format_spread_note, format_with_sign
from repro.spec import FIELDS, TRAINED, Column, Exhibit, Identity, Row, Run, Table, Unit, is_blind
from repro.spec.artefact import MAIN, MINUTES, PAPERS
from repro.spec.registry import find_paper
from repro.statistics.contrasts import drop_seed
from repro.text import ABSENT, count_noun, format_number, format_spans

# judging loads scipy, which is slow to import
if TYPE_CHECKING:
    from repro.statistics.judge import Comparison, Judgement

INTERVAL_WORDS = "plain 95 % intervals, so that of twenty words one may be chance"
WITHOUT = "{num} rows have records older than these measures; `repro run {name} --scale {scale}` makes new ones"
READS_TOKENS = {"max_tokens": ("surrogate",)}
"""Fields that are also shown for untrained reference systems."""
LEDGER_ORDER = ("DIFFERS", "SMALL", "OPEN", "HOLDS", "tentative", "descriptive", "not run", "other scale")
"""Order of verdicts in a ledger: failures first, claims without a verdict last."""
NARROW = 110
"""Width of a terminal below which the ledger omits thresholds."""
MIN_SENTENCE_WIDTH = 30
"""Shortest length in characters to which a claim's sentence is cut."""


def get_metric_path(pattern: str, run: Run, context: str = "own") -> str:
    """Return the path of a metric in a record. `{suite}` becomes the suite of the run under a context."""
    return pattern.replace("{suite}", run.suite if context == "own" else f"{run.suite}+{context}")


def format_cell(column: Column, row: Row, records: Iterable[Record]) -> str:
    """Return the text of one cell over the records of its row, or a dash if a record lacks the value.

    A row under another context differs only in scores, so its other cells are empty.
    """
    values: list[float] = []
    records = list(records)
    is_of_blind = bool(records) and all(is_blind(record.run) for record in records)
    if row.context != "own" and "{suite}" not in column.value and not is_of_blind:
        return ""
    for record in records:
        if column.value == MINUTES:
            if record.run.architecture not in TRAINED:
                return ""
            values.append(record.provenance["training"]["seconds"] / 60)
            continue
        if column.value in FIELDS:
            shown = record.run.architecture in (*TRAINED, *READS_TOKENS.get(column.value, ()))
            value = getattr(record.run, column.value) if shown else None
            return format_number(value, column.decimals)
        path = get_metric_path(column.value, record.run, row.context).replace("{part}", row.part)
        found = [record.metrics.get(one) for one in path.split(" & ")]
        if None in found:
            return ABSENT
        values.append(fmean(value for value in found if value is not None) * column.factor)
    return format_mean(values, column.decimals)


def make_table_view(table: Table, wanted: Sequence[Run], published: Sequence[Record], yours: Sequence[Record]) -> View:
    """Return a table with up to three lines per row: paper, published records and records of this machine.

    A published row whose runs differ in more than their seed is complete, or has dashes if one of its records is
    missing. Other rows show the available seeds and their number. Rows whose records predate all columns of the table
    are dropped with a note.
    """
    scale = wanted[0].scale
    columns = [column for column in table.columns if not column.scales or scale in column.scales]
    lines: list[tuple[str, ...]] = []
    num_without = 0
    by_source = {"published": published, "yours": yours}
    for row in (row for row in table.rows if not row.scales or scale in row.scales):
        if row.paper:
            printed = [format_number(row.paper.get(c.label), c.decimals) for c in columns]
            lines.append((row.label, "paper", "", *printed))
        asked = [run for run in wanted if row.of.matches(run)]
        meant, is_one_system = set(asked), len(set(map(drop_seed, asked))) == 1
        for whose, records in ((whose, records) for whose, records in by_source.items() if records and asked):
            have = [record for record in records if record.run in meant]
            shown = [] if whose == "published" and len(have) < len(asked) and not is_one_system else have
            cells = [format_cell(column, row, shown) for column in columns]
            if shown and not set(cells) - {ABSENT, ""}:
                num_without += 1
                continue
            lines.append((row.label, whose, f"{len(have)}/{len(asked)}", *cells))
    header = ("", "whose", "seeds", *(column.label for column in columns))
    notes = (WITHOUT.format(num=num_without, name=table.name, scale=scale),) if num_without else ()
    if not notes and all(whose == "paper" for _, whose, *_ in lines):
        notes = (format_no_records_note(table.name, scale),)
    title = f"{table.name} at scale {scale}: {table.caption}"
    return View(title, header, _blank_repeats(lines), (*format_spread_note(lines), *notes))


def make_exhibit_view(exhibit: Exhibit, wanted: Sequence[Run], records: Sequence[Record]) -> View:
    """Return the rows of text from the first record that contains them, in the order of the runs."""
    title = f"{exhibit.name} at scale {wanted[0].scale if wanted else ABSENT}: {exhibit.caption}"
    name = exhibit.rows or exhibit.name
    have = {record.run: record for record in reversed(records) if name in record.exhibits}
    for run in (run for run in wanted if exhibit.of.matches(run) and run in have):
        note = f"from record {have[run].id}"
        return list_exhibit_rows(title, have[run].exhibits[name], columns=exhibit.columns, notes=(note,))
    notes = (format_no_records_note(exhibit.name, wanted[0].scale),) if wanted else ()
    return View(title, tuple(exhibit.columns), (), notes, "l" * len(exhibit.columns))


def format_no_records_note(name: str, scale: str) -> str:
    """Return the note of an artefact without records, with the command that shows the cost of its runs."""
    return f"No record has a row of it yet; `repro plan {name} --scale {scale}` says what its runs would take."


def list_exhibit_rows(
    title: str,
    rows: Sequence[Mapping[str, str | float]],
    *,
    columns: Sequence[str] = (),
    notes: tuple[str, ...] = (),
) -> View:
    """Return rows of text as a view. The default columns are those of the first row."""
    names = tuple(columns or rows[0])
    lines = tuple(tuple(_text(row.get(name)) for name in names) for row in rows)
    return View(title, names, lines, notes, "l" * len(names))


def _text(value: str | float | None) -> str:
    if value is None:
        return ABSENT
    return format_number(value, 3) if isinstance(value, float) else str(value)


def _blank_repeats(lines: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    shown, previous = [], None
    for line in lines:
        shown.append(("", *line[1:]) if line[0] == previous else line)
        previous = line[0]
    return tuple(shown)


LEDGER_HEADER = ("claim", "word", "effect", "interval", "threshold", "seeds", "yours", "what is claimed")


def make_claims_view(judgements: Sequence[Judgement], title: str = "Claims", *, width: int | None = None) -> View:
    """Return the ledger: a row per claim with an effect, and one line per kind of other claims.

    With `width` a row fits on a line of this many characters if possible. Sentences are cut, claims with several
    comparisons show a range, and claims about printed numbers have no row.
    """
    is_brief = width is not None
    shown = [
        one for one in judgements if one.comparisons or (is_arithmetic(one) and one.word != "HOLDS" and not is_brief)
    ]
    rows = [format_claim_row(one, is_brief=is_brief) for one in shown]
    if width is not None:
        # The sentence gets the width that the other non-empty columns leave.
        columns = list(zip(LEDGER_HEADER, *rows, strict=True))[:-1]
        room = width - GAP - sum(max(map(len, column)) + GAP for column in columns if any(column[1:]))
        rows = [(*row[:-1], format_claim(one, room)) for row, one in zip(rows, shown, strict=True)]
    notes = tuple(_list_others(judgements, shown))
    view = View(f"{title}, with {INTERVAL_WORDS}", LEDGER_HEADER, tuple(rows), notes, "llrrlrrl")
    # `repro why` shows the threshold
    is_narrow = width is not None and width < NARROW
    return view.with_columns([0, 1, 2, 3, 5, 6, 7], notes) if is_narrow else view


GAP = 3
"""Gap between two columns of a terminal, in characters."""


def is_arithmetic(judged: Judgement) -> bool:
    """Return whether a claim is about printed numbers only, and needs no record."""
    return isinstance(judged.claim, Identity)


def format_claim_row(judged: Judgement, *, is_brief: bool = False) -> tuple[str, ...]:
    """Return the cells of one claim under LEDGER_HEADER."""
    unit, some = judged.unit, judged.comparisons
    if not some:
        return judged.claim.id, judged.verdict, *[ABSENT] * 4, "", format_claim(judged)
    effects, yours = (
        [format_in_unit(value, unit) for value in values] for values in ([c.effect for c in some], judged.yours)
    )
    intervals = [format_interval(one, unit) for one in some]
    if is_brief and len(some) > 1:
        ends = [format_in_unit(find(one.effect for one in some), unit) for find in (min, max)]
        effects, intervals, yours = [f"{len(some)}: {ends[0]} to {ends[1]}"], ["see `why`"], yours[:1]
    threshold, seeds = f"{judged.claim.threshold} {unit.name}", format_seeds(judged)
    cells = (", ".join(effects), ", ".join(intervals), threshold, seeds, ", ".join(yours))
    return judged.claim.id, judged.verdict, *cells, format_claim(judged)


def format_interval(one: Comparison, unit: Unit) -> str:
    """Return an interval as text, for example "(+0.27 to +0.60)", or a dash if it is missing."""
    if one.low is None or one.high is None:
        return ABSENT
    return f"({format_in_unit(one.low, unit)} to {format_in_unit(one.high, unit)})"


def format_seeds(judged: Judgement) -> str:
    """Return the seeds of a judgement, for example "3–7, 9", or "queries" if nothing depends on a seed."""
    return format_spans(judged.seeds) or "queries"


def format_claim(judged: Judgement, room: int | None = None) -> str:
    """Return the sentence of a claim and the remarks on its verdict. The sentence is cut to fit into `room`."""
    says, notes = judged.claim.says, "; ".join(filter(None, (judged.claim.caveat, *list_remarks(judged), judged.note)))
    if room is not None:
        left = max(MIN_SENTENCE_WIDTH, room - (len(notes) + 3 if notes else 0))
        says = says if len(says) <= left else f"{says[: left - 2].rstrip()} …"
    return f"{says} ({notes})" if notes else says


def list_remarks(judged: Judgement) -> list[str]:
    """Return the remarks on a headline claim (p value, collections) and on a claim about context."""
    remarks, unit = [], judged.unit
    if judged.p is not None:
        remarks.append(f"p = {judged.p:.2g} after Holm")
        over = [one.collections for one in judged.comparisons if one.collections]
        words = ", ".join(f"({format_in_unit(low, unit)} to {format_in_unit(high, unit)})" for low, high in over)
        remarks += [f"over collections {words}"] if over else []
    if judged.claim.blind is not None and judged.comparisons:
        found = judged.blind
        difference = found and f"{format_in_unit(found.effect, unit)} {format_interval(found, unit)}"
        remarks.append(f"minus context-blind {difference}" if difference else "not attributable to context")
    return remarks


def _list_others(judgements: Sequence[Judgement], shown: Sequence[Judgement]) -> Iterator[str]:
    """Yield one line per kind of claim without a row."""
    others = [one for one in judgements if one not in shown]
    for words, does_hold in (("hold", True), ("do not hold", False)):
        ids = [one.claim.id for one in others if is_arithmetic(one) and (one.word == "HOLDS") == does_hold]
        if ids:
            yield f"claims about printed numbers that {words}: {', '.join(ids)}"
    for one in others:
        if one.word == "descriptive":
            yield f"{one.claim.id}, descriptive: {one.claim.says} ({one.note})"
    if waiting := [one.claim.id for one in others if one.word == "not run"]:
        yield f"{count_noun(len(waiting), 'claim')} without records: {', '.join(waiting)}"
    elsewhere: dict[str, list[str]] = {}
    for one in others:
        if one.word == "other scale":
            elsewhere.setdefault(one.note, []).append(one.claim.id)
    for scale, ids in elsewhere.items():
        yield f"{count_noun(len(ids), 'claim')} at scale {scale}: {', '.join(ids)}"


def format_in_unit(value: float, unit: Unit) -> str:
    """Return a difference in its printed unit, with its sign and without the name of the unit."""
    return format_with_sign(value * unit.factor, unit.decimals)


def sort_judgements(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Return the judgements sorted as a ledger: failures first, claims without a verdict last."""
    return sorted(judgements, key=get_ledger_rank)


def get_ledger_rank(judged: Judgement) -> tuple[int, bool]:
    """Return the sort key of a judgement in a ledger: its verdict, then measured claims before arithmetic."""
    return LEDGER_ORDER.index(judged.word), judged.effect is None


def group_by_paper(judgements: Iterable[Judgement]) -> dict[str, list[Judgement]]:
    """Group the judgements by paper, this suite's paper first, each group sorted as a ledger."""
    found: dict[str, list[Judgement]] = {paper: [] for paper in PAPERS}
    for judged in sort_judgements(judgements):
        found[find_paper(judged.claim.id)].append(judged)
    return {paper: those for paper, those in found.items() if those or paper == MAIN}


def format_summary_line(judgements: Sequence[Judgement]) -> str:
    """Return the number of claims per verdict, as one line."""
    counts = Counter(judged.word for judged in judgements)
    words = ", ".join(f"{counts[word]} {word}" for word in LEDGER_ORDER if counts[word])
    return f"{count_noun(len(judgements), 'claim')}: {words or 'none judged'}"
