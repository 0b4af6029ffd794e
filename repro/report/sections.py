"""Content of the HTML report: at each scale the claims, and a section per artefact with table, pictures and records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from repro.records.store import Record
from repro.report.artefacts import RECORDS, judgements, load_records, make_view
from repro.report.figure_data import list_figure_rows
from repro.report.names import COMPANION, format_heading, format_title, list_claims, split_name
from repro.report.tables import group_by_paper
from repro.report.view import View
from repro.spec import Exhibit, Experiment, Figure, Run, Table
from repro.spec.artefact import PAPERS, get_rows
from repro.spec.scales import Scale, get_scale
from repro.statistics.judge import Judgement

Rows = Sequence[Mapping[str, Any]]
Draw = Callable[[Figure, str, str, Rows], str]
"""Returns a figure as SVG text, given its scale, the source of its records and its rows. Raises ValueError if it fails."""


@dataclass(frozen=True)
class Section:
    """Content of the report for one artefact at one scale, and the verdicts on the claims about it."""

    experiment: Experiment
    artefact: Table | Figure | Exhibit
    scale: str
    verdicts: tuple[Judgement, ...]
    view: View
    pictures: Mapping[str, str]  # a drawn figure as SVG text, by the source of its records
    records: tuple[tuple[str, Record], ...]  # each with its source
    num_asked: int

    @property
    def num_published(self) -> int:
        """Number of published records."""
        return sum(source == "published" for source, _ in self.records)

    @property
    def heading(self) -> str:
        """Name as the paper writes it, with the suffix in brackets."""
        return format_heading(self.artefact.name)

    @property
    def title(self) -> str:
        """Title of the artefact, unique within its experiment."""
        return format_title(self.experiment, self.artefact)

    @property
    def order(self) -> tuple[int, int, int]:
        """Sort key in the report: per paper the tables, figures and other artefacts, companion papers last."""
        kind, number, _ = split_name(COMPANION.sub("", self.artefact.name))
        place = ("Table", "Figure").index(kind) if number else 2
        return list(PAPERS).index(self.experiment.paper), place, number


@dataclass(frozen=True)
class ScaleReport:
    """Content of the report at one scale."""

    scale: Scale
    sections: tuple[Section, ...]

    @property
    def verdicts(self) -> list[Judgement]:
        """The verdicts on all claims."""
        return [judged for section in self.sections for judged in section.verdicts]

    @property
    def ledgers(self) -> dict[str, list[Judgement]]:
        """The verdicts by paper, failures first."""
        return group_by_paper(self.verdicts)


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
    sections = []
    for artefact in experiment.artefacts:
        rows = get_rows(artefact)
        subtracted = [row.minus for row in rows if row.minus is not None]
        selections = [artefact.runs] if isinstance(artefact, Exhibit) else [row.runs for row in (*rows, *subtracted)]
        asked = {run for run in runs if any(pick.matches(run) for pick in selections)} or set(runs)
        claims = list_claims(experiment, artefact.name)
        view = make_view(artefact, runs, by_source["published"], by_source["yours"])
        pictures: dict[str, str] = {}
        if isinstance(artefact, Figure):
            pictures, problems = _draw_pictures(artefact, runs, by_source, draw)
            view = replace(view, notes=(*view.notes, *problems))
        sections.append(
            Section(
                experiment,
                artefact,
                scale,
                verdicts=tuple(judged for judged in verdicts if judged.claim in claims),
                view=view,
                pictures=pictures,
                records=tuple((source, each) for source in RECORDS for each in by_source[source] if each.run in asked),
                num_asked=len(asked),
            )
        )
    return sections


def _draw_pictures(
    figure: Figure, runs: Sequence[Run], by_source: Mapping[str, list[Record]], draw: Draw
) -> tuple[dict[str, str], list[str]]:
    """Return the pictures of a figure by the source of their records, and why others are not drawn."""
    pictures: dict[str, str] = {}
    problems = []
    for source, records in by_source.items():
        try:
            if rows := list_figure_rows(figure, runs, records):
                pictures[source] = draw(figure, runs[0].scale, source, rows)
        except ValueError as error:
            # a few records of a sweep may have nothing to draw
            problems.append(f"no picture of {source} records: {error}")
    return pictures, problems
