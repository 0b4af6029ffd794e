"""How far a run is, so that interruptions count against it only where it gets no further between them."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import SafetensorError, safe_open

from repro.planning.cost import phases_of
from repro.spec import Run
from repro.spec.identity import training_id
from repro.storage.paths import run_folder

CHECKPOINT_FILE = "checkpoint.safetensors"


def progress_of(run: Run) -> int:
    """Return the steps that the checkpoints of its trainings have; measuring starts over, so it adds none."""
    return sum(_steps_in(run_folder(training_id(phase)) / CHECKPOINT_FILE) for phase in phases_of(run))


def _steps_in(path: Path) -> int:
    """Return the steps a checkpoint says are done; 0 where there is none, or where it is damaged."""
    try:
        with safe_open(path, "np") as file:
            return int(json.loads((file.metadata() or {})["state"])["step"])
    except (OSError, SafetensorError, KeyError, TypeError, ValueError):
        return 0
