"""Train one model with several processes: exchange representations and gradients.

The model has no wrapper. After all backward passes of a step, the gradients are all-reduced once as one flat vector.
All chunks of both stages are included. The result is the sum over processes divided by the number of batches of the
step. There are two modes (`repro.train.performance`):
1. Whole batches: each process has its own batches, contexts and losses, as in the official scripts.
2. Shared batches: each process computes its share of one batch, and all compute the same loss over the gathered
   representations. Rows of other processes are constants. The result equals that of one process, except for random
   drops. Each process also runs the first stage, forward and backward, on its share of the context documents. The
   vectors are gathered by all processes, and their gradients are summed over all processes.

Shapes: N rows of this process, W processes, C context vectors, D vector size.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

TIMEOUT = timedelta(hours=2)
"""The ranks check the digests of large stages before they join, each at its own speed. The job ends ranks that wait for a
failed one."""


def rank() -> int:
    """Return the rank of this process, 0 if it is alone."""
    return dist.get_rank() if _is_distributed() else 0


def count_processes() -> int:
    """Return the number of processes W, 1 if this process is alone."""
    return dist.get_world_size() if _is_distributed() else 1


def join_processes(device: torch.device) -> None:
    """Join the process group that the environment describes. Without one, or on a second call, do nothing.

    The queue starts the processes and names the rendezvous in `REPRO_RANKS_STORE` (see `slurm/ranks.py`).
    """
    url = os.environ.get("REPRO_RANKS_STORE")
    if url and not _is_distributed():
        rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = _open_store(url, rank, world_size)
        backend = "nccl" if device.type == "cuda" else "gloo"
        # Ranks also prepare their first batch, a tour over all clusters, at their own speed.
        dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=TIMEOUT)


def _open_store(url: str, rank: int, world_size: int) -> dist.Store:
    """Return the store at `file://PATH` or `tcp://ADDRESS:PORT`. Rank 0 serves a TCP store on that address only."""
    scheme, _, location = url.partition("://")
    if scheme == "file":
        store = dist.FileStore(location, world_size)
        store.set_timeout(TIMEOUT)
        return store
    address, _, port = location.rpartition(":")
    if rank > 0:
        return dist.TCPStore(address, int(port), world_size, is_master=False, timeout=TIMEOUT)
    # By default torch listens on every interface, and its store has no authentication.
    family = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server((address, int(port)), family=family)
    return dist.TCPStore(
        address, int(port), world_size, is_master=True, master_listen_fd=listener.detach(), timeout=TIMEOUT
    )


def leave_processes() -> None:
    """Leave the process group before the process ends. Without a group, do nothing.

    Otherwise gloo's threads may release tensors after the interpreter has shut down, which sometimes aborts the
    process.
    """
    if _is_distributed():
        dist.destroy_process_group()


def gather_with_gradient(local_ND: Tensor) -> Tensor:
    """Return the rows of all processes in order of rank, (W × N, D). Only this process's rows have a graph."""
    if not _is_distributed():
        return local_ND
    parts = [torch.empty_like(local_ND) for _ in range(count_processes())]
    dist.all_gather(parts, local_ND.detach().contiguous())
    # only this process's rows have a graph, so no gradient is counted twice in the sum over processes
    parts[rank()] = local_ND
    return torch.cat(parts)


def gather_documents(local_MD: Tensor, num_pairs: int) -> Tensor:
    """Gather [positives, hard negatives] of each process. Return all positives, then all hard negatives."""
    parts_WMD = gather_with_gradient(local_MD).unflatten(0, (count_processes(), -1))
    return torch.cat([parts_WMD[:, :num_pairs].flatten(0, 1), parts_WMD[:, num_pairs:].flatten(0, 1)])


def select_own_contexts(positions_C: np.ndarray) -> np.ndarray:
    """Return this process's share of positions, ⌈C / W⌉ in order of rank. If C is not a multiple of W, the last shares
    contain repeats.
    """
    # Shares must be equally long, because `all_gather` needs tensors of one shape. The double minus rounds up.
    share_size = -(-len(positions_C) // count_processes())
    return np.resize(positions_C, share_size * count_processes())[rank() * share_size :][:share_size]


def gather_contexts(own_CD: Tensor) -> Tensor:
    """Return the context vectors of all processes in order of rank. Repeats come last, and the second stage cuts them
    off.

    Backward must run in all processes together. It returns the sum of all processes' gradients with respect to the own
    rows.
    """
    if not _is_distributed():
        return own_CD
    gathered_CD: Tensor = _Gathered.apply(own_CD)
    return gathered_CD


class _Gathered(torch.autograd.Function):
    """Differentiable all-gather. The version in `torch.distributed.nn` is deprecated."""

    @staticmethod
    def forward(ctx: Any, own_CD: Tensor) -> Tensor:
        """Return the rows of all processes in order of rank."""
        parts = [torch.empty_like(own_CD) for _ in range(count_processes())]
        dist.all_gather(parts, own_CD.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient_CD: Tensor) -> Tensor:
        """Return the gradient of this process's rows, summed over processes."""
        # Every process used all context vectors, so each holds a part of the gradient of every row.
        summed_CD = gradient_CD.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed_CD)
        return summed_CD.chunk(count_processes())[rank()]


@torch.no_grad()
def reduce_gradients(parameters: Iterable[nn.Parameter], num_batches: int = 1) -> None:
    """Sum the gradients over processes and divide by the number of batches. Weights without a gradient get zeros."""
    weights = [weight for weight in parameters if weight.requires_grad]
    # All processes must reduce vectors of the same length.
    gradients = [torch.zeros_like(weight) if weight.grad is None else weight.grad for weight in weights]
    for weight, gradient in zip(weights, gradients, strict=True):
        weight.grad = gradient
    if not _is_distributed() and num_batches == 1:
        return
    # One flat vector needs one all-reduce.
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    if _is_distributed():
        dist.all_reduce(flat)
    flat /= num_batches
    for weight, part in zip(weights, flat.split([weight.numel() for weight in weights]), strict=True):
        weight.grad = part.view_as(weight)


def average_over_processes(values: Tensor) -> Tensor:
    """Return the mean of a tensor over processes."""
    if not _is_distributed():
        return values
    summed = values.clone()
    dist.all_reduce(summed)
    return summed / count_processes()


def broadcast_weights(weights: Iterable[Tensor]) -> None:
    """Broadcast the weights of rank 0 to all processes."""
    if _is_distributed():
        for weight in weights:
            dist.broadcast(weight.detach(), 0)


def check_same_value(name: str, value: str) -> None:
    """Raise ValueError in every process if the processes have different values. The message names the first that
    differs.
    """
    if not _is_distributed():
        return
    values: list[str] = [""] * count_processes()
    dist.all_gather_object(values, value)
    if differing := [process for process, other in enumerate(values) if other != values[0]]:
        raise ValueError(f"process {differing[0]} has another {name} than process 0: share one REPRO_HOME")


def any_process(flag: bool, device: torch.device) -> bool:
    """Return whether the flag is set in any process."""
    if not _is_distributed():
        return flag
    # NCCL reduces only tensors on the GPU.
    maximum = torch.tensor([int(flag)], device=device)
    dist.all_reduce(maximum, dist.ReduceOp.MAX)
    return bool(maximum.item())


def _is_distributed() -> bool:
    """Return whether this process belongs to a process group."""
    return dist.is_available() and dist.is_initialized()
