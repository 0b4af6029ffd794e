"""Show the status of a sweep as a table in the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from repro.report.formats import MAX_FOLDED_ROWS, make_console, render, render_line
from repro.report.view import View
from repro.spec import Run
from repro.spec.identity import format_overrides
from repro.text import format_seconds
from slurm.status import NEVER_LAUNCHED, RunStatus, Snapshot, format_state_counts

COLUMNS = ("run", "what", "state", "step", "pairs/s", "left", "reason")
NUM_FIXED_COLUMNS = 3
"""The first columns are shown even if they are empty."""
COLOURS = {
    "recorded": "green",
    "running": "cyan",
    "failed": "red",
    "unreadable": "red",
    "cancelled": "red",
    "interrupted": "yellow",
}


def make_live_table(runs: Sequence[Run]) -> tuple[Table, bool]:
    """Return the current status table of the runs and their stages, and whether anything still runs or waits."""
    snapshot = Snapshot()
    unique = list(dict.fromkeys(runs))
    statuses = snapshot.get_statuses(unique)
    table = _add_notes(make_status_table(unique, statuses), _list_notes(snapshot, unique, statuses))
    return table, any(status.state == "running" or status.live_on for status in statuses)


def show_status(runs: Sequence[Run]) -> None:
    """Print the status table once. Thousands of runs are printed as plain lines, and notes have no row."""
    unique = list(dict.fromkeys(runs))
    snapshot = Snapshot()
    statuses = snapshot.get_statuses(unique)
    rows = tuple(_format_cells(run, status) for run, status in _select_shown(unique, statuses))
    notes = _list_notes(snapshot, unique, statuses)
    if not rows:
        for line in (format_state_counts(statuses), *notes):
            render_line(line)
    elif len(unique) > MAX_FOLDED_ROWS:
        render(View(format_state_counts(statuses), COLUMNS, rows, tuple(notes), align="lllrrrl"))
    else:
        make_console().print(_add_notes(make_status_table(unique, statuses), notes))


def _add_notes(table: Table, notes: Sequence[str]) -> Table:
    table.caption = "\n".join(notes) or None
    return table


def _select_shown(runs: Sequence[Run], statuses: Sequence[RunStatus]) -> list[tuple[Run, RunStatus]]:
    """Return the runs that need a row. Hundreds of runs that were never launched would hide the others."""
    return [(run, status) for run, status in zip(runs, statuses, strict=True) if not _is_untouched(status)]


def _is_untouched(status: RunStatus) -> bool:
    return status.state == "missing" and status.reason == NEVER_LAUNCHED


def _list_notes(snapshot: Snapshot, runs: Sequence[Run], statuses: Sequence[RunStatus]) -> list[str]:
    """Return the notes below the table: unbuilt stages that runs wait for, and the number of hidden runs."""
    notes = [f"stage {name}: {description}" for name, description in snapshot.list_unbuilt_stages(runs).items()]
    num_untouched = sum(map(_is_untouched, statuses))
    if num_untouched:
        notes.append(f"{num_untouched} never launched: `repro plan` lists them")
    return notes


def make_status_table(runs: Sequence[Run], statuses: Sequence[RunStatus]) -> Table:
    """Return the table: one row per launched run, with its progress if running, otherwise the reason.

    Empty columns are dropped to make room for the description of each run.
    """
    rows = [(_format_cells(run, status), status) for run, status in _select_shown(runs, statuses)]
    columns = [
        index for index in range(len(COLUMNS)) if index < NUM_FIXED_COLUMNS or any(cells[index] for cells, _ in rows)
    ]
    table = Table(*(COLUMNS[index] for index in columns), box=None, title=format_state_counts(statuses))
    for cells, status in rows:
        texts = [Text(cells[index]) for index in columns]
        texts[COLUMNS.index("state")].stylize(COLOURS.get(status.state, ""))
        table.add_row(*texts)
    return table


def _format_cells(run: Run, status: RunStatus) -> tuple[str, ...]:
    return status.id, format_overrides(run), status.state, *_format_progress(status), status.reason


def _format_progress(status: RunStatus) -> tuple[str, str, str]:
    progress = status.progress
    if progress is None:
        return "", "", ""
    total = f"/{progress.num_steps}" if progress.num_steps else ""
    speed = f"{progress.pairs_per_second:.0f}" if progress.pairs_per_second else ""
    return f"{progress.step}{total}", speed, format_seconds(progress.seconds_left)
