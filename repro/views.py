"""What a reader is shown of an artefact: its table from the records there are, and the verdict on each claim."""

from __future__ import annotations

from typing import Any

from repro.claims import Judgement, judge_all
from repro.identity import run_id
from repro.places import local_records, published_records
from repro.report import View, metric_path, table_view
from repro.spec import Experiment, Figure, Run, Table
from repro.store import Record, has_record, read_record

RECORDS = {"published": published_records, "yours": local_records}


def records_of(runs: tuple[Run, ...], whose: str) -> list[Record]:
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


def artefact_views(experiment: Experiment, scale: str) -> list[View]:
    """Gives the tables of an experiment."""
    runs = experiment.runs(scale)
    published, yours = records_of(runs, "published"), records_of(runs, "yours")
    return [table_view(shown, runs, published, yours) for shown in experiment.shows if isinstance(shown, Table)]


def figure_rows(figure: Figure, runs: tuple[Run, ...], records: list[Record]) -> list[dict[str, Any]]:
    """Gives what a figure plots, a row for each record of each series; a record without the metric is an error."""
    have = {record.run: record for record in records}
    return [
        {
            "series": series.label,
            figure.x: getattr(run, figure.x),
            "seed": run.seed,
            figure.y: have[run].metrics[metric_path(figure.y, run, series.context)] * figure.factor,
            "record": have[run].id,
        }
        for series in figure.series
        for run in runs
        if series.of.matches(run) and run in have
    ]
