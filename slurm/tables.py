"""Show the status of a sweep as a table in the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table
from rich.text import Text

from repro.report.formats import make_console
from repro.spec import Run
from repro.spec.identity import format_overrides
from repro.text import format_seconds, make_printable
from slurm.status import NEVER_LAUNCHED, RunStatus, Snapshot, format_state_counts

COLUMNS = ("run", "what", "state", "steps", "score", "left", "reason")
NUM_FIXED_COLUMNS = 3
COLOURS = {"recorded": "green", "running": "cyan", "failed": "red", "unreadable": "red"}


def show_status(runs: Sequence[Run]) -> None:
    """Print the status of the runs and of their unbuilt stages."""
    snapshot = Snapshot()
    statuses = {run: snapshot.get_status(run) for run in dict.fromkeys(runs)}
    stages = snapshot.list_unbuilt_stages(statuses.values())
    notes = [f"stage {name}: {description}" for name, description in stages.items()]
    if num_untouched := sum(map(_is_untouched, statuses.values())):
        notes.append(f"{num_untouched} never launched: `repro plan` lists them")
    make_console().print(make_status_table(statuses, notes))


def make_status_table(statuses: Mapping[Run, RunStatus], notes: Sequence[str] = ()) -> Table:
    """Return the table: one row per launched run. Empty columns are dropped to make room for descriptions.

    Hundreds of runs that were never launched would hide the others, so they are only counted in the notes.
    """
    rows = [_format_row(run, status) for run, status in statuses.items() if not _is_untouched(status)]
    columns = [index for index in range(len(COLUMNS)) if index < NUM_FIXED_COLUMNS or any(row[index] for row in rows)]
    title = format_state_counts(statuses.values())
    table = Table(box=None, title=title, caption=Text(make_printable("\n".join(notes))) if notes else None)
    for index in columns:
        table.add_column(COLUMNS[index], justify="right" if COLUMNS[index] in ("steps", "score", "left") else "left")
    for row in rows:
        table.add_row(*(Text(row[index], style=COLOURS.get(row[index], "")) for index in columns))
    return table


def _is_untouched(status: RunStatus) -> bool:
    return status.state == "missing" and status.reason == NEVER_LAUNCHED


def _format_row(run: Run, status: RunStatus) -> tuple[str, ...]:
    """Return the cells of a run. The score is NDCG@10 in points once it is recorded, and a loss while it trains."""
    steps, left = "", ""
    score = "" if status.score is None else f"{100 * status.score:.1f}"
    if progress := status.progress:
        steps = f"{progress.step}/{progress.num_steps}" if progress.num_steps else str(progress.step)
        score = "" if progress.loss is None else f"loss {progress.loss:.3f}"
        left = format_seconds(progress.seconds_left)
    reason = make_printable(status.reason)
    return status.id, format_overrides(run), status.state, steps, score, left, reason
