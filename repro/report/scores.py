"""Tables of scores of single runs: a row per run and variant of its scores, a column per collection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from repro.data.beir import HEADLINE
from repro.evaluate.contexts import KINDS
from repro.records.store import Record, list_records
from repro.report.view import View, format_mean
from repro.spec import FIELDS, Run
from repro.spec.axes import check_field
from repro.spec.identity import difference, get_setting_id, run_id
from repro.storage.paths import get_local_records, get_published_records
from repro.text import ABSENT, count_noun

POINTS = 100.0
ARCHITECTURE = "architecture"


def find_records(runs: Sequence[Run]) -> list[Record]:
    """Return the available record of each run. Records of this machine take precedence over published ones."""
    folders = (get_local_records(), get_published_records())
    by_run = ([record for folder in folders for record in list_records(folder, [run])] for run in dict.fromkeys(runs))
    return [records[0] for records in by_run if records]


def make_scores_view(runs: Sequence[Run]) -> View:
    """Return a table of scores in points: columns for varying fields, the mean, and each collection.

    Below the runs, each setting with several seeds has a row of means. Notes describe peculiarities of the data.
    """
    records = find_records(runs)
    datasets = list(dict.fromkeys(row["name"] for record in records for row in list_suite_rows(record.provenance)))
    notes = dict.fromkeys(note for record in records for note in list_notes(record.provenance.get("suite", {})))
    settings: dict[str, list[Record]] = {}
    for record in records:
        settings.setdefault(get_setting_id(record.run), []).append(record)
    repeated = [seed_records for seed_records in settings.values() if len(seed_records) > 1]
    varying_by_architecture = find_varying_fields([record.run for record in records])
    varying = [name for name in FIELDS if any(name in names for names in varying_by_architecture.values())]
    lines: list[tuple[str, ...]] = []
    unscored: list[Record] = []
    for record in records:
        run_lines = _make_run_lines(record.id, [record], varying_by_architecture, varying, datasets)
        lines += run_lines
        unscored += [] if run_lines else [record]
    without_seed = {
        architecture: [name for name in names if name != "seed"]
        for architecture, names in varying_by_architecture.items()
    }
    for seed_records in repeated:
        lines += _make_run_lines(f"{len(seed_records)} seeds", seed_records, without_seed, varying, datasets)
    num_runs = count_noun(len(set(runs)), "run has", "runs have")
    title = f"NDCG@10, points; {len(records)} of {num_runs} ended"
    if unscored:
        measures = ", ".join(dict.fromkeys(record.run.measure for record in unscored))
        without = count_noun(len(unscored), "run has", "runs have")
        notes[f"{without} no NDCG@10 (measure {measures}): `repro show RUN --json` prints their metrics"] = None
    if any("±" in cell for line in lines for cell in line):
        notes["±: standard deviation over the seeds of a line"] = None
    return View(title, ("run", "model", *varying, "mean", *datasets), tuple(lines), tuple(notes))


def find_varying_fields(runs: Sequence[Run]) -> dict[str, list[str]]:
    """Return the fields in which runs of each architecture differ, in the order of `Run`."""
    by_architecture: dict[str, list[Run]] = {}
    for run in runs:
        by_architecture.setdefault(run.architecture, []).append(run)
    return {
        architecture: [name for name in FIELDS if len({getattr(run, name) for run in group}) > 1]
        for architecture, group in by_architecture.items()
    }


def _make_run_lines(
    label: str,
    records: Sequence[Record],
    varying_by_architecture: Mapping[str, Sequence[str]],
    varying: Sequence[str],
    datasets: Sequence[str],
) -> list[tuple[str, ...]]:
    """Return one row per variant with a score, for one run or for all seeds of a setting. The first row has the name."""
    run = records[0].run
    lines: list[tuple[str, ...]] = []
    fields = varying_by_architecture[run.architecture]
    values = [_format_value(run, name) if name in fields else "" for name in varying]
    for name, variant in list_variants(records[0].metrics, run.suite):
        paths = [f"{name}/{dataset}/{HEADLINE}" for dataset in ["mean", *datasets]]
        scores = [[POINTS * record.metrics[path] for record in records if path in record.metrics] for path in paths]
        if not any(scores):
            continue
        variant_label = f"{variant} context" if variant in KINDS else variant
        if lines:
            names = ("", f"· {variant_label}")
        else:
            # a model that is scored without its own corpus, as context-blind ones, has no line for it
            model = get_model_name(run)
            names = (label, model if variant == "own" else f"{model}, {variant_label}")
        lines.append((*names, *values, *(format_mean(values_of_path, 1) for values_of_path in scores)))
    return lines


def get_model_name(run: Run) -> str:
    """Return the name of a run's model in a table. An untrained model has the name of its encoder."""
    if run.architecture == "surrogate":
        return f"off-the-shelf {'MiniLM' if run.surrogate == 'minilm' else run.surrogate}"
    return "BM25" if run.architecture == "bm25" else run.architecture


def _format_value(run: Run, name: str) -> str:
    value = getattr(run, name)
    if value is None:
        return ABSENT
    return f"{value:g}" if isinstance(value, float) else str(value)


def list_pivot_rows(runs: Sequence[Run], x: str, y: str) -> list[dict[str, Any]]:
    """Return a row per recorded run with a score: the run, its values of two fields, and its NDCG@10 in points.

    Raises ValueError if a field does not exist or does not vary over the recorded runs.
    """
    for name in (x, y):
        check_field(name)
    if x == y:
        raise ValueError(f"--pivot {x} {y}: give two different fields")
    rows: list[dict[str, Any]] = []
    for record in find_records(runs):
        variants = list_variants(record.metrics, record.run.suite)
        path = f"{variants[0][0] if variants else record.run.suite}/mean/{HEADLINE}"
        if path in record.metrics:
            texts = {name: _format_value(record.run, name) for name in (x, y)}
            order = {name: getattr(record.run, name) for name in (x, y)}
            score = POINTS * record.metrics[path]
            rows.append({**texts, "run": record.run, "order": order, "score": score})
    varying = list_varying_fields(rows)
    if rows and (constant := [name for name in (x, y) if name not in varying]):
        raise ValueError(
            f"--pivot {x} {y}: {constant[0]} does not vary in these runs; varying fields: {sorted(varying) or 'none'}"
        )
    # A field that does not vary within an architecture has no place on the axis, for example the steps of BM25.
    varying_by_architecture = find_varying_fields([row["run"] for row in rows])
    fields = {x, y} - {ARCHITECTURE}
    return [row for row in rows if fields <= {*varying_by_architecture[row["run"].architecture]}]


def list_varying_fields(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the fields in which the runs of a pivot differ: within an architecture, or the architecture itself."""
    by_architecture = find_varying_fields([row["run"] for row in rows])
    varying = {name for names in by_architecture.values() for name in names}
    if len(by_architecture) > 1:
        varying.add(ARCHITECTURE)
    return [name for name in FIELDS if name in varying]


def list_averaged_fields(rows: Sequence[Mapping[str, Any]], x: str, y: str) -> list[str]:
    """Return the fields that a cell of a pivot averages over: those that vary and are on no axis."""
    return [name for name in list_varying_fields(rows) if name not in (x, y)]


def make_pivot_view(runs: Sequence[Run], x: str, y: str) -> View:
    """Return a table of mean scores in points, with a column per value of `x` and a row per value of `y`."""
    rows = list_pivot_rows(runs, x, y)

    def values(name: str) -> list[str]:
        value_of = {row[name]: row["order"][name] for row in rows}
        return sorted(value_of, key=lambda text: make_sort_key(value_of[text]))

    cells: dict[tuple[str, str], list[float]] = {}
    for row in rows:
        cells.setdefault((row[y], row[x]), []).append(row["score"])
    columns = values(x)
    lines = tuple(
        (y_text, *(format_mean(cells.get((y_text, x_text), []), 1) for x_text in columns)) for y_text in values(y)
    )
    averaged = list_averaged_fields(rows, x, y)
    notes = [f"each cell is the mean over {', '.join(averaged)}; ±: standard deviation"] if averaged else []
    if num_dropped := len(set(runs)) - len(rows):
        notes.append(f"skipped: {count_noun(num_dropped, 'run')} without a record, or without both fields")
    title = f"NDCG@10, points, of {count_noun(len(rows), 'run')}: {x} across, {y} down"
    return View(title, (y, *(f"{x}={x_text}" for x_text in columns)), lines, tuple(notes), "l" + "r" * len(columns))


def make_sort_key(value: Any) -> tuple[int, float, str]:
    """Return the sort key of a field value: None first, then numbers, then texts."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, (int, float)) else (2, 0.0, str(value))


def tabulate_scores(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return each run as plain values: id, differences from its scale, and metrics (None if it has no record)."""
    metrics = {record.run: dict(record.metrics) for record in find_records(runs)}
    return [{"id": run_id(run), "run": difference(run), "metrics": metrics.get(run)} for run in dict.fromkeys(runs)]


def list_variants(metrics: Mapping[str, float], suite: str) -> list[tuple[str, str]]:
    """Return the metric path and the name of each variant of a suite's scores: contexts, "own" first, then others.

    The others depend on the measure, for example widths ("width8") or parts of a training run ("fifth1").
    """
    names = {path.split("/")[0] for path in metrics}
    variants = [(name, name[len(suite) + 1 :] or "own") for name in names if f"{name}+".startswith(f"{suite}+")]

    def get_rank(pair: tuple[str, str]) -> tuple[int, str, int]:
        variant = pair[1]
        prefix = variant.rstrip("0123456789")
        return KINDS.index(variant) if variant in KINDS else len(KINDS), prefix, int(variant[len(prefix) :] or 0)

    return sorted(variants, key=get_rank)


def list_suite_rows(provenance: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the provenance of each collection, from the provenance of a record."""
    rows: list[dict[str, Any]] = provenance.get("suite", {}).get("datasets", [])
    return rows


def list_notes(suite: Mapping[str, Any]) -> list[str]:
    """Return a note per collection with a peculiarity."""
    rows = suite.get("datasets", [])
    parts = Counter(row["part_of"] for row in rows if row.get("part_of"))
    combined = [f"{name}: {count_noun(size, 'collection')}, counted once in the mean" for name, size in parts.items()]
    return [*combined, *(f"{row['name']}: {note}" for row in rows for note in row.get("quirks", []))]
