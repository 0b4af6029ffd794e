"""Tables of scores of single runs: a row per run and context, a column per collection."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from repro.evaluate.contexts import KINDS
from repro.records.store import Record, records_in
from repro.report.figure_data import METRIC_NAMES
from repro.report.view import View, format_mean
from repro.spec import FIELDS, Run
from repro.spec.axes import check_field
from repro.spec.identity import difference, get_setting_id, run_id
from repro.storage.paths import get_local_records, get_published_records
from repro.text import ABSENT, count_noun

POINTS = 100.0


def find_records(runs: Sequence[Run]) -> list[Record]:
    """Return the available record of each run. Records of this machine take precedence over published ones."""
    places = (get_local_records(), get_published_records())
    each = ([record for place in places for record in records_in(place, [run])] for run in dict.fromkeys(runs))
    return [records[0] for records in each if records]


def make_scores_view(runs: Sequence[Run], measure: str = "ndcg_at_10") -> View:
    """Return a table of scores in points: columns for varying fields, the mean, and each collection.

    Below the runs, each setting with several seeds has a row of means. Notes describe peculiarities of the data.
    """
    records = find_records(runs)
    datasets = list(dict.fromkeys(row["name"] for record in records for row in list_suite_rows(record.provenance)))
    notes = dict.fromkeys(note for record in records for note in list_notes(record.provenance.get("suite", {})))
    settings: dict[str, list[Record]] = {}
    for record in records:
        settings.setdefault(get_setting_id(record.run), []).append(record)
    several = [seeds for seeds in settings.values() if len(seeds) > 1]
    apart = find_varying_fields([record.run for record in records])
    varying = [name for name in FIELDS if any(name in names for names in apart.values())]
    lines = [line for record in records for line in _lines(record.id, [record], apart, varying, datasets, measure)]
    but_seed = {architecture: [name for name in names if name != "seed"] for architecture, names in apart.items()}
    for seeds in several:
        lines += _lines(f"{len(seeds)} seeds", seeds, but_seed, varying, datasets, measure)
    asked = count_noun(len(set(runs)), "run has", "runs have")
    title = f"{METRIC_NAMES.get(measure, measure)}, points; {len(records)} of {asked} ended"
    spread = ("±: standard deviation over the seeds of a line",) if several else ()
    return View(title, ("run", "model", *varying, "mean", *datasets), tuple(lines), (*notes, *spread))


def find_varying_fields(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the fields in which runs of each architecture differ, in the order of `Run`."""
    alike: dict[str, list[Run]] = {}
    for run in runs:
        alike.setdefault(run.architecture, []).append(run)
    return {
        architecture: [name for name in FIELDS if len({getattr(run, name) for run in those}) > 1]
        for architecture, those in alike.items()
    }


def _lines(
    called: str,
    records: Sequence[Record],
    apart: Mapping[str, Sequence[str]],
    varying: Sequence[str],
    datasets: Sequence[str],
    measure: str,
) -> list[tuple[str, ...]]:
    """Return one row per context, for one run or for all seeds of one setting. The first row has the name."""
    run = records[0].run
    lines: list[tuple[str, ...]] = []
    own = apart[run.architecture]
    values = [_format_value(run, name) if name in own else "" for name in varying]
    for name, context in list_contexts(records[0].metrics, run.suite):
        paths = [f"{name}/{dataset}/{measure}" for dataset in ["mean", *datasets]]
        found = [[POINTS * record.metrics[path] for record in records if path in record.metrics] for path in paths]
        if lines:
            what = ("", f"· {context} context")
        else:
            # a model that is scored without its own corpus, as context-blind ones, has no line for it
            what = (called, run.architecture if context == "own" else f"{run.architecture}, {context} context")
        lines.append((*what, *values, *(format_mean(of, 1) for of in found)))
    return lines


def _format_value(run: Run, name: str) -> str:
    value = getattr(run, name)
    return ABSENT if value is None else f"{value:g}" if isinstance(value, float) else str(value)


def list_pivot_rows(runs: Sequence[Run], x: str, y: str, measure: str = "ndcg_at_10") -> list[dict[str, Any]]:
    """Return a row per recorded run that has the measure: its values of two fields, its seed, and its score in points.

    Raises ValueError if a field does not exist or does not vary over the recorded runs.
    """
    for name in (x, y):
        check_field(name)
    if x == y:
        raise ValueError(f"--pivot {x} {y}: give two different fields")
    records = find_records(runs)
    found: list[dict[str, Any]] = []
    for record in records:
        contexts = list_contexts(record.metrics, record.run.suite)
        path = f"{contexts[0][0] if contexts else record.run.suite}/mean/{measure}"
        if path in record.metrics:
            places = {name: _format_value(record.run, name) for name in (x, y)}
            order = {name: getattr(record.run, name) for name in (x, y)}
            score = POINTS * record.metrics[path]
            found.append({**places, "series": "", "run": record.run, "order": order, "score": score})
    varying = {name for names in find_varying_fields([row["run"] for row in found]).values() for name in names}
    if found and (constant := [name for name in (x, y) if name not in varying]):
        raise ValueError(f"--pivot {x} {y}: {constant[0]} does not vary here; {sorted(varying) or 'no field'} does")
    # A field that does not vary within an architecture has no place on the axis, for example the steps of BM25.
    apart = find_varying_fields([row["run"] for row in found])
    return [row for row in found if {x, y} <= {*apart[row["run"].architecture]}]


def make_pivot_view(runs: Sequence[Run], x: str, y: str, measure: str = "ndcg_at_10") -> View:
    """Return a table of mean scores in points, with a column per value of `x` and a row per value of `y`."""
    rows = list_pivot_rows(runs, x, y, measure)

    def values(name: str) -> list[str]:
        known = {row[name]: row["order"][name] for row in rows}
        return sorted(known, key=lambda word: _make_sort_key(known[word]))

    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        cells.setdefault((row[y], row[x]), []).append(row["score"])
    columns = values(x)
    lines = tuple((down, *(format_mean(cells.get((down, across), []), 1) for across in columns)) for down in values(y))
    others = [name for names in find_varying_fields([row["run"] for row in rows]).values() for name in names]
    over = [name for name in dict.fromkeys(others) if name not in (x, y)]
    notes = [f"each cell is the mean over {', '.join(over)}; ±: standard deviation"] if over else []
    if left_out := len(set(runs)) - len(rows):
        notes.append(f"left out: {count_noun(left_out, 'run')} without a record, or without both fields")
    title = f"{METRIC_NAMES.get(measure, measure)}, points, of {count_noun(len(rows), 'run')}: {x} across, {y} down"
    return View(title, (y, *(f"{x}={one}" for one in columns)), lines, tuple(notes), "l" + "r" * len(columns))


def _make_sort_key(value: Any) -> tuple[int, float, str]:
    """Return the sort key of a field value: None first, then numbers, then texts."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, (int, float)) else (2, 0.0, str(value))


def tabulate_scores(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return each run as plain values: id, differences from its scale, and metrics (None if it has no record)."""
    metrics = {record.run: dict(record.metrics) for record in find_records(runs)}
    return [{"id": run_id(run), "run": difference(run), "metrics": metrics.get(run)} for run in dict.fromkeys(runs)]


def list_contexts(metrics: Mapping[str, float], suite: str) -> list[tuple[str, str]]:
    """Return the metric path and the name of each context of a suite, "own" first."""
    names = {path.split("/")[0] for path in metrics}
    found = [(name, name[len(suite) + 1 :] or "own") for name in names if f"{name}+".startswith(f"{suite}+")]
    usual = {kind: place for place, kind in enumerate(KINDS)}

    def place(pair: tuple[str, str]) -> tuple[int, str, int]:
        words, digits = re.fullmatch(r"(.*?)(\d*)", pair[1]).groups()  # type: ignore[union-attr]  # it always fits
        return usual.get(pair[1], len(usual)), words, int(digits or 0)

    return sorted(found, key=place)


def list_suite_rows(provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the provenance of each collection, from the provenance of a record."""
    rows: list[dict[str, Any]] = provenance.get("suite", {}).get("datasets", [])
    return rows


def list_notes(suite: Mapping[str, Any]) -> list[str]:
    """Return a note per collection with a peculiarity."""
    rows = suite.get("datasets", [])
    parts = Counter(row["part_of"] for row in rows if row.get("part_of"))
    once = [
        f"{name}: {count_noun(size, 'collection')}, which {'counts' if size == 1 else 'count'} once in the mean"
        for name, size in parts.items()
    ]
    return [*once, *(f"{row['name']}: {note}" for row in rows for note in row.get("quirks", []))]
