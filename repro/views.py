"""What a reader is shown of an artefact: its table, its figure's data or its texts, and the verdict on each claim."""

from __future__ import annotations

from collections.abc import Sequence

from repro.claims import Judgement, judge_all
from repro.identity import run_id
from repro.places import local_records, published_records
from repro.plotted import figure_view
from repro.report import View, exhibit_view, table_view
from repro.spec import Exhibit, Experiment, Figure, Run, Table
from repro.store import Record, has_record, read_record

RECORDS = {"published": published_records, "yours": local_records}
RECORD_WORDS = {"published": "published records", "yours": "your records"}


def records_of(runs: Sequence[Run], whose: str) -> list[Record]:
    """Gives the records there are of these runs, published or made on this machine."""
    folder = RECORDS[whose]()
    return [read_record(folder / f"{run_id(run)}.json") for run in dict.fromkeys(runs) if has_record(folder, run)]


def wanted_runs(experiment: Experiment, scale: str, whose: str) -> tuple[Run, ...]:
    """Gives the runs that make a record set complete: every seed for the published, the local seeds for yours."""
    runs = experiment.runs(scale)
    return runs if whose == "published" else tuple(run for run in runs if run.seed in experiment.local_seeds)


def judgements(experiment: Experiment, scale: str, whose: str = "published") -> list[Judgement]:
    """Judges an experiment's claims from the published records, or from this machine's."""
    wanted = wanted_runs(experiment, scale, whose)
    return judge_all(experiment.claims, scale, wanted, records_of(wanted, whose))


def artefact_views(experiment: Experiment, scale: str, *, with_yours: bool = True) -> dict[str, View]:
    """Gives what an experiment shows as tables of text, by artefact; `with_yours` False: of published records alone."""
    runs = experiment.runs(scale)
    published, yours = records_of(runs, "published"), records_of(runs, "yours") if with_yours else []
    return {shown.name: _view(shown, runs, published, yours) for shown in experiment.shows}


def _view(shown: Table | Figure | Exhibit, runs: Sequence[Run], published: list[Record], yours: list[Record]) -> View:
    if isinstance(shown, Table):
        return table_view(shown, runs, published, yours)
    if isinstance(shown, Figure):
        return figure_view(shown, runs, published, yours)
    return exhibit_view(shown, runs, [*published, *yours])
