"""Divide the batches of a step among processes. This module does not import torch.

A step has G batches, `Run.batches_a_step`. Each batch has its own negatives, contexts, mask and loss, and the gradient
is the mean over batches. If G is a multiple of W, each process computes G / W whole batches, as in the official
scripts. Otherwise all processes share every batch. The division changes only rounding and, for shared batches, random
drops inside a stage.

Shapes: B pairs per batch, G batches per step, W processes.
"""

from __future__ import annotations

from repro.spec import TRAINED, Run, get_first_phase


def batches_are_sharded(batches_a_step: int, num_processes: int) -> bool:
    """Return whether all processes share each batch. Otherwise each process has G / W whole batches."""
    return batches_a_step % num_processes > 0


def list_own_places(batches_a_step: int, *, rank: int, num_processes: int) -> range:
    """Return the positions in the step of the batches that a process computes, whole or shared."""
    if batches_are_sharded(batches_a_step, num_processes):
        return range(batches_a_step)
    num_own = batches_a_step // num_processes
    return range(rank * num_own, (rank + 1) * num_own)


def explain_indivisible(run: Run, num_processes: int) -> str:
    """Return an error message if `num_processes` cannot train the run or its first phase, else an empty string."""
    if run.architecture not in TRAINED:
        return ""
    if run.measure == "steps" and num_processes > 1:
        return f"measure='steps' evaluates during training and needs one process, not {num_processes}"
    size, batches_a_step = run.batch_size, run.batches_a_step
    if not batches_are_sharded(batches_a_step, num_processes) or size % num_processes == 0:
        first_phase = get_first_phase(run)
        return explain_indivisible(first_phase, num_processes) if first_phase else ""
    return (
        f"a batch of {size} cannot be shared equally by {num_processes} processes (nor can "
        f"batches_a_step={batches_a_step} be distributed whole). The number of processes must divide {size} or {batches_a_step}"
    )
