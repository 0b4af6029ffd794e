"""How far a run is, so that interruptions count against it only where it gets no further between them."""

from __future__ import annotations

from repro.planning.cost import list_training_phases
from repro.spec import Run
from repro.spec.identity import get_training_id
from repro.storage.paths import run_folder
from repro.train.steps_done import steps_done


def read_progress(run: Run) -> int:
    """Return the steps that the checkpoints of its trainings have; measuring starts over, so it adds none."""
    return sum(steps_done(run_folder(get_training_id(phase))) for phase in list_training_phases(run))
