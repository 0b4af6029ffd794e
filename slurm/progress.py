"""How far a run is, so that interruptions count against it only where it gets no further between them."""

from __future__ import annotations

from repro.planning.cost import phases_of
from repro.spec import Run
from repro.spec.identity import training_id
from repro.storage.paths import run_folder
from repro.train.steps_done import steps_done


def progress_of(run: Run) -> int:
    """Return the steps that the checkpoints of its trainings have; measuring starts over, so it adds none."""
    return sum(steps_done(run_folder(training_id(phase))) for phase in phases_of(run))
