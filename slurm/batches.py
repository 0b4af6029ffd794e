"""Group the jobs of a launch into Slurm submissions.

Each stage is one job, and its shards are an array that this job waits for. Runs that wait for the same stages share an
array, which comes after the runs that train for them. No array exceeds the cluster's maximum size. The arrays of shards
together respect the profile's `num_at_once`, and so do the arrays of runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    """Return the batches in submission order: first the stages, each after its shards, then the arrays of runs."""
    depth: dict[str, int] = {}  # of a run in the chain of runs that wait for each other
    stages: list[Batch] = []
    shards: dict[str, list[Task]] = {}  # by the name of the whole stage
    runs: dict[tuple[int, tuple[str, ...]], list[Task]] = {}  # by depth and needed stages
    for task in tasks:
        if task.item.kind == "run":
            depth[task.name] = max((depth.get(maker, 0) + 1 for maker in task.after), default=0)
            runs.setdefault((depth[task.name], tuple(sorted(task.needs))), []).append(task)
        elif parent := find_parent_stage(task.name):
            shards.setdefault(parent, []).append(task)
        else:
            stages.append(Batch(task.name, (task,), 1))
    stages += _make_arrays("shards", list(shards.values()), depth, max_array_size, num_at_once)
    position = {task.name: index for index, task in enumerate(tasks)}
    stages.sort(key=lambda batch: position[batch.tasks[0].name])
    return stages + _make_arrays("runs", [runs[key] for key in sorted(runs)], depth, max_array_size, num_at_once)


def _make_arrays(
    kind: str, groups: Sequence[Sequence[Task]], depth: Mapping[str, int], size: int, num_at_once: int
) -> list[Batch]:
    """Return arrays of at most `size` tasks that together run at most `num_at_once` jobs.

    Each array gets an equal share. If there are more arrays than slots, or if runs depend on other runs, later arrays wait
    for earlier ones to end.
    """
    arrays = [tuple(group[start : start + size]) for group in groups for start in range(0, len(group), size)]
    names = [f"{kind} {number} of {len(arrays)}" for number in range(1, len(arrays) + 1)]
    if sum(map(len, arrays)) <= num_at_once:
        return [Batch(name, array, len(array)) for name, array in zip(names, arrays, strict=True)]
    levels = [depth.get(array[0].name, 0) for array in arrays]
    # Each lane is a chain of arrays that run one after another, so at most one array of a lane is active.
    lanes = min(levels.count(levels[0]), num_at_once)
    # The first array of each lane waits for none, each later one for the array before it in its lane.
    predecessors = [*[""] * lanes, *names]
    return [
        Batch(name, array, num_at_once // lanes, predecessor)
        for name, array, predecessor in zip(names, arrays, predecessors, strict=False)
    ]
