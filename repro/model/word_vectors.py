"""Word vectors by their ids, whose gradient is added where it belongs, not gathered first.

A step looks words up once for every piece of its texts. Autograd would either make a dense gradient of the whole
vocabulary for each piece, or append sparse ones to each other, which copies all of them for each piece and grows with
the square of their number; on a GPU it keeps every row of every text until the step ends. Here the weight has one dense
gradient from the first piece on, and each piece adds its rows to it.

So the gradient is in `weight.grad` after `backward`, as ever; `torch.autograd.grad` at the weight says that it was not
used. Weights that are computed themselves are left to torch.

Shapes: V words, D size of a vector.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


def load_word_vectors(ids: Tensor, weight_VD: Tensor) -> Tensor:
    """Return the rows of the weight that `ids` name, (*ids.shape, D)."""
    if not weight_VD.is_leaf:
        return nn.functional.embedding(ids, weight_VD)
    found: Tensor = _Lookup.apply(ids, weight_VD)
    return found


class _Lookup(torch.autograd.Function):
    """An embedding whose backward adds to the weight's own gradient; gradients of gradients are not."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight_VD: Tensor) -> Tensor:
        """Return the rows."""
        ctx.save_for_backward(ids)
        ctx.weight_VD = weight_VD  # itself: hooks on what is saved may give back a copy, which has another gradient
        return nn.functional.embedding(ids, weight_VD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        """Add each row of the gradient to that of its word."""
        (ids,), weight_VD = ctx.saved_tensors, ctx.weight_VD
        if weight_VD.grad is None:
            weight_VD.grad = torch.zeros_like(weight_VD)
        rows = gradients[0].flatten(0, -2).to(weight_VD.dtype)
        weight_VD.grad.add_(torch.sparse_coo_tensor(ids.flatten()[None], rows, weight_VD.shape, check_invariants=False))
        return None, None
