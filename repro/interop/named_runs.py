"""Runs that are named as models: lookup by id, and the message that is printed before a missing one is trained."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.records.lookup import ID_PREFIX, RECORDS, run_of_id
from repro.records.store import readable_record
from repro.spec import Run
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import run_folder
from repro.text import format_seconds


def find_named_run(source: str) -> Run | None:
    """Return the run with this id, or with an id that begins so. None if `source` has another form.

    Raises:
        ValueError: if no run has this id.
    """
    return None if Path(source).is_dir() or not ID_PREFIX.fullmatch(source) else run_of_id(source)


def check_run_is_contextual(source: str) -> None:
    """Raise ValueError if `source` is the id of a run without contexts. This avoids training it in vain."""
    run = find_named_run(source)
    if run is not None and run.architecture != "contextual":
        raise ValueError(
            f"run {source} has the architecture {run.architecture!r}, which takes no context: name a contextual model"
        )


def format_training_line(run: Run) -> str | None:
    """Return a line that announces the training of a run and its length, or None if the run is trained."""
    from repro.train.checkpoint import steps_done

    metadata = _find_training_record(run)
    num_steps, seconds = (metadata or {}).get("num_steps", run.num_steps), (metadata or {}).get("seconds")
    num_done = steps_done(run_folder(get_training_id(run)))
    where = "not published" if metadata is not None else "not here"
    if num_steps is None:
        # the length is declared in epochs, and no record has counted their steps
        return f"run {run_id(run)}: its weights are {where}; training it for {run.num_epochs} epochs"
    if num_done >= num_steps:
        return None
    first = f"run {run_id(run)}: its weights are {where}; training {num_steps} steps"
    first += f", of which {num_done} are done" if num_done else ""
    if seconds is None:
        return first
    left = format_seconds(seconds * (1 - num_done / num_steps))
    more = " (and its first phase)" if "first_phase" in (metadata or {}) else ""
    return f"{first}, about {left} where it was recorded{more}"


def _find_training_record(run: Run) -> dict[str, Any] | None:
    paths = [folder() / f"{run_id(run)}.json" for folder in RECORDS]
    found = next((readable_record(path) for path in paths if path.is_file()), None)
    return None if found is None else dict(found.provenance.get("training") or {})
