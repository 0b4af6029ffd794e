"""Content of the HTML report: at each scale the claims, and a section per artefact with table, pictures and records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from repro.records.store import Record
from repro.report.artefacts import RECORDS, judgements, load_records, make_view
from repro.report.figure_data import list_figure_rows, make_rows_view
from repro.report.names import COMPANION, find_artefact, format_heading, format_title, split_name
from repro.report.tables import LEDGER_HEADER, format_claim_row, get_ledger_rank
from repro.report.view import View
from repro.spec import Exhibit, Experiment, Figure, Run, Table
from repro.spec.artefact import MAIN, PAPERS, get_rows
from repro.spec.registry import find_paper
from repro.spec.scales import Scale, get_scale
from repro.statistics.judge import Judgement

Rows = Sequence[Mapping[str, Any]]
Draw = Callable[[Figure, str, str, Rows], str]
"""Returns a figure as SVG text, given its scale, the source of its records and its rows. Raises ValueError if it fails."""


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
class Section:
    """Content of the report for one artefact at one scale."""

    name: str
    scale: str
    title: str
    caption: str
    lines: tuple[Line, ...]
    view: View
    is_figure: bool
    pictures: Mapping[str, str]  # a drawn figure as SVG text, by the source of its records
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
    """Content of the report at one scale."""

    scale: Scale
    sections: tuple[Section, ...]

    @property
    def lines(self) -> list[Line]:
        """All claims, failures first."""
        lines = (line for section in self.sections for line in section.lines)
        return sorted(lines, key=lambda line: get_ledger_rank(line.judged))

    @property
    def ledgers(self) -> dict[str, list[Line]]:
        """Claims by the title of their paper, that of this suite first."""
        ledgers: dict[str, list[Line]] = {title: [] for title in PAPERS.values()}
        for line in self.lines:
            ledgers[PAPERS[find_paper(line.judged.claim.id)]].append(line)
        return {title: lines for title, lines in ledgers.items() if lines or title == PAPERS[MAIN]}


def make_scale_report(scale: str, chosen: Iterable[Experiment], draw: Draw) -> ScaleReport:
    """Judge the claims of the experiments that have runs of their own at a scale, and make their sections."""
    sections: list[Section] = []
    for experiment in chosen:
        if scale in {run.scale for run in experiment.runs(scale)}:
            sections += make_sections(experiment, scale, judgements(experiment, scale), draw)
    return ScaleReport(get_scale(scale), tuple(sorted(sections, key=lambda section: section.order)))


def make_sections(experiment: Experiment, scale: str, verdicts: Sequence[Judgement], draw: Draw) -> list[Section]:
    """Return a section for each artefact of an experiment. `verdicts` are those on its claims at this scale."""
    runs = tuple(dict.fromkeys(experiment.runs(scale)))
    by_source = {source: load_records(runs, source) for source in RECORDS}
    lines = [Line(judged, find_artefact(judged.claim.id, experiment.artefact_names)) for judged in verdicts]
    sections = []
    for artefact in experiment.artefacts:
        rows = get_rows(artefact)
        subtracted = [row.minus for row in rows if row.minus is not None]
        selections = [artefact.runs] if isinstance(artefact, Exhibit) else [row.runs for row in (*rows, *subtracted)]
        expected = {run for run in runs if any(pick.matches(run) for pick in selections)} or set(runs)
        records = [(source, record) for source in RECORDS for record in by_source[source] if record.run in expected]
        view, pictures = _make_view_and_pictures(artefact, runs, by_source, draw)
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
                records=tuple(records),
                num_asked=len(expected),
                paper=experiment.paper,
            )
        )
    return sections


def _make_view_and_pictures(
    artefact: Table | Figure | Exhibit, runs: Sequence[Run], by_source: Mapping[str, list[Record]], draw: Draw
) -> tuple[View, dict[str, str]]:
    """Return an artefact as a table, and the pictures of a figure, one for each source of records."""
    if not isinstance(artefact, Figure):
        return make_view(artefact, runs, by_source["published"], by_source["yours"]), {}
    rows: dict[str, Rows] = {
        source: list_figure_rows(artefact, runs, records) for source, records in by_source.items() if records
    }
    pictures, problems = {}, []
    for source, source_rows in rows.items():
        try:
            if source_rows:
                pictures[source] = draw(artefact, runs[0].scale, source, source_rows)
        except ValueError as error:
            # a few records of a sweep may have nothing to draw
            problems.append(f"no picture of {source} records: {error}")
    view = make_rows_view(artefact, runs, rows)
    return replace(view, notes=(*view.notes, *problems)), pictures
