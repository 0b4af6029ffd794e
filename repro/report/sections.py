"""What the report says of each artefact: claims, views, pictures, the runs behind them, their time and machine."""

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
from repro.report.names import COMPANION, artefact_of, format_heading, format_title, split_name
from repro.report.tables import claim_row, list_exhibit_rows
from repro.report.view import View
from repro.spec import Exhibit, Experiment, Figure, Row, Run, Table
from repro.spec.artefact import ABSENT, MAIN, PAPERS
from repro.spec.scales import get_scale
from repro.statistics.contrasts import drop_seed
from repro.statistics.judge import Judgement

Rows = Sequence[Mapping[str, Any]]


class Drawing(Protocol):
    """A picture that is begun, or done."""

    def result(self) -> Path:
        """Return the vector file, waiting for it; ValueError for what cannot be drawn, OSError for where it cannot."""
        ...


Painter = Callable[[Figure, str, str, Rows], Drawing | None]
"""Begins to draw a figure at a scale, whose records its rows are from, and the rows; None for no picture."""
ForestPainter = Callable[[Rows, str], Drawing]
"""Begins to draw a forest plot of rows at a scale."""
PAPER_SCALE = "small"
"""The scale whose values are the paper's own; the others differ from it."""
TITLES = {EXHIBIT: "One query under its contexts", BATCH_EXHIBIT: "One batch"}
"""What rows of text that records carry are called."""


@dataclass(frozen=True)
class Line:
    """One claim as the ledger prints it, and the artefact it is of."""

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
    """A drawn figure: whose records, the vector file, its data beside it."""

    whose: str
    svg: Path

    @property
    def data(self) -> Path:
        """The plotted data."""
        return self.svg.with_suffix(".csv")


@dataclass(frozen=True)
class Section:
    """All that the report says of one artefact."""

    name: str
    title: str
    caption: str
    lines: tuple[Line, ...]
    view: View
    is_figure: bool
    drawings: tuple[tuple[str, Drawing], ...]  # vector files to come, with whose records they are of
    texts: tuple[View, ...]  # rows of text that its records carry and no exhibit shows, such as a batch
    records: tuple[tuple[str, Record], ...]  # with whose they are
    num_asked: int
    num_published: int
    paper: str = MAIN

    @property
    def pictures(self) -> tuple[Picture, ...]:
        """What was drawn; waits for those under way."""
        return self._draw_or_explain[0]

    @property
    def problem(self) -> str:
        """Why there is no picture, where that is no matter of missing records."""
        return "; ".join(self._draw_or_explain[1])

    @cached_property
    def _draw_or_explain(self) -> tuple[tuple[Picture, ...], tuple[str, ...]]:
        """The pictures and the problems of others: one that cannot be drawn spoils no other."""
        drawn, problems = [], []
        for whose, svg in self.drawings:
            try:
                drawn.append(Picture(whose, svg.result()))
            except (ValueError, OSError) as error:
                problems.append(f"{whose} records: {error}")
        return tuple(drawn), tuple(problems)

    @property
    def num_yours(self) -> int:
        """Record of this machine."""
        return len(self.records) - self.num_published

    @property
    def heading(self) -> str:
        """The artefact's name as the paper writes it; what belongs to one has its own word in brackets."""
        return format_heading(self.name)

    @property
    def order(self) -> tuple[int, int, int]:
        """The place in the report: a paper's tables, its figures, then what it lacks; companions after this paper."""
        kind, number, _ = split_name(COMPANION.sub("", self.name))
        return (list(PAPERS).index(self.paper), ("Table", "Figure").index(kind) if number else 2, number)


def make_sections(experiment: Experiment, scale: str, paint: Painter) -> list[Section]:
    """Return a section for each artefact of an experiment."""
    runs = tuple(dict.fromkeys(experiment.runs(scale)))
    kept = {whose: load_records(runs, whose) for whose in RECORDS}
    lines = format_ledger_lines(experiment, scale)
    declared = {one.rows or one.name for one in experiment.shows if isinstance(one, Exhibit)}
    sections = []
    for shown in experiment.shows:
        own = {run for run in runs if _shows(shown, run)} or set(runs)
        records = [(whose, record) for whose, those in kept.items() for record in those if record.run in own]
        view, rows = _make_view_and_rows(shown, runs, kept)
        sections.append(
            Section(
                name=shown.name,
                title=format_title(experiment, shown),
                caption=shown.caption,
                lines=tuple(line for line in lines if line.artefact == shown.name),
                view=view,
                is_figure=isinstance(shown, Figure),
                drawings=_drawings(shown, scale, paint, rows),
                texts=_texts(shown, [record for _, record in records], declared),
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
    shown: Table | Figure | Exhibit, runs: Sequence[Run], kept: Mapping[str, list[Record]]
) -> tuple[View, dict[str, Rows]]:
    """Return an artefact as a table, and what a figure plots by whose records it is from."""
    if not isinstance(shown, Figure):
        return make_view(shown, runs, kept["published"], kept["yours"]), {}
    rows: dict[str, Rows] = {who: list_figure_rows(shown, runs, those) for who, those in kept.items() if those}
    return make_rows_view(shown, runs, rows), rows


def _drawings(
    shown: Table | Figure | Exhibit, scale: str, paint: Painter, rows: Mapping[str, Rows]
) -> tuple[tuple[str, Drawing], ...]:
    if not isinstance(shown, Figure):
        return ()
    begun = ((whose, paint(shown, scale, whose, rows.get(whose, ()))) for whose in RECORDS)
    return tuple((whose, svg) for whose, svg in begun if svg is not None)


def _texts(shown: Table | Figure | Exhibit, records: Sequence[Record], declared: set[str]) -> tuple[View, ...]:
    """Return the rows of text that records carry and that are no artefact, of one seed of each system."""
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
    """Return the columns in their order; a record keeps them by name."""
    return tuple(one for one in COLUMNS if one in rows[0]) if name == EXHIBIT else ()


def format_ledger_lines(experiment: Experiment, scale: str) -> list[Line]:
    """Return the word for each claim of an experiment, from the published records."""
    return [
        Line(one, effect, interval, threshold, seeds, yours, text, artefact_of(one.claim.id, experiment.artefacts))
        for one in judgements(experiment, scale)
        for effect, interval, threshold, seeds, yours, text in [claim_row(one)[2:]]
    ]


def deviations(scale: str) -> View:
    """Return what a scale sets otherwise than the paper's small setting."""
    here, paper = get_scale(scale).fields, get_scale(PAPER_SCALE).fields
    rows = [(name, _word(here[name]), _word(paper[name])) for name in here if here[name] != paper[name]]
    return View(f"What {scale} sets otherwise than the paper", ("field", scale, "paper"), tuple(rows), align="lrr")


def _word(value: Any) -> str:
    return ABSENT if value is None else str(value)


def list_machines(records: Iterable[Record]) -> list[str]:
    """Return the different machines that records were trained and measured on, in words."""
    found: dict[str, None] = {}
    told = (record.provenance for record in records)
    for one in (who for each in told for who in (*each.get("training", {}).get("sittings", ()), each)):
        machine, versions = one.get("machine", {}), one.get("versions", {})
        if machine:
            threads = machine.get("num_threads", ABSENT)
            words = f"{machine.get('device', ABSENT)}, {machine.get('dtype', ABSENT)}, threads: {threads}"
            found[f"{words}, torch {versions.get('torch', ABSENT)}, Python {versions.get('python', ABSENT)}"] = None
    return list(found)
