"""What each row of a table gains over its first, seed by seed, from published records: the numbers behind a picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from repro.records.store import Record
from repro.report.tables import get_metric_path
from repro.spec import TRAINED, Column, Row, Run, Table

FEWEST_SEEDS = 3
"""Seeds of a row of our own, shared with the first, from which on it has an interval."""


def list_gain_rows(
    table: Table, label: str, wanted: Sequence[Run], records: Sequence[Record], seeds: Sequence[int]
) -> tuple[str, list[dict[str, Any]]]:
    """Return the first row's label, and a line for every other trained row and seed.

    A line has "row", "seed", "gain" (of the column named `label`, less the first row's value at the same seed, in the
    column's unit) and "paper", the same difference as printed, None where the paper prints none. The first row is the
    first that the paper prints too. Rows seen through another context, rows that lack a record, and rows of our own
    that share too few seeds with the first for an interval, are left out. `seeds` are those of the claims about it.
    ValueError when the table has no such column, or prints no row.
    """
    column = next((one for one in table.columns if one.label == label), None)
    printed = [row for row in table.rows if label in row.paper]
    if column is None or not printed:
        raise ValueError(f"{table.name} has no column {label!r} that the paper prints; choose another")
    first, have = printed[0], {record.run: record for record in records}
    reference = _map_by_seed(column, first, wanted, have)
    lines: list[dict[str, Any]] = []
    for row in (row for row in table.rows if row is not first and row.context == "own"):
        paper = row.paper[label] - first.paper[label] if label in row.paper else None
        found = _map_by_seed(column, row, wanted, have)
        shared = sorted(found.keys() & reference.keys() & set(seeds))
        if paper is None and len(shared) < FEWEST_SEEDS:
            continue
        lines += [
            {"row": row.label, "seed": seed, "gain": found[seed] - reference[seed], "paper": paper} for seed in shared
        ]
    return first.label, lines


def _map_by_seed(column: Column, row: Row, wanted: Sequence[Run], have: dict[Run, Record]) -> dict[int, float]:
    """Return the value of a row by seed; nothing unless all its runs are trained and recorded."""
    runs = [run for run in wanted if row.of.matches(run)]
    if not all(run in have and run.architecture in TRAINED for run in runs):
        return {}
    return {run.seed: have[run].metrics[get_metric_path(column.value, run)] * column.factor for run in runs}
