"""Processes that train one model together: who this one is, and how representations and gradients are brought together.

No wrapper around the model: after all backward passes of a step, gradients are all-reduced once as one flat vector, so
every chunk of either stage counts: their sum, over the batches of the step. Two modes (`repro.train.sharing`):
1. whole batches: each process has batches, contexts and losses of its own, as in the official scripts;
2. shared batches: each process computes its share of one batch, all of them the same loss over the gathered
   representations, whose other rows are constants, as one process would have it, but for what a stage drops at random.
   Each also computes the first stage of its share of the batch's context documents, forth and back; their vectors go to
   all, and the gradients at them are summed over all who read them.

Shapes: N rows of this process, W processes, C context vectors, D size of a vector.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn


def rank() -> int:
    """Return the number of this process, 0 when it is alone."""
    return dist.get_rank() if _together() else 0


def count_processes() -> int:
    """Return W, 1 when this process is alone."""
    return dist.get_world_size() if _together() else 1


def join_processes(device: torch.device) -> None:
    """Join the group that the environment describes; does nothing without one or a second time.

    `REPRO_RANKS_STORE` names where processes meet. Without it, the variables of `torchrun` do.
    """
    if int(os.environ.get("WORLD_SIZE", "1")) > 1 and not _together():
        backend = "nccl" if device.type == "cuda" else "gloo"
        place, rank, num = os.environ.get("REPRO_RANKS_STORE"), int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        if place:
            dist.init_process_group(backend, store=_open_store(place, rank, num), rank=rank, world_size=num)
        else:
            dist.init_process_group(backend)


def _open_store(place: str, rank: int, num: int) -> dist.Store:
    """Return the store at `file://PATH` or `tcp://ADDRESS:PORT`; rank 0 serves the latter, on that address alone."""
    kind, _, where = place.partition("://")
    if kind == "file":
        return dist.FileStore(where, num)
    address, _, port = where.rpartition(":")
    if rank > 0:
        return dist.TCPStore(address, int(port), num, is_master=False)
    # left to itself, torch would listen on every interface, and its store asks nobody who they are
    family = socket.getaddrinfo(address, None, type=socket.SOCK_STREAM)[0][0]
    listener = socket.create_server((address, int(port)), family=family)
    return dist.TCPStore(address, int(port), num, is_master=True, master_listen_fd=listener.detach())


def leave_processes() -> None:
    """Leave the group, as a process does before it ends; does nothing outside of one.

    Else gloo's threads may still let go of the last tensors when the interpreter is gone, and now and then abort it.
    """
    if _together():
        dist.destroy_process_group()


def gather_with_gradient(local_ND: Tensor) -> Tensor:
    """Return the rows of all processes in order of rank, (W × N, D); only this process's rows carry a graph."""
    if not _together():
        return local_ND
    parts = [torch.empty_like(local_ND) for _ in range(count_processes())]
    dist.all_gather(parts, local_ND.detach().contiguous())
    parts[rank()] = local_ND
    return torch.cat(parts)


def gather_documents(local_MD: Tensor, num_pairs: int) -> Tensor:
    """Do the same for [positives, hard negatives] of each process; return all positives, then all hard negatives."""
    parts_WMD = gather_with_gradient(local_MD).unflatten(0, (count_processes(), -1))
    return torch.cat([parts_WMD[:, :num_pairs].flatten(0, 1), parts_WMD[:, num_pairs:].flatten(0, 1)])


def share_of_contexts(places_C: np.ndarray) -> np.ndarray:
    """Return this process's share of places, ⌈C / W⌉ in order of rank; where C is no multiple, the last repeat some."""
    own = -(-len(places_C) // count_processes())
    return np.resize(places_C, own * count_processes())[rank() * own :][:own]


def gather_contexts(own_CD: Tensor) -> Tensor:
    """Return the rows of all processes in order of rank: all contexts, then repeats, which the second stage cuts off.

    Backward, in all processes at once, gives each the sum of what all of them were sent for its own rows.
    """
    if not _together():
        return own_CD
    every_CD: Tensor = _Gathered.apply(own_CD)
    return every_CD


class _Gathered(torch.autograd.Function):
    """The rows of all processes; torch has the same in `torch.distributed.nn`, deprecated there."""

    @staticmethod
    def forward(ctx: Any, own_CD: Tensor) -> Tensor:
        """Return the rows of all, in order of rank."""
        parts = [torch.empty_like(own_CD) for _ in range(count_processes())]
        dist.all_gather(parts, own_CD.contiguous())
        return torch.cat(parts)

    @staticmethod
    def backward(ctx: Any, gradient_CD: Tensor) -> Tensor:
        """Return the sum over processes of the gradients at this one's rows."""
        summed_CD = gradient_CD.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(summed_CD)
        return summed_CD.chunk(count_processes())[rank()]


@torch.no_grad()
def finish_gradients(parameters: Iterable[nn.Parameter], num_batches: int = 1) -> None:
    """Give every weight a gradient, zero where there was none: the sum over processes, over the batches of the step."""
    weights = [weight for weight in parameters if weight.requires_grad]
    for weight in weights:
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
    if not _together() and num_batches == 1:
        return
    flat = torch.cat([weight.grad.flatten() for weight in weights if weight.grad is not None])
    if _together():
        dist.all_reduce(flat)
    flat /= num_batches
    for weight, part in zip(weights, flat.split([weight.numel() for weight in weights]), strict=True):
        weight.grad = part.view_as(weight)


def mean_everywhere(values: Tensor) -> Tensor:
    """Return the mean of the processes' values."""
    if not _together():
        return values
    summed = values.clone()
    dist.all_reduce(summed)
    return summed / count_processes()


def same_everywhere(weights: Iterable[Tensor]) -> None:
    """Overwrite the weights of every process with those of rank 0."""
    if _together():
        for weight in weights:
            dist.broadcast(weight.detach(), 0)


def same_value_everywhere(what: str, value: str) -> None:
    """ValueError, in every process, when they do not all have the same value; it names the first that differs."""
    if not _together():
        return
    told: list[str] = [""] * count_processes()
    dist.all_gather_object(told, value)
    if differing := [number for number, other in enumerate(told) if other != told[0]]:
        raise ValueError(
            f"process {differing[0]} has another {what} than process 0 ({told[differing[0]]}, not {told[0]}): let all "
            "nodes share one REPRO_HOME"
        )


def any_process(flag: bool, device: torch.device) -> bool:
    """Return whether the flag is up in any process."""
    if not _together():
        return flag
    up = torch.tensor([int(flag)], device=device)
    dist.all_reduce(up, dist.ReduceOp.MAX)
    return bool(up.item())


def _together() -> bool:
    return dist.is_available() and dist.is_initialized()
