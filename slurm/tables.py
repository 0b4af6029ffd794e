"""The status of a sweep, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from repro.report.formats import MOST_FOLDED_ROWS, render
from repro.report.view import View, format_seconds
from repro.spec import Run
from repro.spec.identity import difference_in_words
from slurm.status import RunStatus, Snapshot, summary

COLUMNS = ("run", "what", "state", "step", "pairs/s", "left", "reason")
COLOURS = {"recorded": "green", "running": "cyan", "failed": "red", "cancelled": "red", "interrupted": "yellow"}


def look_at(runs: Sequence[Run]) -> tuple[Table, bool]:
    """Return where the runs and their stages stand at this moment, and whether anything still runs or waits."""
    snapshot, unique = Snapshot(), list(dict.fromkeys(runs))
    found = [snapshot.status_of(run) for run in unique]
    table = table_of(unique, found)
    stages = snapshot.unbuilt_stages(unique)
    table.caption = "\n".join(f"stage {name}: {says}" for name, says in stages.items()) or None
    return table, any(status.state == "running" or status.live_on for status in found)


def show_status(runs: Sequence[Run]) -> None:
    """Print the table once; one of thousands of runs as plain lines."""
    unique = list(dict.fromkeys(runs))
    if len(unique) <= MOST_FOLDED_ROWS:
        return Console().print(look_at(unique)[0])
    snapshot = Snapshot()
    found = [snapshot.status_of(run) for run in unique]
    rows = tuple(_cells(run, status) for run, status in zip(unique, found, strict=True))
    notes = tuple(f"stage {name}: {says}" for name, says in snapshot.unbuilt_stages(unique).items())
    render(View(summary(found), COLUMNS, rows, notes, align="lllrrrl"))


def table_of(runs: Sequence[Run], found: Sequence[RunStatus]) -> Table:
    """Return the table: a line a run, with progress for the running and the reason for the rest."""
    table = Table(*COLUMNS, box=None, title=summary(found))
    for run, status in zip(runs, found, strict=True):
        colour = COLOURS.get(status.state, "default")
        id, what, state, *rest = _cells(run, status)
        table.add_row(id, what, f"[{colour}]{state}[/{colour}]", *map(escape, rest))
    return table


def _cells(run: Run, status: RunStatus) -> tuple[str, ...]:
    return status.id, difference_in_words(run), status.state, *_progress(status), status.reason


def _progress(status: RunStatus) -> tuple[str, str, str]:
    progress = status.progress
    if progress is None:
        return "", "", ""
    of = f"/{progress.num_steps}" if progress.num_steps else ""
    speed = f"{progress.pairs_per_second:.0f}" if progress.pairs_per_second else ""
    return f"{progress.step}{of}", speed, format_seconds(progress.seconds_left)
