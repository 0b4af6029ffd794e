"""Sections of the HTML report, one per artefact: claims, tables, pictures and records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.analyses.batch_text import BATCH_EXHIBIT
from repro.records.store import Record
from repro.report.artefacts import RECORDS, judgements, load_records, make_view
from repro.report.figure_data import list_figure_rows, make_rows_view
from repro.report.names import COMPANION, find_artefact, format_heading, format_title, split_name
from repro.report.tables import format_claim_row, list_exhibit_rows
from repro.report.view import View
from repro.spec import Exhibit, Experiment, Figure, Run, Table
from repro.spec.artefact import MAIN, PAPERS, get_rows
from repro.spec.scales import get_scale
from repro.statistics.contrasts import drop_seed
from repro.statistics.judge import Judgement
from repro.text import ABSENT

Rows = Sequence[Mapping[str, Any]]


Renderer = Callable[[Figure, str, str, Rows], Path | None]
"""Draws a figure, given its scale, the source of its records and its rows. Returns the vector file, None without a picture.

Raises ValueError if the figure cannot be drawn, and OSError if the file cannot be written.
"""
ForestRenderer = Callable[[Rows, str], Path | None]
"""Draws a forest plot of rows at a scale, and returns the vector file."""
PAPER_SCALE = "small"
"""Scale with the values of the paper."""
TEXT_TITLES = {BATCH_EXHIBIT: "One batch"}
"""Titles of the texts in records."""
SKIPPED_TEXTS = ("context_example",)
"""Texts of older records that are not shown."""


@dataclass(frozen=True)
class Line:
    """One claim as printed in the ledger, and its artefact."""

    judged: Judgement
    effect: str
    interval: str
    threshold: str
    seeds: str
    yours: str
    text: str
    artefact: str


@dataclass(frozen=True)
class Picture:
    """A drawn figure: the source of its records and the vector file, with its data next to it."""

    whose: str
    svg: Path

    @property
    def data(self) -> Path:
        """Path of the plotted data."""
        return self.svg.with_suffix(".csv")


@dataclass(frozen=True)
class Section:
    """Content of the report for one artefact."""

    name: str
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
    num_published: int
    paper: str = MAIN

    @property
    def num_yours(self) -> int:
        """Number of records from this machine."""
        return len(self.records) - self.num_published

    @property
    def heading(self) -> str:
        """Name as the paper writes it, with the suffix in brackets."""
        return format_heading(self.name)

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key in the report: per paper the tables, figures and other artefacts, companion papers last."""
        kind, number, _ = split_name(COMPANION.sub("", self.name))
        return (list(PAPERS).index(self.paper), ("Table", "Figure").index(kind) if number else 2, number)


def make_sections(experiment: Experiment, scale: str, render: Renderer) -> list[Section]:
    """Return a section for each artefact of an experiment."""
    runs = tuple(dict.fromkeys(experiment.runs(scale)))
    by_source = {source: load_records(runs, source) for source in RECORDS}
    lines = format_ledger_lines(experiment, scale)
    declared = {artefact.rows or artefact.name for artefact in experiment.artefacts if isinstance(artefact, Exhibit)}
    sections = []
    for artefact in experiment.artefacts:
        selections = [artefact.runs] if isinstance(artefact, Exhibit) else [row.runs for row in get_rows(artefact)]
        expected = {run for run in runs if any(pick.matches(run) for pick in selections)} or set(runs)
        records = [(source, record) for source in RECORDS for record in by_source[source] if record.run in expected]
        view, rows = _make_view_and_rows(artefact, runs, by_source)
        pictures, problem = _draw_pictures(artefact, scale, render, rows)
        sections.append(
            Section(
                name=artefact.name,
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
                num_published=sum(source == "published" for source, _ in records),
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
    artefact: Table | Figure | Exhibit, scale: str, render: Renderer, rows: Mapping[str, Rows]
) -> tuple[tuple[Picture, ...], str]:
    """Return the pictures of an artefact, and why others failed. One failed picture does not affect the others."""
    if not isinstance(artefact, Figure):
        return (), ""
    drawn, problems = [], []
    for source in RECORDS:
        try:
            if svg := render(artefact, scale, source, rows.get(source, ())):
                drawn.append(Picture(source, svg))
        except (ValueError, OSError) as error:
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


def format_ledger_lines(experiment: Experiment, scale: str) -> list[Line]:
    """Return the ledger line of each claim of an experiment, judged from the published records."""
    lines = []
    for judged in judgements(experiment, scale):
        _, _, effect, interval, threshold, seeds, yours, text = format_claim_row(judged)
        artefact = find_artefact(judged.claim.id, experiment.artefact_names)
        lines.append(Line(judged, effect, interval, threshold, seeds, yours, text, artefact))
    return lines


def make_deviations_view(scale: str) -> View:
    """Return a table of the fields in which a scale differs from the paper's small setting."""
    fields, paper_fields = get_scale(scale).fields, get_scale(PAPER_SCALE).fields
    names = [name for name in fields if fields[name] != paper_fields[name]]
    values = ((name, fields[name], paper_fields[name]) for name in names)
    rows = tuple(tuple(ABSENT if value is None else str(value) for value in row) for row in values)
    return View(f"What {scale} sets otherwise than the paper", ("field", scale, "paper"), rows, align="lrr")


def list_machines(records: Iterable[Record]) -> list[str]:
    """Return a line per distinct machine on which records were trained and measured."""
    lines = []
    for record in records:
        sittings = record.provenance.get("training", {}).get("sittings", ())
        for metadata in (*sittings, record.provenance):
            machine, versions = metadata.get("machine", {}), metadata.get("versions", {})
            if machine:
                device, dtype, threads = (machine.get(name, ABSENT) for name in ("device", "dtype", "num_threads"))
                torch, python = versions.get("torch", ABSENT), versions.get("python", ABSENT)
                lines.append(f"{device}, {dtype}, threads: {threads}, torch {torch}, Python {python}")
    return list(dict.fromkeys(lines))
