"""Scores of single runs as a table: one line a run, one column a collection, a line for each context."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from repro.identity import run_id
from repro.places import local_records, published_records
from repro.report import View, format_number
from repro.spec import Run
from repro.store import Record, has_record, read_record

POINTS = 100.0


def records_of_runs(runs: Sequence[Run]) -> list[Record]:
    """Gives the records there are, this machine's before the published."""
    found = []
    for run in dict.fromkeys(runs):
        folder = next((one for one in (local_records(), published_records()) if has_record(one, run)), None)
        if folder is not None:
            found.append(read_record(folder / f"{run_id(run)}.json"))
    return found


def scores_view(runs: Sequence[Run], measure: str = "ndcg_at_10") -> View:
    """Gives a table of the runs' scores in points; what is odd about their collections stands below."""
    records = records_of_runs(runs)
    datasets = list(dict.fromkeys(row["name"] for record in records for row in suite_rows(record.provenance)))
    lines, notes = (
        [],
        dict.fromkeys(note for record in records for note in notes_of(record.provenance.get("suite", {}))),
    )
    for record in records:
        for name, context in contexts_of(record.metrics, record.run.suite):
            values = [record.metrics.get(f"{name}/{dataset}/{measure}") for dataset in [*datasets, "mean"]]
            cells = [format_number(None if value is None else POINTS * value) for value in values]
            own = context == "own"
            lines.append((record.id if own else "", record.run.architecture if own else f"· {context} context", *cells))
    title = f"{measure}, points; {len(records)} of {len(set(runs))} runs have ended"
    return View(title, ("run", "model", *datasets, "mean"), tuple(lines), tuple(notes))


def contexts_of(metrics: Mapping[str, float], suite: str) -> list[tuple[str, str]]:
    """Gives the metric path and the name of each context that a suite was scored under, "own" first."""
    names = {path.split("/")[0] for path in metrics}
    found = [(name, name.partition("+")[2] or "own") for name in names if name.partition("+")[0] == suite]
    return sorted(found, key=lambda pair: ("own", "wrong", "random", "null").index(pair[1]))


def suite_rows(provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Gives what a record's provenance says of each collection."""
    rows: list[dict[str, Any]] = provenance.get("suite", {}).get("datasets", [])
    return rows


def notes_of(suite: Mapping[str, Any]) -> list[str]:
    """Gives a line for each collection that has something odd about it."""
    return [f"{row['name']}: {note}" for row in suite.get("datasets", []) for note in row.get("quirks", [])]
