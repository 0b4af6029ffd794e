"""Which jobs go to Slurm in one submission, and in what order, so that no more of them run at once than they may.

Every stage is a job of its own, and the shards of one are an array that it waits for. Runs that wait for the same
stages go together, behind those that make their trainings. Arrays are no larger than the cluster allows, and all arrays
of shards of a launch, and all arrays of runs, together run no more jobs at once than the profile says.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from repro.storage.shards import find_parent_stage
from slurm.sweep import Task


@dataclass(frozen=True)
class Batch:
    """What one sbatch submits: tasks that wait for the same stages and, of many arrays, for an earlier array."""

    name: str
    tasks: tuple[Task, ...]
    num_at_once: int
    after: str = ""  # the name of an array that must have ended before, so that not too many jobs run at once

    @property
    def is_stage(self) -> bool:
        """Whether it builds a stage."""
        return self.tasks[0].item.kind == "stage"


def order_batches(tasks: Sequence[Task], *, max_array_size: int, num_at_once: int) -> list[Batch]:
    """Return the batches in the order of submitting: a stage each, then the arrays of runs.

    All arrays together keep `num_at_once`: each gets an equal share, and when there are more arrays than that, or runs
    that come after others, the later arrays wait for earlier ones to end.
    """
    turns = _turns(tasks)
    runs = sorted((task for task in tasks if task.item.kind == "run"), key=lambda task: turns[task.name])
    groups = [tuple(group) for _, group in groupby(runs, key=lambda task: turns[task.name])]
    arrays = [part for group in groups for part in _cut(group, max_array_size)]
    names = [f"runs {number} of {len(arrays)}" for number in range(1, len(arrays) + 1)]
    num_first = sum(turns[array[0].name][0] == turns[runs[0].name][0] for array in arrays)
    throttled = _share_slots(names, arrays, num_at_once, num_first)
    return [*_list_stage_batches(tasks, max_array_size, num_at_once), *throttled]


def _turns(tasks: Sequence[Task]) -> dict[str, tuple[int, list[str]]]:
    """Return the place of each task: behind how many others, each after the one before, and then by its stages."""
    behind: dict[str, int] = {}
    for task in tasks:
        behind[task.name] = max((behind.get(maker, 0) + 1 for maker in task.after), default=0)
    return {task.name: (behind[task.name], sorted(task.needs)) for task in tasks}


def _list_stage_batches(tasks: Sequence[Task], max_array_size: int, num_at_once: int) -> list[Batch]:
    """Return the batches of stages in their order: the arrays of a stage's shards, then the stage."""
    stages = (task for task in tasks if task.item.kind == "stage")
    groups = [tuple(group) for _, group in groupby(stages, key=lambda task: find_parent_stage(task.name) or task.name)]
    names, arrays = [], []
    for group in groups:
        parts = _cut([task for task in group if find_parent_stage(task.name)], max_array_size)
        arrays += parts
        names += [
            f"shards {number} of {len(parts)} of {find_parent_stage(part[0].name)}"
            for number, part in enumerate(parts, 1)
        ]
    shards = _share_slots(names, arrays, num_at_once, len(arrays))
    found: list[Batch] = []
    for group in groups:
        found += [batch for batch in shards if batch.tasks[0] in group]
        found += [Batch(task.name, (task,), 1) for task in group if not find_parent_stage(task.name)]
    return found


def _cut(tasks: Sequence[Task], size: int) -> list[tuple[Task, ...]]:
    return [tuple(tasks[start : start + size]) for start in range(0, len(tasks), size)]


def _share_slots(
    names: Sequence[str], arrays: Sequence[tuple[Task, ...]], num_at_once: int, num_first: int
) -> list[Batch]:
    """Return arrays of which the first ones share the room there is, and each later one takes that of an earlier."""
    if sum(map(len, arrays)) <= num_at_once:
        return [Batch(name, array, len(array)) for name, array in zip(names, arrays, strict=True)]
    lanes = max(1, min(num_first, num_at_once))
    before = [*[""] * lanes, *names]
    all_told = zip(names, arrays, before, strict=False)
    return [Batch(name, array, num_at_once // lanes, after) for name, array, after in all_told]
