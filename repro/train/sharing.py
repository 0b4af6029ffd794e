"""Who computes what of a step: each process some whole batches where that comes out even, else a share of every one.

A step has G batches, `Run.batches_a_step`, each with negatives, contexts, filter and loss of its own; its gradient is
their mean. The official scripts give each GPU such a batch. Which process computes which changes no number but for
rounding and, where batches are shared, for what stages draw at random. Nothing here needs torch.

Shapes: B pairs of a batch, G batches a step, W processes.
"""

from __future__ import annotations

from repro.spec import Run


def batches_are_sharded(batches_a_step: int, num_processes: int) -> bool:
    """Return whether all processes share each of a step's batches in turn; else each has G / W whole ones."""
    return batches_a_step % num_processes > 0


def own_places(batches_a_step: int, *, rank: int, num_processes: int) -> range:
    """Return the places in the step of the batches that a process computes, whole or in part."""
    if batches_are_sharded(batches_a_step, num_processes):
        return range(batches_a_step)
    own = batches_a_step // num_processes
    return range(rank * own, (rank + 1) * own)


def explain_indivisible(run: Run, num_processes: int) -> str:
    """Return why so many processes cannot train a run, and how many can; nothing when they can."""
    size, batches = run.batch_size, run.batches_a_step
    if not batches_are_sharded(batches, num_processes) or size % num_processes == 0:
        return ""
    return (
        f"a batch of {size} cannot be shared equally by {num_processes} processes (nor batches_a_step={batches} be "
        f"dealt out whole): their number must divide {size}" + (f" or {batches}" if batches > 1 else "")
    )
