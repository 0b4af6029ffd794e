"""Views of an artefact (its table, the data of its figure, or its texts) and the verdicts on its claims."""

from __future__ import annotations

from collections.abc import Sequence

from repro.records.store import Record, list_records
from repro.report.figure_data import make_figure_view
from repro.report.tables import make_exhibit_view, make_table_view
from repro.report.view import View
from repro.spec import Exhibit, Experiment, Figure, Run, Table
from repro.statistics.judge import Judgement, judge_all
from repro.storage.paths import get_local_records, get_published_records

RECORDS = {"published": get_published_records, "yours": get_local_records}
RECORD_WORDS = {"published": "published records", "yours": "your records"}


def load_records(runs: Sequence[Run], source: str) -> list[Record]:
    """Return the available records of these runs, either the published ones or those of this machine."""
    return list_records(RECORDS[source](), runs)


def judgements(experiment: Experiment, scale: str) -> list[Judgement]:
    """Judge the claims of an experiment from the published records, and add the effect in local records if available."""
    runs = experiment.runs(scale)
    published, yours = (load_records(runs, source) for source in RECORDS)
    return judge_all(experiment.claims, scale, runs, published, yours=yours)


def make_artefact_views(experiment: Experiment, scale: str, *, with_yours: bool = True) -> dict[str, View]:
    """Return the artefacts of an experiment as tables of text, by name.

    If `with_yours` is false, only published records are used.
    """
    runs = experiment.runs(scale)
    if not runs:
        return {}
    published, yours = load_records(runs, "published"), load_records(runs, "yours") if with_yours else []
    return {artefact.name: make_view(artefact, runs, published, yours) for artefact in experiment.artefacts}


def make_view(
    artefact: Table | Figure | Exhibit, runs: Sequence[Run], published: list[Record], yours: list[Record]
) -> View:
    """Return one artefact as a table of text."""
    if isinstance(artefact, Table):
        return make_table_view(artefact, runs, published, yours)
    if isinstance(artefact, Figure):
        return make_figure_view(artefact, runs, published, yours)
    return make_exhibit_view(artefact, runs, [*published, *yours])
