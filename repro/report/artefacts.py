"""What a reader is shown of an artefact: its table, its figure's data or its texts, and the verdict on each claim."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path

from repro.claims.judge import Judgement, judge_all
from repro.claims.variance import Pool
from repro.records.store import Record, all_are_readable, readable_record, records_in
from repro.report.figure_data import figure_view
from repro.report.tables import exhibit_view, table_view
from repro.report.verdicts import KeptVerdicts, Stamps, forget_changed_folders, key_of, stamps_of
from repro.report.view import View
from repro.spec import Exhibit, Experiment, Figure, Run, Table
from repro.spec.artefact import MAIN
from repro.spec.registry import runs_of_companions
from repro.storage.paths import local_records, published_records, verdicts_folder

RECORDS = {"published": published_records, "yours": local_records}
RECORD_WORDS = {"published": "published records", "yours": "your records"}


def records_of(runs: Sequence[Run], whose: str) -> list[Record]:
    """Return the records there are of these runs, published or made on this machine."""
    return records_in(RECORDS[whose](), runs)


def wanted_runs(experiment: Experiment, scale: str, whose: str) -> tuple[Run, ...]:
    """Return the runs that make a record set complete: every seed for the published, the local seeds for yours."""
    return experiment.runs(scale) if whose == "published" else experiment.local_runs(scale)


def judgements(experiment: Experiment, scale: str, whose: str = "published") -> list[Judgement]:
    """Judge an experiment's claims from the published records, or from this machine's.

    How much seeds move a number is known from the published records, whosever are judged. What was judged before is
    read again, unless a record could not be read: that is to be said each time.
    """
    wanted, folder = wanted_runs(experiment, scale, whose), RECORDS[whose]()
    path = verdicts_folder() / f"{experiment.number:02d}-{scale}-{whose}.json"
    key_now = partial(key_of, experiment.claims, wanted, scale, judged=folder, pool=RECORDS["published"]())
    found = KeptVerdicts(path, key_now()).read(experiment.claims)
    if found is None:
        forget_changed_folders()
        kept = KeptVerdicts(path, key_now())
        pool = published_pool(scale, with_companions=experiment.paper != MAIN)
        found = judge_all(experiment.claims, scale, wanted, records_of(wanted, whose), pool=pool)
        if all_are_readable(folder, RECORDS["published"]()):
            kept.write(found)
    return found


def published_pool(scale: str, *, with_companions: bool = False) -> Pool:
    """Return the published records of a scale, read once as long as none is added, removed or replaced.

    Those that only companion papers ask for are left out unless asked for: they must not move this paper's verdicts.
    """
    folder = RECORDS["published"]()
    return _pool(folder, scale, stamps_of(folder), with_companions)


@lru_cache(maxsize=4)
def _pool(folder: Path, scale: str, stamps: Stamps, with_companions: bool) -> Pool:
    apart = frozenset() if with_companions else runs_of_companions(scale)
    paths = [folder / name for name, *_ in stamps if name.endswith(".json")]
    found = (record for record in map(readable_record, paths) if record is not None)
    return Pool([record for record in found if record.run.scale == scale and record.run not in apart])


def artefact_views(experiment: Experiment, scale: str, *, with_yours: bool = True) -> dict[str, View]:
    """Return what an experiment shows as tables of text, by artefact; `with_yours` False: of published records alone"""
    runs = experiment.runs(scale)
    published, yours = records_of(runs, "published"), records_of(runs, "yours") if with_yours else []
    return {shown.name: view_of(shown, runs, published, yours) for shown in experiment.shows}


def view_of(shown: Table | Figure | Exhibit, runs: Sequence[Run], published: list[Record], yours: list[Record]) -> View:
    """Return one artefact as a table of text."""
    if isinstance(shown, Table):
        return table_view(shown, runs, published, yours)
    if isinstance(shown, Figure):
        return figure_view(shown, runs, published, yours)
    return exhibit_view(shown, runs, [*published, *yours])
