"""Data of a figure from records: a row per record, or per metric of a record that matches a pattern."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any

from repro.records.store import Record
from repro.report.names import find_artefact, format_heading
from repro.report.tables import format_no_records_note, get_metric_path
from repro.report.view import View, format_mean, format_spread_note
from repro.spec import FIELDS, Figure, Identity, Pick, Row, Run
from repro.spec.identity import get_setting_id
from repro.spec.registry import artefacts
from repro.text import ABSENT, count_noun, format_spans, suggestion

REFERENCES = ("bm25", "surrogate")
"""Systems that are not trained. They have no value on an axis of training, and are drawn as a horizontal line."""
PLACEHOLDER = re.compile(r"\*|\{family\}")
DEFAULT_METRIC = "{suite}/mean/ndcg_at_10"
METRIC_WORDS = {"ndcg_at_10": "NDCG@10", "mrr_at_10": "MRR@10", "recall_at_100": "recall@100"}


def list_figure_rows(figure: Figure, runs: Sequence[Run], records: Sequence[Record]) -> list[dict[str, Any]]:
    """Return the plotted rows of a figure.

    A row has a column per axis, under the name of the axis, and the columns "series", "seed", "record" and "setting".
    Runs that differ only in their seed share one setting. An axis is a field of the run or a metric path, which may
    contain {suite} and {part1}. For a figure with `points`, it may also be part1, part2, …, or "value". A record whose
    partner (`x_of`, `minus`) has no record gives no row.

    Raises:
        ValueError: if a record lacks a metric.
    """
    have = {record.run: record for record in records}
    partners_of = [_make_partner_finder(pick, records) for pick in (figure.x_of, figure.minus)]
    rows: list[dict[str, Any]] = []
    for series in series_at(figure, runs):
        for record in (have[run] for run in dict.fromkeys(runs) if series.of.matches(run) and run in have):
            partners = [partner(record) for partner in partners_of]
            if None not in partners:
                rows += _get_run_rows(figure, series, record, *partners)
    return rows


def _make_partner_finder(pick: Pick | None, records: Sequence[Record]) -> Callable[[Record], Record | None]:
    """Return a function that maps a record to its partner under a pick.

    The partner has the same seed. If no record has this seed, it is the first one. Without a pick it is the record
    itself.
    """
    if pick is None:
        return lambda record: record
    found = [one for one in records if pick.matches(one.run)]
    by_seed = {one.run.seed: one for one in reversed(found)}
    return lambda record: by_seed.get(record.run.seed, found[0] if found else None)


def series_at(figure: Figure, runs: Sequence[Run]) -> list[Row]:
    """Return the series of a figure at the scale of these runs."""
    scale = runs[0].scale if runs else ""
    return [series for series in figure.series if not series.scales or scale in series.scales]


def _get_run_rows(
    figure: Figure, series: Row, record: Record, x_record: Record | None, minus: Record | None
) -> Iterator[dict[str, Any]]:
    assert x_record is not None and minus is not None, "a record without its partners gives no row"
    end = {"setting": get_setting_id(record.run), "seed": record.run.seed, "record": record.id}
    minus_points = _points(figure, Row(label="", of=Pick(())), minus) if figure.minus else []
    of_minus = {_parts(point): point for point in minus_points}
    for point in _points(figure, series, record):
        row: dict[str, Any] = {"series": series.label}
        for name in get_axis_columns(figure):
            row[name] = _value(figure, name, series, x_record if name == figure.x else record, point)
        if figure.minus:
            same = _find_same_point(figure, minus, of_minus, point)
            row[get_value_column(figure)] -= _value(figure, get_value_column(figure), series, minus, same)
        parts = {name: value for name, value in point.items() if name not in row and name != "value"}
        yield {**row, **parts, **_get_part_name(figure, record, point), **end}


def _get_part_name(figure: Figure, record: Record, point: dict[str, Any]) -> dict[str, str]:
    """Return the name that a record gives to part1, or an empty dictionary if the figure names no parts."""
    if not figure.named_by:
        return {}
    pairs = [tuple(row.values())[:2] for row in record.exhibits.get(figure.named_by, ())]
    names = {str(part): str(words) for part, words in pairs}
    return {"name": names.get(point["part1"], point["part1"])}


Parts = tuple[tuple[str, Any], ...]


def _parts(point: Mapping[str, Any]) -> Parts:
    """Return the parts of a point, which identify it within its record."""
    return tuple((name, value) for name, value in point.items() if name != "value")


def _find_same_point(
    figure: Figure, record: Record, points: Mapping[Parts, dict[str, Any]], point: dict[str, Any]
) -> dict[str, Any]:
    """Return the point of another record with the same parts. Raises ValueError if that record lacks it."""
    parts = _parts(point)
    if parts not in points:
        raise ValueError(f"{figure.name}: record {record.id} has no {figure.points!r} with {dict(parts)}: run it again")
    return points[parts]


def get_axis_columns(figure: Figure) -> tuple[str, ...]:
    """Return the names of the plotted columns, the value column last."""
    return tuple(dict.fromkeys(name for name in (figure.hue, figure.mark, figure.x, figure.y, figure.cell) if name))


def get_value_column(figure: Figure) -> str:
    """Return the column of the plotted value: the cells of a heat map, else the y axis."""
    return figure.cell or figure.y


def _points(figure: Figure, series: Row, record: Record) -> list[dict[str, Any]]:
    if not figure.points:
        return [{}]
    fits = re.compile(_pattern(figure.points, series, record))
    found = [(fits.fullmatch(path), value) for path, value in sorted(record.metrics.items())]
    return [
        {f"part{number}": part for number, part in enumerate(match.groups(), 1)} | {"value": value}
        for match, value in found
        if match
    ]


def _pattern(points: str, series: Row, record: Record) -> str:
    """Return a regular expression: `*` matches any name except means over datasets, `{family}` matches such a mean."""
    families = {d["family"] for d in record.provenance.get("suite", {}).get("datasets", ()) if "family" in d}
    return _compile_metric_pattern(get_metric_path(points, record.run, series.context), frozenset(families))


# the records of a figure share few suites
@lru_cache(maxsize=256)
def _compile_metric_pattern(path: str, families: frozenset[str]) -> str:
    # A negative lookahead excludes the means over datasets, which share the path of a dataset.
    any_name = "".join(f"(?!{re.escape(mean)}/)" for mean in sorted({"mean"} | families)) + "([^/]+)"
    family = "(" + "|".join(map(re.escape, sorted(families))) + ")" if families else "((?!))"
    known = {"*": any_name, "{family}": family}
    return "".join(known.get(part, re.escape(part)) for part in re.split(f"({PLACEHOLDER.pattern})", path))


def _value(figure: Figure, name: str, series: Row, record: Record, point: dict[str, Any]) -> Any:
    """Return the value of one axis. The value column is multiplied by the factor of the figure."""
    factor = figure.factor if name == get_value_column(figure) else 1.0
    if name in point:
        is_number = name == figure.x and str(point[name]).isdecimal()
        return point[name] * factor if name == "value" else int(point[name]) if is_number else point[name]
    if name in FIELDS:
        return None if record.run.architecture in REFERENCES else getattr(record.run, name)
    if figure.points and (name == figure.points or name == figure.points.rpartition("*")[2].lstrip("/")):
        return point["value"] * factor
    path = get_metric_path(name, record.run, series.context)
    for part, value in point.items():
        path = path.replace(f"{{{part}}}", str(value))
    if "/" not in path:
        near = suggestion(name, [*FIELDS, *point])
        of_metrics = f"neither a metric's path, such as {DEFAULT_METRIC!r}"
        raise ValueError(f"{figure.name}: the axis {name!r} is {of_metrics}, nor a field of a run{near}")
    if path not in record.metrics:
        raise ValueError(f"{figure.name} asks record {record.id} for {path!r}, which it lacks: run it again")
    return record.metrics[path] * factor


def make_figure_view(figure: Figure, runs: Sequence[Run], published: Sequence[Record], yours: Sequence[Record]) -> View:
    """Return a figure as a table of means over seeds per axis position, or of single dots for a scatter plot.

    A position without records has a dash.
    """
    records = {"published": published, "yours": yours}
    return make_rows_view(
        figure, runs, {who: list_figure_rows(figure, runs, those) for who, those in records.items() if those}
    )


def make_rows_view(figure: Figure, runs: Sequence[Run], rows: Mapping[str, Sequence[Mapping[str, Any]]]) -> View:
    """Return the same table from plotted rows, which are grouped by source ("published" or "yours")."""
    header = (*_labels(figure), "whose", "seeds", format_column_label(figure, get_value_column(figure)))
    lines: list[tuple[str, ...]] = []
    asked = _count_expected_seeds(figure, runs)
    for whose, those in rows.items():
        cells: dict[tuple[str, ...], list[tuple[int, float]]] = {place: [] for place in asked}
        for row in those:
            place = (row["series"], *(format_axis_text(row[name]) for name in _places(figure)))
            cells.setdefault(place, []).append((row["seed"], row[get_value_column(figure)]))
        lines += [
            (*place, whose, *_count_seeds(figure, cells[place], asked.get(place))) for place in _sort_places(cells)
        ]
    title = f"{figure.name} at scale {runs[0].scale if runs else ABSENT}: {figure.caption}"
    notes = format_spread_note(lines) if lines or not runs else (format_no_records_note(figure.name, runs[0].scale),)
    return View(title, header, tuple(lines), notes, "l" * (len(header) - 2) + "rr")


def _count_seeds(figure: Figure, found: list[tuple[int, float]], num_asked: int | None) -> tuple[str, str]:
    num_seeds = len({seed for seed, _ in found})
    seeds = str(num_seeds) if num_asked is None else f"{num_seeds}/{num_asked}"
    by_seed: dict[int, list[float]] = {}
    for seed, value in found:
        by_seed.setdefault(seed, []).append(value)
    means = [sum(values) / len(values) for values in by_seed.values()]
    whole = all(float(mean).is_integer() for mean in means)
    return seeds, format_mean(means, 1 if figure.factor >= 100 else 0 if whole else 3)


def _places(figure: Figure) -> tuple[str, ...]:
    """Return the columns that locate a value: the axes, and the parts of a point in scatter and custom plots."""
    axes = tuple(name for name in get_axis_columns(figure) if name != get_value_column(figure))
    parts = range(1, 1 + len(PLACEHOLDER.findall(figure.points)) * (figure.kind in ("scatter", "own")))
    return tuple(dict.fromkeys((*axes, *(f"part{number}" for number in parts))))


def _sort_places(places: Collection[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Sort positions by their axes, the first axis first."""
    orders = [_order(axis) for axis in zip(*places, strict=True)]
    return sorted(places, key=lambda place: [order[text] for order, text in zip(orders, place, strict=True)])


def _order(texts: Iterable[str]) -> dict[str, int]:
    """Return the rank of each text: numbers by size with missing values last, words by first appearance."""
    different = list(dict.fromkeys(texts))
    with suppress(ValueError):
        different = sorted(different, key=lambda text: math.inf if text == ABSENT else float(text))
    return {text: place for place, text in enumerate(different)}


def _count_expected_seeds(figure: Figure, runs: Sequence[Run]) -> dict[tuple[str, ...], int]:
    """Return the number of requested seeds per position, or an empty dictionary if an axis is not a field of the run."""
    if not all(name in FIELDS for name in _places(figure)):
        return {}
    seeds: dict[tuple[str, ...], set[int]] = {}
    for series in series_at(figure, runs):
        for run in filter(series.of.matches, runs):
            values = [None if run.architecture in REFERENCES else getattr(run, name) for name in _places(figure)]
            seeds.setdefault((series.label, *map(format_axis_text, values)), set()).add(run.seed)
    return {place: len(each) for place, each in seeds.items()}


def format_axis_text(value: Any) -> str:
    """Return an axis value as text, numbers with up to four significant digits."""
    if value is None:
        return ABSENT
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def format_subtitle(figure: Figure, scale: str, whose: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the subtitle of a picture: figure, scale, source of the records and largest number of seeds.

    Seeds are counted per series, because a reference that does not depend on the seed has only one.
    """
    if figure.is_diagram:
        return f"{format_heading(figure.name)}, scale {scale}"
    seeds_of: dict[str, set[int]] = {}
    for row in rows:
        seeds_of.setdefault(row["series"], set()).add(row["seed"])
    count = max(map(len, seeds_of.values()), default=0)
    seeds = count_noun(count, "seed") if count else ""
    used = _describe_seeds_of_claims(figure, scale, set().union(*seeds_of.values()))
    return ", ".join(filter(None, (format_heading(figure.name), f"scale {scale}", whose, seeds, used)))


def _describe_seeds_of_claims(figure: Figure, scale: str, drawn: set[int]) -> str:
    """Return a note on the seeds of the figure's claims if they differ from the drawn seeds, else an empty string."""
    if figure.name not in artefacts() or not drawn:
        return ""
    experiment, _ = artefacts()[figure.name]
    claims = [one for one in experiment.claims if find_artefact(one.id, experiment.artefacts) == figure.name]
    used = {one.declared_seeds(scale) for one in claims if not isinstance(one, Identity)}
    others = sorted(seeds for seeds in used if set(seeds) != drawn)
    return f"claims use seeds {' and '.join(map(format_spans, others))}" if others else ""


def _labels(figure: Figure) -> tuple[str, ...]:
    return ("series", *(format_column_label(figure, name) for name in _places(figure)))


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
    return METRIC_WORDS.get(last, last.replace("_", " ")) + unit
