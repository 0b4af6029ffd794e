"""Group the jobs of a launch into Slurm submissions.

Each stage is one job, and its shards are an array that this job waits for. Runs that wait for the same stages share an
array, which comes after the runs that train for them. No array exceeds the cluster's maximum size. The arrays of shards
together respect the profile's `num_at_once`, and so do the arrays of runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

from repro.storage.shards import find_parent_stage
from slurm.sweep import Task


@dataclass(frozen=True)
class Batch:
    """One sbatch submission: tasks that wait for the same stages, and possibly for an earlier array."""

    name: str
    tasks: tuple[Task, ...]
    num_at_once: int
    # Name of an array that must end first, which limits the number of jobs running in parallel.
    after: str = ""

    @property
    def is_stage(self) -> bool:
        """Whether this batch builds a stage."""
        return self.tasks[0].item.kind == "stage"


def order_batches(tasks: Sequence[Task], *, max_array_size: int, num_at_once: int) -> list[Batch]:
    """Return the batches in submission order: first the stages, then the arrays of runs.

    All arrays together run at most `num_at_once` jobs. Each array gets an equal share. If there are more arrays than
    slots, or if runs depend on other runs, later arrays wait for earlier ones to end.
    """
    keys = _compute_sort_keys(tasks)
    runs = sorted((task for task in tasks if task.item.kind == "run"), key=lambda task: keys[task.name])
    groups = [tuple(group) for _, group in groupby(runs, key=lambda task: keys[task.name])]
    arrays = [array for group in groups for array in _split(group, max_array_size)]
    names = [f"runs {number} of {len(arrays)}" for number in range(1, len(arrays) + 1)]
    num_independent = sum(keys[array[0].name][0] == keys[runs[0].name][0] for array in arrays)
    run_batches = _share_slots(names, arrays, num_at_once, num_independent)
    return [*_list_stage_batches(tasks, max_array_size, num_at_once), *run_batches]


def _compute_sort_keys(tasks: Sequence[Task]) -> dict[str, tuple[int, list[str]]]:
    """Return the sort key of each task: its depth in the chain of runs it waits for, then the stages it needs."""
    depth: dict[str, int] = {}
    for task in tasks:
        depth[task.name] = max((depth.get(maker, 0) + 1 for maker in task.after), default=0)
    return {task.name: (depth[task.name], sorted(task.needs)) for task in tasks}


def _list_stage_batches(tasks: Sequence[Task], max_array_size: int, num_at_once: int) -> list[Batch]:
    """Return the batches of stages in order. The arrays of a stage's shards come before the stage."""
    stages = (task for task in tasks if task.item.kind == "stage")
    groups = [tuple(group) for _, group in groupby(stages, key=lambda task: find_parent_stage(task.name) or task.name)]
    names: list[str] = []
    arrays: list[tuple[Task, ...]] = []
    for group in groups:
        shard_arrays = _split([task for task in group if find_parent_stage(task.name)], max_array_size)
        arrays += shard_arrays
        for number, array in enumerate(shard_arrays, 1):
            names.append(f"shards {number} of {len(shard_arrays)} of {find_parent_stage(array[0].name)}")
    shards = _share_slots(names, arrays, num_at_once, len(arrays))
    batches: list[Batch] = []
    for group in groups:
        batches += [batch for batch in shards if batch.tasks[0] in group]
        batches += [Batch(task.name, (task,), 1) for task in group if not find_parent_stage(task.name)]
    return batches


def _split(tasks: Sequence[Task], size: int) -> list[tuple[Task, ...]]:
    return [tuple(tasks[start : start + size]) for start in range(0, len(tasks), size)]


def _share_slots(
    names: Sequence[str], arrays: Sequence[tuple[Task, ...]], num_at_once: int, num_independent: int
) -> list[Batch]:
    """Return array batches: the first ones share the slots, and each later one reuses the slots of an earlier one."""
    if sum(map(len, arrays)) <= num_at_once:
        return [Batch(name, array, len(array)) for name, array in zip(names, arrays, strict=True)]
    # Each lane is a chain of arrays that run one after another, so at most one array of a lane is active.
    lanes = max(1, min(num_independent, num_at_once))
    # The first array of each lane waits for none, each later one for the array before it in its lane.
    predecessors = [*[""] * lanes, *names]
    return [
        Batch(name, array, num_at_once // lanes, predecessor)
        for name, array, predecessor in zip(names, arrays, predecessors, strict=False)
    ]
