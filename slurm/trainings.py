"""Coordinate training runs that several runs need. One run executes each, and the others wait without using a slot."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from repro.planning.cost import list_training_phases
from repro.spec import TRAINED, Run
from repro.spec.identity import get_training_id, run_id
from repro.storage.lease import list_owners
from repro.storage.paths import run_folder
from repro.train.checkpoint import CHECKPOINT_FILE, read_checkpoint_step


def list_missing_trainings(run: Run) -> tuple[str, ...]:
    """Return the ids of a run's training runs that have not ended here: its own, then its first phase."""
    needed = [get_training_id(phase) for phase in list_training_phases(run) if phase.architecture in TRAINED]
    return tuple(training for training in needed if not _has_ended(training))


def _has_ended(training: str) -> bool:
    """Return whether its owner finished it. With epochs, only the owner knows the total number of steps."""
    folder = run_folder(training)
    return (folder / CHECKPOINT_FILE).is_file() and any(
        owner.outcome == "" for owner in list_owners(folder / "training")
    )


def map_training_owners(runs: Iterable[Run], queued_owners: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Map each run id to the ids of the runs that execute a training run for it. The first that needs it executes it.

    `queued_owners` maps a training id to a queued run that will execute it.
    """
    owner_of = dict(queued_owners)
    owners_by_run: dict[str, tuple[str, ...]] = {}
    for run in runs:
        missing = list_missing_trainings(run)
        owners_by_run[run_id(run)] = tuple(
            dict.fromkeys(owner_of[training] for training in missing if training in owner_of)
        )
        # Earlier owners take precedence.
        owner_of = dict.fromkeys(missing, run_id(run)) | owner_of
    return owners_by_run


def read_progress(run: Run) -> int:
    """Return the number of checkpointed steps of its training runs.

    Measuring starts over, so it adds none. Interruptions count against a run only if it makes no progress between them.
    """
    return sum(read_checkpoint_step(run_folder(get_training_id(phase))) for phase in list_training_phases(run))
