"""AdamW with linear warm-up and linear decay to zero (§5: "Adam", 1000 warm-up steps, linear decay).

Steps are counted from 1. Weight decay applies to matrices, including word vectors. It does not apply to biases, norms
and the null vector, as is usual for these backbones.
"""

from __future__ import annotations

import torch
from torch import nn

from repro.train.setup import TrainSettings

FIRST_STAGE = "first_stage_model."


def make_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """Return AdamW over all weights. The first stage of a contextual model has its own factor of the learning rate."""
    groups = []
    for is_first, rate in ((False, 1.0), (True, settings.first_stage_rate)):
        weights = [
            weight
            for name, weight in model.named_parameters()
            if name.startswith(FIRST_STAGE) == is_first and weight.requires_grad
        ]
        # Biases, norms and the null vector have one axis, matrices and word vectors have two.
        groups += [
            {"params": [weight for weight in weights if weight.ndim >= 2], "weight_decay": settings.weight_decay},
            {"params": [weight for weight in weights if weight.ndim < 2], "weight_decay": 0.0},
        ]
        for group in groups[-2:]:
            group["rate"] = rate
    filled = [group for group in groups if group["params"]]
    return torch.optim.AdamW(filled, lr=settings.learning_rate, fused=settings.switches.fused)


def compute_learning_rate(step: int, *, peak: float, num_warmup_steps: int, num_steps: int) -> float:
    """Return the learning rate of a step. It reaches `peak` at the end of warm-up, and one decay unit at the last step."""
    if step <= num_warmup_steps:
        return peak * step / num_warmup_steps
    return peak * (num_steps - step + 1) / (num_steps - num_warmup_steps)
