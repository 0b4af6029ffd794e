"""Apply linear layers with oneDNN instead of MKL. On processors other than Intel's this is twice as fast, else as fast.

Forward and both products of backward use the same kernel. It supports float32 on a CPU. Everything else (other types,
GPUs, autocast, torch without oneDNN) uses `torch.nn.functional.linear`. The results are equal up to rounding.

oneDNN compiles and caches a kernel for every number of rows, megabytes each. Packed texts have another number at every
step, so rows are filled with zeros to a multiple of `STEP`. Fewer rows than `STEP` are left to torch. Callers with
several layers should fill once (`fill_rows`), because each layer would otherwise store its own copy until backward.

Shapes: T rows, R rows with zero fill, I inputs, O outputs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

STEP = 256


def linear(rows_TI: Tensor, layer: nn.Linear) -> Tensor:
    """Apply `layer` to rows and return (T, O)."""
    weight_OI = layer.weight
    is_cpu = rows_TI.device.type == "cpu"
    is_single = rows_TI.dtype == weight_OI.dtype == torch.float32
    if not (is_cpu and is_single and has_onednn() and len(rows_TI) >= STEP) or torch.is_autocast_enabled("cpu"):
        return layer(rows_TI)
    result_TO: Tensor = _OneDnnLinear.apply(rows_TI, weight_OI, layer.bias)
    return result_TO


@cache
def has_onednn() -> bool:
    """Return whether this torch build has the kernel, which is private to torch's compiler."""
    return torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _product(rows_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None = None) -> Tensor:
    """Return rows times weights plus bias, computed by the kernel."""
    result_TO: Tensor = torch.ops.mkldnn._linear_pointwise(rows_TI, weight_OI, bias_O, "none", [], "")
    return result_TO


def fill_rows(rows_TI: Tensor) -> Tensor:
    """Append zero rows up to a multiple of `STEP`. Fewer rows than `STEP` are returned unchanged."""
    num_missing = -len(rows_TI) % STEP if len(rows_TI) >= STEP else 0
    return nn.functional.pad(rows_TI, (0, 0, 0, num_missing)) if num_missing else rows_TI


class _OneDnnLinear(torch.autograd.Function):
    """Linear layer whose forward and backward use the kernel. It does not support second derivatives."""

    @staticmethod
    def forward(ctx: Any, rows_TI: Tensor, weight_OI: Tensor, bias_O: Tensor | None) -> Tensor:
        """Return rows times weights plus bias, (T, O)."""
        filled_RI = fill_rows(rows_TI)
        ctx.save_for_backward(filled_RI, weight_OI)
        return _product(filled_RI, weight_OI, bias_O)[: len(rows_TI)]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """Return the gradients of rows, weights and bias."""
        filled_RI, weight_OI = ctx.saved_tensors
        needs_rows, needs_weight, needs_bias = ctx.needs_input_grad
        # The gradient of a sum is one number repeated with stride 0, so it must be copied first.
        gradient_TO = gradients[0].contiguous()
        gradient_RO = fill_rows(gradient_TO)
        return (
            _product(gradient_RO, weight_OI.t())[: len(gradient_TO)] if needs_rows else None,
            _product(gradient_RO.t(), filled_RI.t()) if needs_weight else None,
            gradient_TO.sum(0) if needs_bias else None,
        )
