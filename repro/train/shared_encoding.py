"""Encode the texts of an evaluation on all processes of a training run, while rank 0 searches, scores and writes.

Rank 0 runs the whole analysis. Each of its calls of `encode_under` is sent to the other ranks, which wait for it. Every
rank encodes each W-th batch of the call, so the batches and therefore the vectors are those of one process.

Shapes: N texts, D vector size, W processes.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch.distributed as dist
from torch import Tensor

from repro.data.tokens import Tokens
from repro.model.contextual import Model
from repro.model.encoding import evaluation_mode
from repro.train.parallel import broadcast_weights, count_processes, rank

BATCHES_PER_ROUND = 16
"""Batches of a rank after which their vectors go to rank 0, which limits the memory of an exchange."""
TIMEOUT = timedelta(days=7)
"""The other ranks wait while rank 0 searches and scores."""


@contextmanager
def share_encoding(model: Model) -> Iterator[None]:
    """Let all ranks encode for the block, which only rank 0 executes. The others return from it with rank 0.

    Rank 0 must not change the weights. If it stops while it encodes, the others notice that it left, because they wait for
    its vectors and not for a next call. Without other ranks, do nothing.
    """
    if count_processes() == 1:
        yield
        return
    group = _make_group(model)
    is_encoding = False

    def encode_under(tokens: Tokens, context_CE: Tensor | None, batch_size: int | None = None) -> np.ndarray:
        nonlocal is_encoding
        is_encoding = True
        on_cpu = None if context_CE is None else context_CE.cpu()
        call = (np.asarray(tokens.ids), np.asarray(tokens.offsets), on_cpu, batch_size)
        dist.broadcast_object_list([call], src=0, group=group)
        vectors_ND = _encode_together(model, call, group)
        is_encoding = False
        return vectors_ND

    model.encode_under = encode_under  # type: ignore[method-assign]
    try:
        yield
    finally:
        del model.encode_under
        if not is_encoding:
            dist.broadcast_object_list([None], src=0, group=group)


def serve_encoding(model: Model) -> None:
    """Encode the batches of this rank until rank 0 leaves `share_encoding`."""
    if count_processes() == 1:
        return
    group = _make_group(model)
    while True:
        received: list[Any] = [None]
        dist.broadcast_object_list(received, src=0, group=group)
        if received[0] is None:
            return
        _encode_together(model, received[0], group)


def _make_group(model: Model) -> Any:
    """Return the group of all ranks, which have the weights of rank 0 from now on."""
    broadcast_weights(model.parameters())
    # gloo exchanges objects without memory of a GPU
    return dist.new_group(backend="gloo", timeout=TIMEOUT)


def _encode_together(model: Model, call: tuple[Any, ...], group: Any) -> np.ndarray:
    """Return the vectors of a call, float32 (N, D). They are empty in all ranks but the first."""
    ids, offsets, on_cpu, batch_size = call
    tokens = Tokens(ids, offsets)
    context_CE = None if on_cpu is None else on_cpu.to(model.device)
    batches = list(model.iter_batches(tokens, batch_size))
    vectors_ND = np.empty((len(tokens) if rank() == 0 else 0, model.config.hidden_size), dtype=np.float32)
    num_done = 0
    with evaluation_mode(model):
        for start in range(0, len(batches), BATCHES_PER_ROUND * count_processes()):
            own = batches[start : start + BATCHES_PER_ROUND * count_processes()][rank() :: count_processes()]
            encoded = [(rows, model.encode_batch(tokens, rows, context_CE)) for rows in own]
            gathered: list[Any] | None = [None] * count_processes() if rank() == 0 else None
            dist.gather_object(encoded, gathered, dst=0, group=group)
            for rows, vectors_nD in (part for parts in gathered or () for part in parts):
                vectors_ND[rows] = vectors_nD
                num_done += len(rows)
            if rank() == 0:
                model.report(num_done, len(tokens))
    return vectors_ND
