"""A run that is named as a model: found by its id, and what is said before opening it starts a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.records.lookup import BEGINS_AN_ID, RECORDS, run_of_id
from repro.records.store import readable_record
from repro.report.view import format_seconds
from repro.spec import Run
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import run_folder


def run_named(source: str) -> Run | None:
    """Return the run whose id `source` is or begins, None for any other word; ValueError for an id nobody knows."""
    return None if Path(source).is_dir() or not BEGINS_AN_ID.fullmatch(source) else run_of_id(source)


def check_run_is_contextual(source: str) -> None:
    """ValueError when `source` names a run whose model takes no context: said before it would be trained."""
    run = run_named(source)
    if run is not None and run.architecture != "contextual":
        raise ValueError(
            f"run {source} is of {run.architecture!r}, which has no context, so no context moves its words: name a "
            "contextual model"
        )


def format_training_line(run: Run) -> str | None:
    """Return one line for whoever is about to wait for a run's training; None where it has ended here."""
    from repro.train.checkpoint import steps_done

    told = _find_recorded_training(run)
    num_steps, seconds = (told or {}).get("num_steps", run.num_steps), (told or {}).get("seconds")
    num_done = steps_done(run_folder(get_training_id(run)))
    where = "not published" if told is not None else "not here"
    if num_steps is None:  # so many epochs, and no record that counted their steps
        return f"run {run_id(run)}: its weights are {where}; training it for {run.num_epochs} epochs"
    if num_done >= num_steps:
        return None
    first = f"run {run_id(run)}: its weights are {where}; training {num_steps} steps"
    first += f", of which {num_done} are done" if num_done else ""
    if seconds is None:
        return first
    left = format_seconds(seconds * (1 - num_done / num_steps))
    more = " (and its first phase)" if "first_phase" in (told or {}) else ""
    return f"{first}, about {left} where it was recorded{more}"


def _find_recorded_training(run: Run) -> dict[str, Any] | None:
    paths = [folder() / f"{run_id(run)}.json" for folder in RECORDS]
    found = next((readable_record(path) for path in paths if path.is_file()), None)
    return None if found is None else dict(found.provenance.get("training") or {})
