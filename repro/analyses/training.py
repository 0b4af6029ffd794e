"""Describe a training run: the sizes of its model (`shape`), its loss (`curve`), its score by step (`steps`).

`shape`: Report the sizes of a run's contextual model, from the configuration it would be trained with (figure 1).

`curve`: Average the training loss over equal stretches of steps (GTE figure 4).

`steps`: Score a model after each fifth of its training steps, on one schedule (GTE table 8).

The run is trained again in a separate folder, and stopped after each of the first four fifths to be scored. The fifth
is the run's own model. Steps depend on the seed alone, so these models are the ones its training passed through. On a
GPU this holds up to rounding.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.analyses.retrieval import evaluate
from repro.evaluate.collections import read_collections
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.spec.identity import get_training_id
from repro.spec.measures import NUM_SCORED_PARTS
from repro.storage.paths import run_folder
from repro.train.checkpoint import read_metrics
from repro.train.setup import build_sampler, make_model_config, make_train_settings
from repro.train.trainer import iter_intermediate_models

# ---- shape


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


def measure_shape(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `shape/NAME` per size, and the number of weights of each stage. No weight is allocated."""
    import torch

    from repro.model.contextual import ContextualModel

    config = make_model_config(replace(inputs.run, architecture="contextual"))
    with torch.device("meta"):
        contextual = ContextualModel(config)
    stages = {"first_stage": contextual.first_stage_model, "second_stage": contextual.second_stage_model}
    metrics = {f"shape/{name}": float(getattr(config, name)) for name in SIZES}
    for name, stage in stages.items():
        metrics[f"shape/num_{name}_weights"] = float(sum(weight.numel() for weight in stage.parameters()))
    return Measured(metrics, {}, {"config": config.backbone})


# ---- curve


MAX_POINTS = 24


def measure_curve(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `curve/STEP/loss` and `curve/STEP/accuracy`, as means over the stretch that ends at STEP."""
    lines = read_metrics(run_folder(get_training_id(inputs.run)))
    metrics = {}
    for part in np.array_split(np.arange(len(lines)), min(MAX_POINTS, len(lines))):
        for name in ("loss", "accuracy"):
            metrics[f"curve/{part[-1] + 1}/{name}"] = float(np.mean([lines[index][name] for index in part]))
    return Measured(metrics, {}, {"num_points": min(MAX_POINTS, len(lines))})


# ---- steps


FOLDER = "along"


def compute_marks(num_steps: int) -> tuple[int, ...]:
    """Return the last step of each fifth. Raises ValueError for fewer than five steps."""
    # a run by epochs has an unknown number of steps until its batches exist
    if num_steps < NUM_SCORED_PARTS:
        raise ValueError(f"measure='steps' of a training of {num_steps} steps: it needs at least {NUM_SCORED_PARTS}")
    return tuple(round(num_steps * part / NUM_SCORED_PARTS) for part in range(1, NUM_SCORED_PARTS + 1))


def measure_steps(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}/…` of the final model, and `{suite}+fifth1/…` to `{suite}+fifth5/…`."""
    suite, collections = inputs.suite.name, read_collections(inputs.suite)
    steps = compute_marks(make_train_settings(inputs.run, len(build_sampler(inputs))).num_steps)
    evaluations = {NUM_SCORED_PARTS: evaluate(inputs, model, folder / "trec", collections)}
    for part, (_, earlier) in enumerate(iter_intermediate_models(inputs, steps[:-1], folder / FOLDER), 1):
        evaluations[part] = evaluate(inputs, earlier, folder / FOLDER / "trec", collections)
    final = evaluations[NUM_SCORED_PARTS]
    metrics, arrays = dict(final.metrics), dict(final.per_query)
    for part, evaluation in evaluations.items():
        own = {path: value for path, value in evaluation.metrics.items() if path.startswith(f"{suite}/")}
        metrics |= {path.replace(suite, f"{suite}+fifth{part}", 1): value for path, value in own.items()}
        if suite in evaluation.per_query:
            arrays[f"{suite}+fifth{part}"] = evaluation.per_query[suite]
    shutil.rmtree(folder / FOLDER, ignore_errors=True)
    return Measured(metrics, arrays, {**final.provenance, "steps": list(steps)})
