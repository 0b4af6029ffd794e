"""Report the sizes of a run's contextual model, from the configuration it would be trained with (figure 1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from repro.analyses import Measured
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs

SIZES = (
    "num_layers",
    "num_first_stage_layers",
    "hidden_size",
    "num_heads",
    "num_contexts",
    "tokens_per_document",
    "num_soft_prompts",
    "max_tokens",
)


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `shape/NAME` per size, and the number of weights of each stage. No weight is allocated."""
    import torch

    from repro.model.contextual import ContextualModel
    from repro.train.setup import make_model_config

    config = make_model_config(replace(inputs.run, architecture="contextual"))
    with torch.device("meta"):
        contextual = ContextualModel(config)
    stages = {"first_stage": contextual.first_stage_model, "second_stage": contextual.second_stage_model}
    metrics = {f"shape/{name}": float(getattr(config, name)) for name in SIZES}
    for name, stage in stages.items():
        metrics[f"shape/num_{name}_weights"] = float(sum(weight.numel() for weight in stage.parameters()))
    return Measured(metrics, {}, {"config": config.backbone})
