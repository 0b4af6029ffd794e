"""Show the status of a sweep as a table in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from repro.report.formats import MAX_FOLDED_ROWS, make_console, render, render_line
from repro.report.view import View
from repro.spec import Run
from repro.spec.identity import format_overrides
from repro.text import format_seconds, make_printable
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
    statuses, notes = _read_statuses(runs)
    is_active = any(status.state == "running" or status.live_on for status in statuses.values())
    return make_status_table(statuses, notes), is_active


def show_status(runs: Sequence[Run]) -> None:
    """Print the status table once. Thousands of runs are printed as plain lines, and notes have no row."""
    statuses, notes = _read_statuses(runs)
    rows = _format_rows(statuses)
    counts = format_state_counts(statuses.values())
    if not rows:
        for line in (counts, *notes):
            render_line(line)
    elif len(statuses) > MAX_FOLDED_ROWS:
        render(View(counts, COLUMNS, tuple(rows), tuple(notes), align="lllrrrl"))
    else:
        make_console().print(make_status_table(statuses, notes))


def _read_statuses(runs: Sequence[Run]) -> tuple[dict[Run, RunStatus], list[str]]:
    """Return the status of each run, and notes: unbuilt stages that runs wait for, and the number of hidden runs."""
    snapshot = Snapshot()
    unique = list(dict.fromkeys(runs))
    statuses = dict(zip(unique, snapshot.get_statuses(unique), strict=True))
    notes = [
        f"stage {name}: {description}" for name, description in snapshot.list_unbuilt_stages(statuses.values()).items()
    ]
    num_untouched = sum(map(_is_untouched, statuses.values()))
    if num_untouched:
        notes.append(f"{num_untouched} never launched: `repro plan` lists them")
    return statuses, notes


def make_status_table(statuses: Mapping[Run, RunStatus], notes: Sequence[str] = ()) -> Table:
    """Return the table: one row per launched run, with its progress if running, otherwise the reason.

    Empty columns are dropped to make room for the description of each run.
    """
    rows = _format_rows(statuses)
    columns = [index for index in range(len(COLUMNS)) if index < NUM_FIXED_COLUMNS or any(row[index] for row in rows)]
    headers = [COLUMNS[index] for index in columns]
    title = format_state_counts(statuses.values())
    table = Table(*headers, box=None, title=title, caption=Text(make_printable("\n".join(notes))) if notes else None)
    for row in rows:
        texts = [Text(row[index]) for index in columns]
        state = texts[COLUMNS.index("state")]
        state.stylize(COLOURS.get(state.plain, ""))
        table.add_row(*texts)
    return table


def _is_untouched(status: RunStatus) -> bool:
    return status.state == "missing" and status.reason == NEVER_LAUNCHED


def _format_rows(statuses: Mapping[Run, RunStatus]) -> list[tuple[str, ...]]:
    """Return the cells of each launched run. Hundreds of runs that were never launched would hide the others."""
    return [
        (status.id, format_overrides(run), status.state, *_format_progress(status), make_printable(status.reason))
        for run, status in statuses.items()
        if not _is_untouched(status)
    ]


def _format_progress(status: RunStatus) -> tuple[str, str, str]:
    progress = status.progress
    if progress is None:
        return "", "", ""
    total = f"/{progress.num_steps}" if progress.num_steps else ""
    speed = f"{progress.pairs_per_second:.0f}" if progress.pairs_per_second else ""
    return f"{progress.step}{total}", speed, format_seconds(progress.seconds_left)
