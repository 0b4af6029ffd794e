"""AdamW with linear warm-up and linear decay to zero (§5: "Adam", 1000 warm-up steps, linear decay).

Steps are counted from 1. Weight decay applies to matrices, including word vectors. It does not apply to biases, norms
and the null vector, as is usual for these backbones.
"""

from __future__ import annotations

import torch
from torch import nn

FIRST_STAGE = "first_stage_model."


def build_optimizer(
    model: nn.Module,
    *,
    learning_rate: float,
    weight_decay: float,
    first_stage_rate: float = 1.0,
    fused: bool = True,
) -> torch.optim.AdamW:
    """Return AdamW over all weights of the model, in one kernel if `fused`.

    The first stage of a contextual model has a learning rate of `first_stage_rate` times that of the rest.
    """
    groups = []
    # Biases, norms and the null vector have one axis, matrices and word vectors have two.
    for is_first, rate in ((False, 1.0), (True, first_stage_rate)):
        weights = [
            weight
            for name, weight in model.named_parameters()
            if name.startswith(FIRST_STAGE) == is_first and weight.requires_grad
        ]
        groups += [
            {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": weight_decay, "rate": rate},
            {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0, "rate": rate},
        ]
    return torch.optim.AdamW([group for group in groups if group["params"]], lr=learning_rate, fused=fused)


def compute_learning_rate(step: int, *, peak: float, num_warmup_steps: int, num_steps: int) -> float:
    """Return the learning rate of a step. It reaches `peak` at the end of warm-up, and one decay unit at the last step."""
    if step <= num_warmup_steps:
        return peak * step / num_warmup_steps
    return peak * (num_steps - step + 1) / (num_steps - num_warmup_steps)


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Set the learning rate of the next step."""
    for group in optimizer.param_groups:
        group["lr"] = learning_rate * group["rate"]
