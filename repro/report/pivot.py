"""A pivot: the scores of a grid by two of its fields, as a table. `repro.cli.figures` draws the same scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from repro.data.beir import HEADLINE
from repro.report.scores import POINTS, find_records, find_varying_fields, format_field, list_variants
from repro.report.view import View, format_mean
from repro.spec import FIELDS, Run
from repro.spec.axes import check_field
from repro.text import count_noun

ARCHITECTURE = "architecture"


@dataclass(frozen=True)
class Pivot:
    """The scores of some runs by two fields.

    Attributes:
        x: Field of the columns.
        y: Field of the rows.
        scores: NDCG@10 in points of each run of a complete cell.
        values: The values of x and of y, as text by value, in their order.
        averaged: The fields that a cell averages over: those that vary and are on no axis.
        num_incomplete: Cells with a score, but not of all their runs. Their mean would depend on which runs have ended.
        num_left_out: Runs without a score, and runs of architectures that do not vary in x and y.
    """

    x: str
    y: str
    scores: Mapping[Run, float]
    values: Mapping[str, Mapping[Any, str]]
    averaged: tuple[str, ...]
    num_incomplete: int
    num_left_out: int


def make_pivot(runs: Sequence[Run], x: str, y: str) -> Pivot:
    """Group the scores of runs by two fields. Runs with a record but without a score do not count.

    Raises ValueError if a field does not exist, or does not vary over the runs.
    """
    for name in (x, y):
        check_field(name)
    if x == y:
        raise ValueError(f"--pivot {x} {y}: give two different fields")
    scores: dict[Run, float | None] = {}
    for record in find_records(runs):
        variants = list_variants(record.metrics, record.run.suite)
        score = record.metrics.get(f"{variants[0][0] if variants else record.run.suite}/mean/{HEADLINE}")
        scores[record.run] = None if score is None else POINTS * score
    wanted = [run for run in dict.fromkeys(runs) if scores.get(run, 0.0) is not None]
    varying = list_varying_fields(wanted)
    if any(score is not None for score in scores.values()) and (
        constant := [name for name in (x, y) if name not in varying]
    ):
        raise ValueError(
            f"--pivot {x} {y}: {constant[0]} does not vary in these runs; varying fields: {sorted(varying) or 'none'}"
        )
    # A field that does not vary within an architecture has no place on the axis, for example the steps of BM25.
    varying_by_architecture = find_varying_fields(wanted)
    fields = {x, y} - {ARCHITECTURE}
    cells: dict[tuple[Any, Any], list[Run]] = {}
    for run in wanted:
        if fields <= {*varying_by_architecture[run.architecture]}:
            cells.setdefault((getattr(run, x), getattr(run, y)), []).append(run)
    started = [members for members in cells.values() if any(run in scores for run in members)]
    complete = [members for members in started if all(run in scores for run in members)]
    shown = [run for members in started for run in members]
    known = {run: score for members in complete for run in members if (score := scores[run]) is not None}
    values = {}
    for name in (x, y):
        text_of = {getattr(run, name): format_field(run, name) for run in shown}
        values[name] = {value: text_of[value] for value in sorted(text_of, key=make_sort_key)}
    averaged = tuple(name for name in list_varying_fields(shown) if name not in (x, y))
    return Pivot(x, y, known, values, averaged, len(started) - len(complete), len(set(runs)) - len(known))


def list_varying_fields(runs: Sequence[Run]) -> list[str]:
    """Return the fields in which runs differ: within an architecture, or the architecture itself."""
    by_architecture = find_varying_fields(runs)
    varying = {name for names in by_architecture.values() for name in names}
    if len(by_architecture) > 1:
        varying.add(ARCHITECTURE)
    return [name for name in FIELDS if name in varying]


def make_pivot_view(pivot: Pivot) -> View:
    """Return a table of mean scores in points, with a column per value of `x` and a row per value of `y`.

    As in its picture, a mean is over seeds of the means of each seed.
    """
    x, y = pivot.x, pivot.y
    cells: dict[tuple[Any, Any], dict[int, list[float]]] = {}
    for run, score in pivot.scores.items():
        cells.setdefault((getattr(run, y), getattr(run, x)), {}).setdefault(run.seed, []).append(score)
    columns = pivot.values[x]
    lines = []
    for y_value, y_text in pivot.values[y].items():
        by_seed = [cells.get((y_value, x_value), {}).values() for x_value in columns]
        lines.append((y_text, *(format_mean([fmean(scores) for scores in seeds], 1) for seeds in by_seed)))
    notes = []
    if pivot.averaged:
        spread = "; ±: standard deviation over seeds" if any("±" in cell for line in lines for cell in line) else ""
        notes.append(f"each cell is the mean over {', '.join(pivot.averaged)}{spread}")
    if pivot.num_incomplete:
        notes.append(f"–: {count_noun(pivot.num_incomplete, 'cell')} with runs that have no record")
    if pivot.num_left_out:
        skipped = count_noun(pivot.num_left_out, "run")
        notes.append(f"skipped: {skipped} without a score, of an incomplete cell, or without both fields")
    title = f"NDCG@10, points, of {count_noun(len(pivot.scores), 'run')}: {x} across, {y} down"
    header = (y, *(f"{x}={x_text}" for x_text in columns.values()))
    return View(title, header, tuple(lines), tuple(notes), "l" + "r" * len(columns))


def make_sort_key(value: Any) -> tuple[int, float, str]:
    """Return the sort key of a field value: None first, then numbers, then texts."""
    if value is None:
        return 0, 0.0, ""
    return (1, float(value), "") if isinstance(value, (int, float)) else (2, 0.0, str(value))
