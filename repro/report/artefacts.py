"""What a reader is shown of an artefact: its table, its figure's data or its texts, and the verdict on each claim."""

from __future__ import annotations

from collections.abc import Sequence

from repro.records.store import Record, all_are_readable, records_in
from repro.report.figure_data import make_figure_view
from repro.report.tables import make_exhibit_view, make_table_view
from repro.report.verdicts import KeptVerdicts, compute_key
from repro.report.view import View
from repro.spec import Exhibit, Experiment, Figure, Run, Table
from repro.statistics.judge import Judgement, judge_all
from repro.storage.paths import get_local_records, get_published_records, get_verdicts_folder

RECORDS = {"published": get_published_records, "yours": get_local_records}
RECORD_WORDS = {"published": "published records", "yours": "your records"}


def load_records(runs: Sequence[Run], whose: str) -> list[Record]:
    """Return the records there are of these runs, published or made on this machine."""
    return records_in(RECORDS[whose](), runs)


def judgements(experiment: Experiment, scale: str) -> list[Judgement]:
    """Judge an experiment's claims from the published records, each with the reader's own number if there is one.

    Cached verdicts are read again, unless a record could not be read: its warning is printed each time.
    """
    wanted, folders = experiment.runs(scale), [find() for find in RECORDS.values()]
    path = get_verdicts_folder() / f"{experiment.number:02d}-{scale}.json"
    kept = KeptVerdicts(path, compute_key(experiment.claims, wanted, scale, folders))
    found = kept.read(experiment.claims)
    if found is None:
        published, yours = (load_records(wanted, whose) for whose in RECORDS)
        found = judge_all(experiment.claims, scale, wanted, published, yours=yours)
        if all_are_readable(*folders):
            kept.write(found)
    return found


def make_artefact_views(experiment: Experiment, scale: str, *, with_yours: bool = True) -> dict[str, View]:
    """Return what an experiment shows as tables of text, by artefact; `with_yours` False: of published records alone"""
    runs = experiment.runs(scale)
    if not runs:
        return {}
    published, yours = load_records(runs, "published"), load_records(runs, "yours") if with_yours else []
    return {shown.name: make_view(shown, runs, published, yours) for shown in experiment.shows}


def make_view(
    shown: Table | Figure | Exhibit, runs: Sequence[Run], published: list[Record], yours: list[Record]
) -> View:
    """Return one artefact as a table of text."""
    if isinstance(shown, Table):
        return make_table_view(shown, runs, published, yours)
    if isinstance(shown, Figure):
        return make_figure_view(shown, runs, published, yours)
    return make_exhibit_view(shown, runs, [*published, *yours])
