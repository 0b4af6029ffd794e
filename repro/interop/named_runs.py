"""Runs that are named as models: lookup by id, and the message that is printed before a missing one is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.records.lookup import ID_PREFIX, RECORDS, find_run_by_id
from repro.records.store import try_read_record
from repro.spec import Run
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import run_folder
from repro.text import format_seconds


def find_named_run(source: str) -> Run | None:
    """Return the run with this id, or with an id that begins so. None if `source` has another form.

    Raises:
        ValueError: if no run has this id.
    """
    if Path(source).is_dir() or not ID_PREFIX.fullmatch(source):
        return None
    return find_run_by_id(source)


def format_training_line(run: Run) -> str | None:
    """Return a line that announces the training of a run and its length, or None if the run is trained."""
    from repro.train.checkpoint import read_checkpoint_step

    training = _find_training_record(run)
    status = "not here" if training is None else "not published"
    training = training or {}
    num_steps, seconds = training.get("num_steps", run.num_steps), training.get("seconds")
    num_done = read_checkpoint_step(run_folder(get_training_id(run)))
    line = f"run {run_id(run)}: its weights are {status}; training"
    if num_steps is None:
        # the length is declared in epochs, and no record has counted their steps
        return f"{line} it for {run.num_epochs} epochs"
    if num_done >= num_steps:
        return None
    line += f" {num_steps} steps"
    if num_done:
        line += f", of which {num_done} are done"
    if seconds is not None:
        line += f", about {format_seconds(seconds * (1 - num_done / num_steps))} where it was recorded"
        if "first_phase" in training and not num_done:
            line += " (and its first phase)"
    return line


def _find_training_record(run: Run) -> dict[str, Any] | None:
    """Return the provenance of a recorded training run, or None if there is no record."""
    paths = [folder() / f"{run_id(run)}.json" for folder in RECORDS]
    record = next((try_read_record(path) for path in paths if path.is_file()), None)
    return None if record is None else dict(record.provenance.get("training") or {})
