"""Scores of single runs as a table: one line a run, one column a collection, a line for each context."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from repro.evaluate.contexts import KINDS
from repro.records.store import Record, records_in
from repro.report.figure_data import METRIC_WORDS
from repro.report.view import View, format_number
from repro.spec import Run
from repro.spec.identity import difference, run_id
from repro.storage.paths import local_records, published_records

POINTS = 100.0


def records_of_runs(runs: Sequence[Run]) -> list[Record]:
    """Return the records there are, this machine's before the published."""
    places = (local_records(), published_records())
    each = ([record for place in places for record in records_in(place, [run])] for run in dict.fromkeys(runs))
    return [records[0] for records in each if records]


def scores_view(runs: Sequence[Run], measure: str = "ndcg_at_10") -> View:
    """Return a table of the runs' scores in points, the mean first; below it what is odd about their data."""
    records = records_of_runs(runs)
    datasets = list(dict.fromkeys(row["name"] for record in records for row in suite_rows(record.provenance)))
    notes = dict.fromkeys(note for record in records for note in notes_of(record.provenance.get("suite", {})))
    lines = []
    for record in records:
        for name, context in contexts_of(record.metrics, record.run.suite):
            values = [record.metrics.get(f"{name}/{dataset}/{measure}") for dataset in ["mean", *datasets]]
            cells = [format_number(None if value is None else POINTS * value) for value in values]
            own = context == "own"
            lines.append((record.id if own else "", record.run.architecture if own else f"· {context} context", *cells))
    title = f"{METRIC_WORDS.get(measure, measure)}, points; {len(records)} of {len(set(runs))} runs have ended"
    return View(title, ("run", "model", "mean", *datasets), tuple(lines), tuple(notes))


def scores_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return the runs as plain values, recorded or not: id, what differs from the scale, metrics (None: no record)."""
    metrics = {record.run: dict(record.metrics) for record in records_of_runs(runs)}
    return [{"id": run_id(run), "run": difference(run), "metrics": metrics.get(run)} for run in dict.fromkeys(runs)]


def contexts_of(metrics: Mapping[str, float], suite: str) -> list[tuple[str, str]]:
    """Return the metric path and the name of each context that a suite was scored under, "own" first."""
    names = {path.split("/")[0] for path in metrics}
    found = [(name, name[len(suite) + 1 :] or "own") for name in names if f"{name}+".startswith(f"{suite}+")]
    usual = {kind: place for place, kind in enumerate(KINDS)}

    def place(pair: tuple[str, str]) -> tuple[int, str, int]:
        words, digits = re.fullmatch(r"(.*?)(\d*)", pair[1]).groups()  # type: ignore[union-attr]  # it always fits
        return usual.get(pair[1], len(usual)), words, int(digits or 0)

    return sorted(found, key=place)


def suite_rows(provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what a record's provenance says of each collection."""
    rows: list[dict[str, Any]] = provenance.get("suite", {}).get("datasets", [])
    return rows


def notes_of(suite: Mapping[str, Any]) -> list[str]:
    """Return a line for each collection that has something odd about it."""
    return [f"{row['name']}: {note}" for row in suite.get("datasets", []) for note in row.get("quirks", [])]
