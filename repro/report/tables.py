"""Views of the paper's tables, of exhibits and of ledgers of claims, from records."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from repro.records.store import Record
from repro.report.view import View, format_mean, format_spread_note, format_with_sign
from repro.spec import FIELDS, TRAINED, Column, Correlation, Exhibit, Row, Run, Table, Unit, is_blind
from repro.spec.artefact import MAIN, PAPERS
from repro.spec.registry import find_paper
from repro.statistics.contrasts import drop_seed
from repro.text import ABSENT, count_noun, format_number, format_spans

# judging loads scipy, which is slow to import
if TYPE_CHECKING:
    from repro.statistics.judge import Comparison, Judgement

INTERVAL_NOTE = "95 % intervals that are not corrected for multiple tests"
ALSO_SHOWN_FOR = {"max_tokens": ("surrogate",)}
"""Fields that are also shown for untrained reference systems."""
LEDGER_ORDER = ("DIFFERS", "SMALL", "OPEN", "HOLDS", "tentative", "descriptive", "not run", "other scale")
"""Order of verdicts in a ledger: failures first, claims without a verdict last."""


def get_metric_path(pattern: str, run: Run, context: str = "own") -> str:
    """Return the path of a metric in a record. `{suite}` becomes the suite of the run under a context."""
    return pattern.replace("{suite}", run.suite if context == "own" else f"{run.suite}+{context}")


def format_cell(column: Column, row: Row, records: Sequence[Record]) -> str:
    """Return the text of one cell over the records of its row, or a dash if a record lacks the value.

    A row under another context differs only in scores, so its other cells are empty.
    """
    all_blind = bool(records) and all(is_blind(record.run) for record in records)
    if row.context != "own" and "{suite}" not in column.value and not all_blind:
        return ""
    values: list[float] = []
    for record in records:
        is_trained = record.run.architecture in TRAINED
        if column.value in FIELDS:
            has_field = is_trained or record.run.architecture in ALSO_SHOWN_FOR.get(column.value, ())
            return format_number(getattr(record.run, column.value) if has_field else None, column.decimals)
        else:
            path = get_metric_path(column.value, record.run, row.context).replace("{part}", row.part)
            names = path.split(" & ")
            if any(name not in record.metrics for name in names):
                return ABSENT
            values.append(fmean(record.metrics[name] for name in names) * column.factor)
    return format_mean(values, column.decimals)


def make_table_view(table: Table, runs: Sequence[Run], published: Sequence[Record], local: Sequence[Record]) -> View:
    """Return a table with up to three lines per row: paper, published records and records of this machine.

    A published row whose runs differ in more than their seed is complete, or has dashes if one of its records is
    missing. Other rows show the available seeds and their number. Rows of yours without a record are dropped.
    """
    scale = runs[0].scale
    columns = [column for column in table.columns if not column.scales or scale in column.scales]
    lines: list[tuple[str, ...]] = []
    for row in table.rows:
        if row.scales and scale not in row.scales:
            continue
        if row.paper:
            printed = [format_number(row.paper.get(column.label), column.decimals) for column in columns]
            lines.append((row.label, "paper", "", *printed))
        row_runs = [run for run in runs if row.runs.matches(run)]
        if not row_runs:
            continue
        expected = set(row_runs)
        is_one_system = len({drop_seed(run) for run in row_runs}) == 1
        for source, records in (("published", published), ("yours", local)):
            available = [record for record in records if record.run in expected]
            # A command runs only some of the published rows on a reader's machine.
            if not records or (source == "yours" and not available):
                continue
            is_incomplete = source == "published" and not is_one_system and len(available) < len(row_runs)
            cells = [format_cell(column, row, [] if is_incomplete else available) for column in columns]
            lines.append((row.label, source, f"{len(available)}/{len(row_runs)}", *cells))
    header = ("", "origin", "seeds", *(column.label for column in columns))
    notes = format_spread_note(lines)
    if all(source == "paper" for _, source, *_ in lines):
        notes += (format_no_records_note(table.name, scale),)
    title = f"{table.name} at scale {scale}: {table.caption}"
    return View(title, header, _blank_repeats(lines), notes)


def make_exhibit_view(exhibit: Exhibit, wanted: Sequence[Run], records: Sequence[Record]) -> View:
    """Return the rows of text from the first record that contains them, in the order of the runs."""
    title = f"{exhibit.name} at scale {wanted[0].scale if wanted else ABSENT}: {exhibit.caption}"
    name = exhibit.rows or exhibit.name
    # Reversed, so that the first of several records of a run counts.
    by_run = {record.run: record for record in reversed(records) if name in record.exhibits}
    for run in wanted:
        if exhibit.runs.matches(run) and run in by_run:
            record = by_run[run]
            rows = tuple(
                tuple(_format_text(row.get(column)) for column in exhibit.columns) for row in record.exhibits[name]
            )
            return View(title, exhibit.columns, rows, (f"from record {record.id}",), "l" * len(exhibit.columns))
    missing = (format_no_records_note(exhibit.name, wanted[0].scale),) if wanted else ()
    return View(title, exhibit.columns, (), missing, "l" * len(exhibit.columns))


def format_no_records_note(name: str, scale: str) -> str:
    """Return the note of an artefact without records, with the command that shows the cost of its runs."""
    return f"No record has a row of it yet; `repro plan {name} --scale {scale}` shows the cost of its runs."


def _format_text(value: str | float | None) -> str:
    if value is None:
        return ABSENT
    return format_number(value, 3) if isinstance(value, float) else str(value)


def _blank_repeats(lines: Sequence[tuple[str, ...]]) -> tuple[tuple[str, ...], ...]:
    """Return the lines, without the label of those that have the same label as the line above."""
    above = [None, *(label for label, *_ in lines)]
    return tuple(("" if label == last else label, *cells) for last, (label, *cells) in zip(above, lines, strict=False))


BRIEF_HEADER = ("claim", "verdict", "effect", "statement")
LEDGER_HEADER = ("claim", "verdict", "effect", "interval", "threshold", "seeds", "yours", "statement")


def make_claims_view(judgements: Sequence[Judgement], title: str = "Claims", *, is_brief: bool = False) -> View:
    """Return the ledger: a row per claim with an effect, and one line per kind of other claims.

    A brief ledger for a terminal has neither thresholds nor seeds, which `repro why` shows. A claim with several
    comparisons shows their range.
    """
    shown = [judged for judged in judgements if judged.comparisons]
    notes = tuple(_list_other_claims(judgements, shown))
    title = f"{title}, with {INTERVAL_NOTE}"
    if is_brief:
        return View(title, BRIEF_HEADER, tuple(map(_format_brief_row, shown)), notes, "llrl")
    return View(title, LEDGER_HEADER, tuple(map(format_claim_row, shown)), notes, "llrrlrrl")


def _format_brief_row(judged: Judgement) -> tuple[str, ...]:
    if len(judged.comparisons) > 1:
        effect = f"{len(judged.comparisons)}: {format_effect_range(judged)}"
    else:
        effect = format_effect(judged.comparisons[0], judged.unit)
    yours = f" (yours {format_in_unit(judged.yours[0], judged.unit)})" if judged.yours else ""
    unit = "" if judged.unit.name in ("", "points") else f" [{judged.unit.name}]"
    return judged.claim.id, judged.verdict, effect + yours, judged.claim.statement + unit


def format_claim_row(judged: Judgement) -> tuple[str, ...]:
    """Return the cells of one claim under LEDGER_HEADER."""
    unit, comparisons = judged.unit, judged.comparisons
    if not comparisons:
        return judged.claim.id, judged.verdict, *[ABSENT] * 4, "", format_claim(judged)
    effects = ", ".join(format_in_unit(comparison.effect, unit) for comparison in comparisons)
    intervals = ", ".join(format_interval(comparison, unit) for comparison in comparisons)
    threshold = f"{judged.claim.threshold} {unit.name}".rstrip()
    yours = ", ".join(format_in_unit(effect, unit) for effect in judged.yours)
    cells = (effects, intervals, threshold, format_seeds(judged), yours)
    return judged.claim.id, judged.verdict, *cells, format_claim(judged)


def format_effect(comparison: Comparison, unit: Unit) -> str:
    """Return an effect and its interval as text, for example "+0.43 (+0.27 to +0.60)". The interval may be missing."""
    interval = "" if comparison.low is None else f" {format_interval(comparison, unit)}"
    return format_in_unit(comparison.effect, unit) + interval


def format_effect_range(judged: Judgement) -> str:
    """Return the smallest and the largest effect of a claim as text, for example "+0.10 to +0.36"."""
    effects = [comparison.effect for comparison in judged.comparisons]
    return f"{format_in_unit(min(effects), judged.unit)} to {format_in_unit(max(effects), judged.unit)}"


def format_interval(comparison: Comparison, unit: Unit) -> str:
    """Return an interval as text, for example "(+0.27 to +0.60)", or a dash if it is missing."""
    if comparison.low is None or comparison.high is None:
        return ABSENT
    return f"({format_in_unit(comparison.low, unit)} to {format_in_unit(comparison.high, unit)})"


def format_seeds(judged: Judgement) -> str:
    """Return the seeds of a judgement, for example "3–7, 9", or what it is over if nothing depends on a seed."""
    is_over_datasets = isinstance(judged.claim, Correlation) and judged.claim.points == "datasets"
    return format_spans(judged.seeds) or ("datasets" if is_over_datasets else "queries")


def format_claim(judged: Judgement) -> str:
    """Return the sentence of a claim and the remarks on its verdict."""
    notes = "; ".join(filter(None, (judged.claim.caveat, *list_remarks(judged), judged.note)))
    return f"{judged.claim.statement} ({notes})" if notes else judged.claim.statement


def list_remarks(judged: Judgement) -> list[str]:
    """Return the remarks on a headline claim (p value, collections) and on a claim about context."""
    remarks = []
    unit = judged.unit
    if judged.p is not None:
        # A tentative claim only counts in the family of the others, with a p of 1.
        if judged.word != "tentative":
            remarks.append(f"p = {judged.p:.2g} after Holm")
        intervals = [comparison.collections for comparison in judged.comparisons if comparison.collections]
        ranges = [f"({format_in_unit(low, unit)} to {format_in_unit(high, unit)})" for low, high in intervals]
        if ranges:
            remarks.append(f"interval over collections {', '.join(ranges)}")
    if judged.claim.blind is not None and judged.comparisons:
        gain = f"minus context-blind {format_effect(judged.blind, unit)}" if judged.blind else ""
        remarks.append(gain or "not attributable to context")
    return remarks


def _list_other_claims(judgements: Sequence[Judgement], shown: Sequence[Judgement]) -> Iterator[str]:
    """Yield one line per kind of claim without a row."""
    others = [judged for judged in judgements if judged not in shown]
    not_run = [judged.claim.id for judged in others if judged.word == "not run"]
    if not_run:
        yield f"{count_noun(len(not_run), 'claim')} without records: {', '.join(not_run)}"
    by_scale: dict[str, list[str]] = {}
    for judged in others:
        if judged.word == "other scale":
            by_scale.setdefault(judged.note, []).append(judged.claim.id)
    for scale, ids in by_scale.items():
        yield f"{count_noun(len(ids), 'claim')} at scale {scale}: {', '.join(ids)}"


def format_in_unit(value: float, unit: Unit) -> str:
    """Return a difference in its printed unit, with its sign and without the name of the unit."""
    return format_with_sign(value * unit.factor, unit.decimals)


def sort_judgements(judgements: Iterable[Judgement]) -> list[Judgement]:
    """Return the judgements sorted as a ledger: failures first, claims without a verdict last."""
    return sorted(judgements, key=lambda judged: (LEDGER_ORDER.index(judged.word), judged.effect is None))


def group_by_paper(judgements: Iterable[Judgement]) -> dict[str, list[Judgement]]:
    """Group the judgements by paper, this suite's paper first, each group sorted as a ledger."""
    by_paper: dict[str, list[Judgement]] = {paper: [] for paper in PAPERS}
    for judged in sort_judgements(judgements):
        by_paper[find_paper(judged.claim.id)].append(judged)
    # This suite's paper is listed even if it has no claim.
    return {paper: group for paper, group in by_paper.items() if group or paper == MAIN}


def format_summary_line(judgements: Sequence[Judgement]) -> str:
    """Return the number of claims per verdict, as one line."""
    counts = Counter(judged.word for judged in judgements)
    verdicts = ", ".join(f"{counts[word]} {word}" for word in LEDGER_ORDER if counts[word])
    return f"{count_noun(len(judgements), 'claim')}: {verdicts or 'none judged'}"
