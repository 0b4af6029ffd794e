"""A linear layer by oneDNN where torch would call MKL: on processors that are not Intel's, twice as fast; else as fast.

Forward and both products of backward go through the same kernel. It serves float32 on a CPU; whatever else comes (other
types, GPUs, autocast, a torch without oneDNN) is left to `torch.nn.functional.linear`, of which it is equal to but for
rounding. oneDNN compiles and keeps a kernel for every number of rows it meets, megabytes each, and packed texts have
another number at every step: rows are filled up with zeros to a multiple of `STEP`; fewer than that are left to torch.
Callers with several layers in a row fill up once (`fill_rows`): each layer would keep a copy of its own until backward.

Shapes: T rows, R rows when filled up, I numbers in, O numbers out.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

STEP = 256


def linear(rows_TI: Tensor, layer: nn.Linear) -> Tensor:
    """Return what `layer` gives of rows, (T, O)."""
    weight_OI, is_cpu = layer.weight, rows_TI.device.type == "cpu"
    is_single = rows_TI.dtype == weight_OI.dtype == torch.float32
    if not (is_cpu and is_single and has_onednn() and len(rows_TI) >= STEP) or torch.is_autocast_enabled("cpu"):
        return layer(rows_TI)
    found_TO: Tensor = _OneDnnLinear.apply(rows_TI, weight_OI, layer.bias)
    return found_TO


@cache
def has_onednn() -> bool:
    """Return whether this torch has the kernel, which it keeps for its own compiler."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _product(rows_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    found_TO: Tensor = torch.ops.mkldnn._linear_pointwise(rows_TI, weight_OI, bias_O, "none", [], "")
    return found_TO


def fill_rows(rows_TI: Tensor) -> Tensor:
    """Return the rows, with zeros appended up to a multiple of `STEP`; fewer than that stay as they are."""
    missing = -len(rows_TI) % STEP if len(rows_TI) >= STEP else 0
    return nn.functional.pad(rows_TI, (0, 0, 0, missing)) if missing else rows_TI


class _OneDnnLinear(torch.autograd.Function):
    """Both directions of a linear layer through the kernel; gradients of gradients are not."""

    @staticmethod
    def forward(ctx: Any, rows_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        """Return rows by weights, (T, O)."""
        filled_RI = fill_rows(rows_TI)
        ctx.save_for_backward(filled_RI, weight_OI)
        return _product(filled_RI, weight_OI, bias_O)[: len(rows_TI)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of rows, weights and bias."""
        filled_RI, weight_OI = ctx.saved_tensors
        sent_TO = gradients[0].contiguous()  # that of a sum is one number, repeated by stride
        sent_RO, wanted = fill_rows(sent_TO), ctx.needs_input_grad
        return (
            _product(sent_RO, weight_OI.t())[: len(sent_TO)] if wanted[0] else None,
            _product(sent_RO.t(), filled_RI.t()) if wanted[1] else None,
            sent_TO.sum(0) if wanted[2] else None,
        )
