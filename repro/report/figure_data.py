"""Data of a figure from records: a row per record, or per metric of a record that matches a pattern."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from statistics import fmean
from typing import Any

from repro.records.store import Record
from repro.report.names import format_heading, list_claims
from repro.report.tables import format_no_records_note, get_metric_path
from repro.report.view import View, format_mean, format_spread_note
from repro.spec import FIELDS, Figure, Row, Run
from repro.spec.identity import get_setting_id
from repro.spec.registry import artefacts
from repro.text import ABSENT, count_noun, format_suggestion

REFERENCES = ("bm25", "surrogate")
"""Systems that are not trained. They have no value on an axis of training, and are drawn as a horizontal line."""
PLACEHOLDER = re.compile(r"\*|\{family\}")
DEFAULT_METRIC = "{suite}/mean/ndcg_at_10"
OUTDATED = "the record is older than this measure; move it out of the folder and run it again"
METRIC_NAMES = {"ndcg_at_10": "NDCG@10", "mrr_at_10": "MRR@10", "recall_at_100": "recall@100"}


def list_figure_rows(figure: Figure, runs: Sequence[Run], records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the plotted rows of a figure.

    A row has a column per axis, under the name of the axis, and the columns "series", "seed", "record" and "setting".
    Runs that differ only in their seed share one setting. An axis is a field of the run or a metric path, which may
    contain {suite} and {part1}. For a figure with `points`, it may also be part1, part2, …, or "value". A record gives no
    row if that of x (`x_of`) or the series that is subtracted (`minus`) has no record.

    Raises:
        ValueError: if a record lacks a metric, the series that is subtracted has two values at a point, or x has two
            records.
    """
    by_run = {record.run: record for record in records}
    recorded = [by_run[run] for run in dict.fromkeys(runs) if run in by_run]
    x_records = [record for record in recorded if figure.x_of is not None and figure.x_of.matches(record.run)]
    if len(x_records) > 1:
        raise ValueError(f"{figure.name}: x_of selects {len(x_records)} records, expected one")
    if figure.x_of is not None and not x_records:
        return []
    x_record = next(iter(x_records), None)
    rows: list[dict[str, Any]] = []
    for series in series_at(figure, runs):
        series_rows = _iter_series_rows(figure, series, recorded, x_record)
        if series.minus is not None:
            others = _iter_series_rows(figure, series.minus, recorded, x_record)
            is_reference = dict(series.minus.runs.wanted).get("architecture") in REFERENCES
            series_rows = _subtract(figure, series_rows, others, has_seeds=not is_reference)
        rows += _subtract_first(figure, series_rows) if figure.is_paired else series_rows
    return rows


def _subtract_first(figure: Figure, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a series less its value at the smallest x of the same line and seed, if there is one."""
    column = get_value_column(figure)
    lines: dict[Any, list[dict[str, Any]]] = {}
    for row in rows:
        lines.setdefault(row.get(figure.hue), []).append(row)
    for line in lines.values():
        smallest = min(row[figure.x] for row in line)
        first = {row["seed"]: row[column] for row in line if row[figure.x] == smallest}
        yield from ({**row, column: row[column] - first[row["seed"]]} for row in line if row["seed"] in first)


def _iter_series_rows(
    figure: Figure, series: Row, records: Sequence[Record], x_record: Record | None
) -> Iterator[dict[str, Any]]:
    for record in records:
        if series.runs.matches(record.run):
            yield from _iter_record_rows(figure, series, record, x_record or record)


def _subtract(
    figure: Figure, rows: Iterable[dict[str, Any]], others: Iterable[dict[str, Any]], *, has_seeds: bool
) -> Iterator[dict[str, Any]]:
    """Yield rows less the value of another series at the same point. Rows without a record of it are dropped.

    The other series has the same seed, unless it is a reference system, which has no seeds.

    Raises:
        ValueError: if the other series has two values at a point, or a record without one of the parts.
    """
    column = get_value_column(figure)
    places = [figure.x] if figure.x in FIELDS else []
    places += ["seed"] if has_seeds else []
    values: dict[tuple[Any, ...], dict[tuple[Any, ...], float]] = {}
    for other in others:
        place, part = tuple(other[name] for name in places), (other.get("part1"), other.get("part2"))
        if part in values.setdefault(place, {}):
            raise ValueError(f"{figure.name}: {other['series']!r} has two values at {(*place, *part)}")
        values[place][part] = other[column]
    for row in rows:
        place, part = tuple(row[name] for name in places), (row.get("part1"), row.get("part2"))
        if place not in values:
            continue
        if part not in values[place]:
            raise ValueError(f"{figure.name}: no value to subtract from {row['series']!r} at {(*place, *part)}")
        yield {**row, column: row[column] - values[place][part]}


def series_at(figure: Figure, runs: Sequence[Run]) -> list[Row]:
    """Return the series of a figure at the scale of these runs."""
    scale = runs[0].scale if runs else ""
    return [series for series in figure.series if not series.scales or scale in series.scales]


def _iter_record_rows(figure: Figure, series: Row, record: Record, x_record: Record) -> Iterator[dict[str, Any]]:
    """Yield the rows of one record in a series: one, or one per point of a figure with `points`."""
    identity = {"setting": get_setting_id(record.run), "seed": record.run.seed, "record": record.id}
    for point in _list_points(figure, series, record):
        row: dict[str, Any] = {"series": series.label}
        if figure.kind == "gains":
            row["paper"] = series.paper.get(figure.y_label)
        for name in get_axis_columns(figure):
            row[name] = _get_value(figure, name, series, x_record if name == figure.x else record, point)
        parts = {name: value for name, value in point.items() if name not in row and name != "value"}
        yield {**row, **parts, **identity}


def get_axis_columns(figure: Figure) -> tuple[str, ...]:
    """Return the names of the plotted columns, the value column last."""
    return tuple(dict.fromkeys(name for name in (figure.hue, figure.x, figure.y, figure.cell) if name))


def get_value_column(figure: Figure) -> str:
    """Return the column of the plotted value: the cells of a heat map, else the y axis."""
    return figure.cell or figure.y


def _list_points(figure: Figure, series: Row, record: Record) -> list[dict[str, Any]]:
    """Return the parts (part1, part2, …) and the value of each metric that matches the pattern of the figure."""
    if not figure.points:
        return [{}]
    pattern = re.compile(_format_pattern(figure.points, series, record))
    points = []
    for path, value in sorted(record.metrics.items()):
        match = pattern.fullmatch(path)
        if match:
            parts = {f"part{index}": part for index, part in enumerate(match.groups(), 1)}
            points.append({**parts, "value": value})
    return points


def _format_pattern(points: str, series: Row, record: Record) -> str:
    """Return a regular expression: `*` matches any name except means over datasets, `{family}` matches such a mean."""
    datasets = record.datasets
    families = sorted({dataset["family"] for dataset in datasets if "family" in dataset})
    # A negative lookahead excludes the means over datasets, which share the path of a dataset.
    any_name = "".join(f"(?!{re.escape(mean)}/)" for mean in ["mean", *families]) + "([^/]+)"
    family = "(" + "|".join(map(re.escape, families)) + ")" if families else "((?!))"
    replacements = {"*": any_name, "{family}": family}
    parts = re.split(f"({PLACEHOLDER.pattern})", get_metric_path(points, record.run, series.context))
    return "".join(replacements.get(part, re.escape(part)) for part in parts)


def _get_value(figure: Figure, name: str, series: Row, record: Record, point: dict[str, Any]) -> Any:
    """Return the value of one axis. The value column is multiplied by the factor of the figure."""
    factor = figure.factor if name == get_value_column(figure) else 1.0
    if name in point:
        if name == "value":
            return point[name] * factor
        return int(point[name]) if name == figure.x and str(point[name]).isdecimal() else point[name]
    if name in FIELDS:
        return _get_field(record.run, name)
    path = get_metric_path(name, record.run, series.context)
    for part, value in point.items():
        path = path.replace(f"{{{part}}}", str(value))
    if "/" not in path:
        hint = format_suggestion(name, [*FIELDS, *point])
        raise ValueError(
            f"{figure.name}: the axis {name!r} is neither a metric's path, such as {DEFAULT_METRIC!r}, "
            f"nor a field of a run{hint}"
        )
    if path not in record.metrics:
        raise ValueError(f"{figure.name}: {record.path} has no {path!r}: {OUTDATED}")
    return record.metrics[path] * factor


def _get_field(run: Run, name: str) -> Any:
    return None if run.architecture in REFERENCES else getattr(run, name)


def make_figure_view(figure: Figure, runs: Sequence[Run], published: Sequence[Record], yours: Sequence[Record]) -> View:
    """Return a figure as a table of means over seeds per axis position, or of single dots for a scatter plot."""
    position_columns, value_column = _get_position_columns(figure), get_value_column(figure)
    labels = [format_column_label(figure, name) for name in position_columns]
    header = ("series", *labels, "origin", "seeds", format_column_label(figure, value_column))
    fields = [index for index, name in enumerate(position_columns, 1) if name in FIELDS]
    wanted_seeds: dict[tuple[str, ...], set[int]] = {}
    for series in series_at(figure, runs):
        for run in filter(series.runs.matches, runs):
            place = (
                series.label,
                *(format_axis_text(_get_field(run, position_columns[index - 1])) for index in fields),
            )
            wanted_seeds.setdefault(place, set()).add(run.seed)
    lines: list[tuple[str, ...]] = []
    for source, records in (("published", published), ("yours", yours)):
        cells: dict[tuple[str, ...], dict[int, list[float]]] = {}
        for row in list_figure_rows(figure, runs, records):
            position = (row["series"], *(format_axis_text(row[name]) for name in position_columns))
            cells.setdefault(position, {}).setdefault(row["seed"], []).append(row[value_column])
        for position in _sort_positions(cells):
            means = list(map(fmean, cells[position].values()))
            # A dot of a scatter plot is one run, however many seeds its fields have.
            num_wanted = len(wanted_seeds[position[0], *(position[index] for index in fields)])
            seeds = str(len(means)) if figure.kind == "scatter" else f"{len(means)}/{num_wanted}"
            lines.append((*position, source, seeds, format_mean(means, _choose_decimals(figure, means))))
    title = f"{figure.name} at scale {runs[0].scale if runs else ABSENT}: {figure.caption}"
    notes = format_spread_note(lines) if lines or not runs else (format_no_records_note(figure.name, runs[0].scale),)
    return View(title, header, tuple(lines), notes, "l" * (len(header) - 2) + "rr")


def _choose_decimals(figure: Figure, means: Iterable[float]) -> int:
    if figure.factor >= 100:
        return 1
    return 0 if all(map(float.is_integer, map(float, means))) else 3


def _get_position_columns(figure: Figure) -> tuple[str, ...]:
    """Return the columns that locate a value: the axes, and the parts of a point in scatter and custom plots."""
    axes = tuple(name for name in get_axis_columns(figure) if name != get_value_column(figure))
    parts = range(1, 1 + len(PLACEHOLDER.findall(figure.points)) * (figure.kind in ("scatter", "own")))
    return tuple(dict.fromkeys((*axes, *(f"part{index}" for index in parts))))


def _sort_positions(positions: Collection[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Sort positions by their axes, the first axis first."""
    ranks = [_rank_texts(axis) for axis in zip(*positions, strict=True)]
    return sorted(positions, key=lambda position: [rank[text] for rank, text in zip(ranks, position, strict=True)])


def _rank_texts(texts: Iterable[str]) -> dict[str, int]:
    """Return the rank of each text: numbers by size with missing values last, words by first appearance."""
    distinct = list(dict.fromkeys(texts))
    with suppress(ValueError):
        distinct = sorted(distinct, key=lambda text: math.inf if text == ABSENT else float(text))
    return {text: rank for rank, text in enumerate(distinct)}


def format_axis_text(value: Any) -> str:
    """Return an axis value as text, numbers with up to six significant digits."""
    if value is None:
        return ABSENT
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def format_subtitle(figure: Figure, scale: str, source: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the subtitle of a picture: figure, scale, source of the records and largest number of seeds.

    Seeds are counted per series, because a reference that does not depend on the seed has only one.
    """
    if figure.kind == "diagram":
        return f"{format_heading(figure.name)}, scale {scale}"
    seeds_by_series: dict[str, set[int]] = {}
    for row in rows:
        seeds_by_series.setdefault(row["series"], set()).add(row["seed"])
    count = max(map(len, seeds_by_series.values()), default=0)
    seeds = count_noun(count, "seed") if count else ""
    claim_seeds = describe_claim_seeds(figure, scale, rows)
    return ", ".join(filter(None, (format_heading(figure.name), f"scale {scale}", source, seeds, claim_seeds)))


def describe_claim_seeds(figure: Figure, scale: str, rows: Iterable[Mapping[str, Any]]) -> str:
    """Return a note if claims about drawn runs use some of the drawn seeds only, or others, else an empty string."""
    drawn_seeds = {row["seed"] for row in rows}
    if figure.name not in artefacts() or not drawn_seeds:
        return ""
    experiment, _ = artefacts()[figure.name]
    runs = [run for run in experiment.runs(scale) if any(series.runs.matches(run) for series in figure.series)]
    declared = [
        set(claim.declared_seeds(scale))
        for claim in list_claims(experiment, figure.name)
        if scale in (claim.scales or (scale,)) and any(term.runs.matches(run) for term in claim.terms for run in runs)
    ]
    if not all(seeds <= drawn_seeds for seeds in declared):
        return "claims use other seeds"
    return "claims use some of them" if any(seeds < drawn_seeds for seeds in declared) else ""


def format_column_label(figure: Figure, name: str) -> str:
    """Return the label of an axis: that of the figure, or the name of the metric."""
    if name == figure.x:
        return figure.x_label
    if name == figure.y:
        return figure.y_label
    if name == figure.hue and figure.hue_label:
        return figure.hue_label
    if name.startswith("part"):
        if figure.parts:
            return figure.parts[int(name[4:]) - 1]
        return "family" if PLACEHOLDER.findall(figure.points)[int(name[4:]) - 1] == "{family}" else "dataset"
    last = (figure.points if name in ("value", "") else name).rpartition("/")[2]
    unit = " (points)" if figure.factor == 100 and name == get_value_column(figure) else ""
    return METRIC_NAMES.get(last, last.replace("_", " ")) + unit
