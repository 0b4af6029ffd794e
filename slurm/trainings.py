"""Trainings that several runs need: one run makes each, and the others neither start nor take room until it has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from repro.planning.cost import list_training_phases
from repro.spec import TRAINED, Run
from repro.spec.identity import get_training_id, run_id
from repro.storage.lease import owners
from repro.storage.paths import run_folder
from repro.train.steps_done import CHECKPOINT_FILE


def missing_trainings(run: Run) -> tuple[str, ...]:
    """Return the ids of the trainings that a run needs and that have not ended here: its own, then its first phase."""
    needed = [get_training_id(phase) for phase in list_training_phases(run) if phase.architecture in TRAINED]
    return tuple(training for training in needed if not _has_ended(training))


def _has_ended(training: str) -> bool:
    """Return whether an owner has left it whole: of epochs, nothing else tells how many steps there are to do."""
    folder = run_folder(training)
    return (folder / CHECKPOINT_FILE).is_file() and any(owner.outcome == "" for owner in owners(folder / "training"))


def map_training_owners(runs: Iterable[Run], at_work: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return, by the id of each run, the ids of those that make a training for it: the first that needs it does.

    `at_work`: training → a run that is in a queue already, and will make it.
    """
    makers, found = dict(at_work), dict[str, tuple[str, ...]]()
    for run in runs:
        missing = missing_trainings(run)
        found[run_id(run)] = tuple(dict.fromkeys(makers[training] for training in missing if training in makers))
        makers = dict.fromkeys(missing, run_id(run)) | makers
    return found
