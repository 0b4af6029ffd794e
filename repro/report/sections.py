"""Sections of the HTML report, one per artefact: claims, tables, pictures and records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from repro.analyses.batch_text import BATCH_EXHIBIT
from repro.analyses.context_example import COLUMNS, EXHIBIT
from repro.records.store import Record
from repro.report.artefacts import RECORDS, judgements, load_records, make_view
from repro.report.figure_data import list_figure_rows, make_rows_view
from repro.report.names import COMPANION, find_artefact, format_heading, format_title, split_name
from repro.report.tables import format_claim_row, list_exhibit_rows
from repro.report.view import View
from repro.spec import Exhibit, Experiment, Figure, Row, Run, Table
from repro.spec.artefact import MAIN, PAPERS
from repro.spec.scales import get_scale
from repro.statistics.contrasts import drop_seed
from repro.statistics.judge import Judgement
from repro.text import ABSENT

Rows = Sequence[Mapping[str, Any]]


class Drawing(Protocol):
    """A finished or pending picture."""

    def result(self) -> Path:
        """Wait for the vector file and return its path.

        Raises ValueError if the figure cannot be drawn, and OSError if the file cannot be written.
        """
        ...


Painter = Callable[[Figure, str, str, Rows], Drawing | None]
"""Starts to draw a figure, given its scale, the source of its records and its rows. Returns None without a picture."""
ForestPainter = Callable[[Rows, str], Drawing]
"""Starts to draw a forest plot of rows at a scale."""
PAPER_SCALE = "small"
"""Scale with the values of the paper."""
TITLES = {EXHIBIT: "One query under its contexts", BATCH_EXHIBIT: "One batch"}
"""Titles of the texts in records."""


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
    # pending vector files, each with the source of its records
    drawings: tuple[tuple[str, Drawing], ...]
    texts: tuple[View, ...]  # texts in its records that no exhibit shows, for example a batch
    records: tuple[tuple[str, Record], ...]  # each with its source
    num_asked: int
    num_published: int
    paper: str = MAIN

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """Drawn pictures. Waits for pending ones."""
        return self._draw_or_explain[0]

    @property
    def problem(self) -> str:
        """Reasons why pictures failed. Empty if they are drawn or records are missing."""
        return "; ".join(self._draw_or_explain[1])

    @cached_property
    def _draw_or_explain(self) -> tuple[tuple[Picture, ...], tuple[str, ...]]:
        """Drawn pictures, and the errors of the others. One failed picture does not affect the others."""
        drawn, problems = [], []
        for whose, svg in self.drawings:
            try:
                drawn.append(Picture(whose, svg.result()))
            except (ValueError, OSError) as error:
                problems.append(f"{whose} records: {error}")
        return tuple(drawn), tuple(problems)

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


def make_sections(experiment: Experiment, scale: str, paint: Painter) -> list[Section]:
    """Return a section for each artefact of an experiment."""
    runs = tuple(dict.fromkeys(experiment.runs(scale)))
    by_source = {whose: load_records(runs, whose) for whose in RECORDS}
    lines = format_ledger_lines(experiment, scale)
    declared = {one.rows or one.name for one in experiment.shows if isinstance(one, Exhibit)}
    sections = []
    for shown in experiment.shows:
        own = {run for run in runs if _shows(shown, run)} or set(runs)
        records = [(whose, record) for whose, those in by_source.items() for record in those if record.run in own]
        view, rows = _make_view_and_rows(shown, runs, by_source)
        sections.append(
            Section(
                name=shown.name,
                title=format_title(experiment, shown),
                caption=shown.caption,
                lines=tuple(line for line in lines if line.artefact == shown.name),
                view=view,
                is_figure=isinstance(shown, Figure),
                drawings=_start_drawings(shown, scale, paint, rows),
                texts=_list_texts(shown, [record for _, record in records], declared),
                records=tuple(records),
                num_asked=len(own),
                num_published=sum(whose == "published" for whose, _ in records),
                paper=experiment.paper,
            )
        )
    return sections


def _shows(shown: Table | Figure | Exhibit, run: Any) -> bool:
    if isinstance(shown, Exhibit):
        return shown.of.matches(run)
    return any(row.of.matches(run) for row in _get_section_rows(shown))


def _get_section_rows(shown: Table | Figure | Exhibit) -> tuple[Row, ...]:
    return shown.rows if isinstance(shown, Table) else shown.series if isinstance(shown, Figure) else ()


def _make_view_and_rows(
    shown: Table | Figure | Exhibit, runs: Sequence[Run], by_source: Mapping[str, list[Record]]
) -> tuple[View, dict[str, Rows]]:
    """Return an artefact as a table, and the plotted rows of a figure by the source of the records."""
    if not isinstance(shown, Figure):
        return make_view(shown, runs, by_source["published"], by_source["yours"]), {}
    rows: dict[str, Rows] = {who: list_figure_rows(shown, runs, those) for who, those in by_source.items() if those}
    return make_rows_view(shown, runs, rows), rows


def _start_drawings(
    shown: Table | Figure | Exhibit, scale: str, paint: Painter, rows: Mapping[str, Rows]
) -> tuple[tuple[str, Drawing], ...]:
    if not isinstance(shown, Figure):
        return ()
    pending = ((whose, paint(shown, scale, whose, rows.get(whose, ()))) for whose in RECORDS)
    return tuple((whose, svg) for whose, svg in pending if svg is not None)


def _list_texts(shown: Table | Figure | Exhibit, records: Sequence[Record], declared: set[str]) -> tuple[View, ...]:
    """Return the texts in records that are not artefacts, from one seed per system."""
    of_systems: dict[Run, Record] = {}
    for record in sorted(records, key=lambda record: record.run.seed):
        of_systems.setdefault(drop_seed(record.run), record)
    found = []
    for record in of_systems.values():
        label = next((f"{row.label}, " for row in _get_section_rows(shown) if row.of.matches(record.run)), "")
        for name in sorted(set(record.exhibits) - declared):
            if rows := record.exhibits[name]:
                title = f"{TITLES.get(name, name)} ({label}seed {record.run.seed})"
                found.append(list_exhibit_rows(title, rows, columns=_columns(name, rows)))
    return tuple(found)


def _columns(name: str, rows: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the columns of a text in display order, because records store them by name."""
    return tuple(one for one in COLUMNS if one in rows[0]) if name == EXHIBIT else ()


def format_ledger_lines(experiment: Experiment, scale: str) -> list[Line]:
    """Return the ledger line of each claim of an experiment, judged from the published records."""
    return [
        Line(one, effect, interval, threshold, seeds, yours, text, find_artefact(one.claim.id, experiment.artefacts))
        for one in judgements(experiment, scale)
        for effect, interval, threshold, seeds, yours, text in [format_claim_row(one)[2:]]
    ]


def make_deviations_view(scale: str) -> View:
    """Return a table of the fields in which a scale differs from the paper's small setting."""
    here, paper = get_scale(scale).fields, get_scale(PAPER_SCALE).fields
    rows = [(name, _word(here[name]), _word(paper[name])) for name in here if here[name] != paper[name]]
    return View(f"What {scale} sets otherwise than the paper", ("field", scale, "paper"), tuple(rows), align="lrr")


def _word(value: Any) -> str:
    return ABSENT if value is None else str(value)


def list_machines(records: Iterable[Record]) -> list[str]:
    """Return a line per distinct machine on which records were trained and measured."""
    found: dict[str, None] = {}
    provenance = (record.provenance for record in records)
    for one in (who for each in provenance for who in (*each.get("training", {}).get("sittings", ()), each)):
        machine, versions = one.get("machine", {}), one.get("versions", {})
        if machine:
            threads = machine.get("num_threads", ABSENT)
            words = f"{machine.get('device', ABSENT)}, {machine.get('dtype', ABSENT)}, threads: {threads}"
            found[f"{words}, torch {versions.get('torch', ABSENT)}, Python {versions.get('python', ABSENT)}"] = None
    return list(found)
