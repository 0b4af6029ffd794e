"""Where a sweep stands, as a table for the terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from repro.identity import difference_in_words
from repro.report import format_seconds
from repro.spec import Run
from slurm.status import Sight, Standing, summary

COLOURS = {"recorded": "green", "running": "cyan", "failed": "red", "cancelled": "red", "interrupted": "yellow"}


def look_at(runs: Sequence[Run]) -> tuple[Table, bool]:
    """Gives where the runs and their stages stand at this moment, and whether anything still runs or waits."""
    sight, unique = Sight(), list(dict.fromkeys(runs))
    found = [sight.standing(run) for run in unique]
    table = table_of(unique, found)
    stages = sight.unbuilt_stages(unique)
    table.caption = "\n".join(f"stage {name}: {says}" for name, says in stages.items()) or None
    return table, any(standing.state == "running" or standing.live_on for standing in found)


def table_of(runs: Sequence[Run], found: Sequence[Standing]) -> Table:
    """Gives the table: a line a run, with progress for the running and the reason for the rest."""
    table = Table("run", "what", "state", "step", "pairs/s", "left", "reason", box=None, title=summary(found))
    for run, standing in zip(runs, found, strict=True):
        colour = COLOURS.get(standing.state, "default")
        state = f"[{colour}]{standing.state}[/{colour}]"
        table.add_row(standing.id, difference_in_words(run), state, *_progress(standing), standing.reason)
    return table


def _progress(standing: Standing) -> tuple[str, str, str]:
    progress = standing.progress
    if progress is None:
        return "", "", ""
    of = f"/{progress.num_steps}" if progress.num_steps else ""
    speed = f"{progress.pairs_per_second:.0f}" if progress.pairs_per_second else ""
    return f"{progress.step}{of}", speed, format_seconds(progress.seconds_left)
