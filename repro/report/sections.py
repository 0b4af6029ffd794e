"""Content of the HTML report: at each scale the claims, and a section per artefact with table, pictures and records."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from repro.analyses.batches import BATCH_EXHIBIT
from repro.records.store import Record
from repro.report.artefacts import RECORDS, judgements, load_records, make_view
from repro.report.claims_overview import list_forest_rows, make_counts_view
from repro.report.figure_data import list_figure_rows, make_rows_view
from repro.report.gallery import needs_no_record
from repro.report.names import COMPANION, find_artefact, format_heading, format_title, split_name
from repro.report.tables import LEDGER_HEADER, format_claim_row, list_exhibit_rows, sort_judgements
from repro.report.view import View
from repro.spec import Exhibit, Experiment, Figure, Run, Table
from repro.spec.artefact import MAIN, PAPERS, get_rows
from repro.spec.registry import find_paper
from repro.spec.scales import Scale, get_scale
from repro.statistics.contrasts import drop_seed
from repro.statistics.judge import Judgement
from repro.text import ABSENT

Rows = Sequence[Mapping[str, Any]]
Draw = Callable[[Figure, str, str, Rows], str]
"""Returns a figure as SVG text, given its scale, the source of its records and its rows. Raises ValueError if it fails."""
DrawForest = Callable[[Rows, str], str]
"""Returns a forest plot of rows at a scale as SVG text."""
PAPER_SCALE = "small"
"""Scale with the values of the paper."""
TEXT_TITLES = {BATCH_EXHIBIT: "One batch"}
"""Titles of the texts in records."""
SKIPPED_TEXTS = ("context_example",)
"""Texts of older records that are not shown."""


@dataclass(frozen=True)
class Line:
    """One claim of the ledger, its printed cells, and the artefact that it is about."""

    judged: Judgement
    artefact: str

    @property
    def cells(self) -> dict[str, str]:
        """Printed cells by column of the ledger."""
        return dict(zip(LEDGER_HEADER, format_claim_row(self.judged), strict=True))


@dataclass(frozen=True)
class Picture:
    """A drawn figure as SVG text, its data, and the source of its records."""

    whose: str
    svg: str
    rows: Rows

    @property
    def csv(self) -> str:
        """Return the plotted data as CSV."""
        out = io.StringIO()
        writer = csv.DictWriter(out, list(self.rows[0]) if self.rows else [], lineterminator="\n")
        writer.writeheader()
        writer.writerows(self.rows)
        return out.getvalue()


@dataclass(frozen=True)
class Section:
    """Content of the report for one artefact at one scale."""

    name: str
    scale: str
    title: str
    caption: str
    lines: tuple[Line, ...]
    view: View
    is_figure: bool
    pictures: tuple[Picture, ...]
    problem: str  # why pictures failed, empty if they are drawn or records are missing
    texts: tuple[View, ...]  # texts in its records that no exhibit shows, for example a batch
    records: tuple[tuple[str, Record], ...]  # each with its source
    num_asked: int
    paper: str = MAIN

    @property
    def num_published(self) -> int:
        """Number of published records."""
        return sum(source == "published" for source, _ in self.records)

    @property
    def heading(self) -> str:
        """Name as the paper writes it, with the suffix in brackets."""
        return format_heading(self.name)

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key in the report: per paper the tables, figures and other artefacts, companion papers last."""
        kind, number, _ = split_name(COMPANION.sub("", self.name))
        return (list(PAPERS).index(self.paper), ("Table", "Figure").index(kind) if number else 2, number)


@dataclass(frozen=True)
class ScaleReport:
    """Content of the report at one scale: the verdicts on all claims, their picture, and the sections."""

    scale: Scale
    judged: tuple[Judgement, ...]
    forest: Picture | None
    sections: tuple[Section, ...]

    @property
    def counts(self) -> View:
        """Number of claims of this paper per verdict."""
        return make_counts_view([judged for judged in self.judged if find_paper(judged.claim.id) == MAIN])

    @property
    def ledgers(self) -> dict[str, list[Line]]:
        """Claims of each paper, failures first."""
        lines = {line.judged.claim.id: line for section in self.sections for line in section.lines}
        ledgers: dict[str, list[Line]] = {PAPERS[MAIN]: []}
        for judged in sort_judgements(self.judged):
            if judged.claim.id in lines:
                paper = PAPERS[find_paper(judged.claim.id)]
                ledgers.setdefault(paper, []).append(lines[judged.claim.id])
        return ledgers

    @property
    def deviations(self) -> View:
        """Fields in which the scale differs from the paper's small setting."""
        fields, paper_fields = self.scale.fields, get_scale(PAPER_SCALE).fields
        rows = [(name, value, paper_fields[name]) for name, value in fields.items() if value != paper_fields[name]]
        texts = tuple(tuple(ABSENT if value is None else str(value) for value in row) for row in rows)
        return View("Values that differ from the paper", ("field", self.scale.name, "paper"), texts, align="lrr")


def make_scale_report(scale: str, chosen: Iterable[Experiment], draw: Draw, draw_forest: DrawForest) -> ScaleReport:
    """Judge the claims of the experiments that have runs of their own at a scale, and make their sections."""
    judged: list[Judgement] = []
    sections: list[Section] = []
    for experiment in chosen:
        if scale in {run.scale for run in experiment.runs(scale)}:
            verdicts = judgements(experiment, scale)
            judged += verdicts
            sections += make_sections(experiment, scale, verdicts, draw)
    rows = list_forest_rows(verdict for verdict in judged if find_paper(verdict.claim.id) == MAIN)
    forest = Picture("published", draw_forest(rows, scale), rows) if rows else None
    ordered = sorted(sections, key=lambda section: section.order)
    return ScaleReport(get_scale(scale), tuple(judged), forest, tuple(ordered))


def make_sections(experiment: Experiment, scale: str, verdicts: Sequence[Judgement], draw: Draw) -> list[Section]:
    """Return a section for each artefact of an experiment. `verdicts` are those on its claims at this scale."""
    runs = tuple(dict.fromkeys(experiment.runs(scale)))
    by_source = {source: load_records(runs, source) for source in RECORDS}
    lines = [Line(judged, find_artefact(judged.claim.id, experiment.artefact_names)) for judged in verdicts]
    declared = {artefact.rows or artefact.name for artefact in experiment.artefacts if isinstance(artefact, Exhibit)}
    sections = []
    for artefact in experiment.artefacts:
        selections = [artefact.runs] if isinstance(artefact, Exhibit) else [row.runs for row in get_rows(artefact)]
        expected = {run for run in runs if any(pick.matches(run) for pick in selections)} or set(runs)
        records = [(source, record) for source in RECORDS for record in by_source[source] if record.run in expected]
        view, rows = _make_view_and_rows(artefact, runs, by_source)
        pictures, problem = _draw_pictures(artefact, scale, draw, rows)
        sections.append(
            Section(
                name=artefact.name,
                scale=scale,
                title=format_title(experiment, artefact),
                caption=artefact.caption,
                lines=tuple(line for line in lines if line.artefact == artefact.name),
                view=view,
                is_figure=isinstance(artefact, Figure),
                pictures=pictures,
                problem=problem,
                texts=_list_texts(artefact, [record for _, record in records], declared),
                records=tuple(records),
                num_asked=len(expected),
                paper=experiment.paper,
            )
        )
    return sections


def _make_view_and_rows(
    artefact: Table | Figure | Exhibit, runs: Sequence[Run], by_source: Mapping[str, list[Record]]
) -> tuple[View, dict[str, Rows]]:
    """Return an artefact as a table, and the plotted rows of a figure by the source of the records."""
    if not isinstance(artefact, Figure):
        return make_view(artefact, runs, by_source["published"], by_source["yours"]), {}
    rows: dict[str, Rows] = {
        source: list_figure_rows(artefact, runs, records) for source, records in by_source.items() if records
    }
    return make_rows_view(artefact, runs, rows), rows


def _draw_pictures(
    artefact: Table | Figure | Exhibit, scale: str, draw: Draw, rows: Mapping[str, Rows]
) -> tuple[tuple[Picture, ...], str]:
    """Return the pictures of an artefact, and why others failed. One failed picture does not affect the others."""
    if not isinstance(artefact, Figure):
        return (), ""
    drawn, problems = [], []
    sources = [source for source in RECORDS if rows.get(source)] or ["published"] * needs_no_record(artefact)
    for source in sources:
        try:
            drawn.append(Picture(source, draw(artefact, scale, source, rows.get(source, ())), rows.get(source, ())))
        except ValueError as error:
            problems.append(f"{source} records: {error}")
    return tuple(drawn), "; ".join(problems)


def _list_texts(artefact: Table | Figure | Exhibit, records: Sequence[Record], declared: set[str]) -> tuple[View, ...]:
    """Return the texts in records that are not artefacts, from one seed per system."""
    by_system: dict[Run, Record] = {}
    for record in sorted(records, key=lambda record: record.run.seed):
        by_system.setdefault(drop_seed(record.run), record)
    views = []
    for record in by_system.values():
        label = next((f"{row.label}, " for row in get_rows(artefact) if row.runs.matches(record.run)), "")
        for name, rows in sorted(record.exhibits.items()):
            if name not in declared and name not in SKIPPED_TEXTS and rows:
                title = f"{TEXT_TITLES.get(name, name)} ({label}seed {record.run.seed})"
                views.append(list_exhibit_rows(title, rows))
    return tuple(views)


def list_machines(records: Iterable[Record]) -> list[str]:
    """Return a line per distinct machine on which records were trained and measured."""
    lines = []
    for record in records:
        sessions = record.provenance.get("training", {}).get("sittings", ())
        for metadata in (*sessions, record.provenance):
            machine, versions = metadata.get("machine", {}), metadata.get("versions", {})
            if machine:
                device, dtype, threads = (machine.get(name, ABSENT) for name in ("device", "dtype", "num_threads"))
                torch, python = versions.get("torch", ABSENT), versions.get("python", ABSENT)
                lines.append(f"{device}, {dtype}, threads: {threads}, torch {torch}, Python {python}")
    return list(dict.fromkeys(lines))
