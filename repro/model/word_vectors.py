"""Look up word vectors and accumulate their gradient directly in the weight's gradient.

A step looks up words once per piece of its texts. By default, autograd either builds a dense gradient of the whole
vocabulary for each piece, or concatenates sparse gradients. Concatenation copies all earlier rows for each piece, so
its cost grows quadratically. On a GPU it also stores every row of every text until the step ends. Here the weight has
one dense gradient from the first piece on, and each piece adds its rows to it.

The gradient is in `weight.grad` after `backward`, as usual. `torch.autograd.grad` reports the weight as unused. Weights
that are not leaves use torch's embedding.

Shapes: V words, D vector size.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

# torch 2.11 warns about sparse tensors without checks even where they are left out on purpose
warnings.filterwarnings("ignore", "Sparse invariant checks are implicitly disabled")


def look_up_words(ids: Tensor, weight_VD: Tensor) -> Tensor:
    """Return the word vectors of `ids`, (*ids.shape, D)."""
    if not weight_VD.is_leaf:
        return nn.functional.embedding(ids, weight_VD)
    vectors: Tensor = _Lookup.apply(ids, weight_VD)
    return vectors


class _Lookup(torch.autograd.Function):
    """Embedding whose backward adds to the weight's gradient. It does not support second derivatives."""

    @staticmethod
    def forward(ctx: Any, ids: Tensor, weight_VD: Tensor) -> Tensor:
        """Return the word vectors."""
        ctx.save_for_backward(ids)
        # Store the weight itself, because saved-tensor hooks may return a copy with another gradient.
        ctx.weight_VD = weight_VD
        return nn.functional.embedding(ids, weight_VD)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[None, None]:
        """Add the gradient of each token to the row of its word."""
        (ids,) = ctx.saved_tensors
        weight_VD = ctx.weight_VD
        if weight_VD.grad is None:
            weight_VD.grad = torch.zeros_like(weight_VD)
        rows = gradients[0].flatten(0, -2).to(weight_VD.dtype)
        # a sparse operand touches only the rows of these words, and repeated words add up
        weight_VD.grad.add_(torch.sparse_coo_tensor(ids.flatten()[None], rows, weight_VD.shape, check_invariants=False))
        return None, None
