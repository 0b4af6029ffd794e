"""Trains the model of one run from its inputs, and sums the training up for the record."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repro.batches.mask import batch_difficulty, content_keys, mask_false_negatives
from repro.batches.sampler import BatchSampler
from repro.identity import run_id
from repro.inputs import Inputs, domain_codes
from repro.model.biencoder import Biencoder
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.start import build_model, fit_to_start
from repro.spec import Run
from repro.train.feed import Filtered, TrainData
from repro.train.loop import TrainSettings, train
from repro.train.metrics import read_metrics
from repro.train.parallel import join_processes, num_processes

TAIL_SHARE = 0.1  # of the steps, at the end: what "train loss" means
REPORT_EVERY = 50
SMALL_HEAD, LARGE_HEAD = 32, 64  # MiniLM's head size; NomicBERT's, from hidden size 512 on


@dataclass(frozen=True)
class Summary:
    """What a record keeps of a training."""

    metrics: dict[str, float]
    arrays: dict[str, np.ndarray]
    provenance: dict[str, Any]


def train_run(
    run: Run, folder: Path, *, should_stop: Callable[[], bool], report: Callable[[str], None]
) -> tuple[Biencoder | ContextualModel, Summary]:
    """Trains (or goes on training) a run's model in `folder`; gives it in eval mode, with the summary."""
    join_processes(device())
    inputs = Inputs(run)
    sampler = build_sampler(run, inputs)
    settings = settings_of(run, len(sampler))
    model = build_model(config_of(run), start=run.start, seed=run.seed).to(device())
    data = TrainData(
        inputs.tokens("query"), inputs.tokens("document"), sampler, partial(filter_batch, run, *_surrogate(run, inputs))
    )

    def tell(line: dict[str, Any]) -> None:
        if line["step"] % REPORT_EVERY == 0 or line["step"] == settings.num_steps:
            report(
                f"  step {line['step']}/{settings.num_steps}: loss {line['loss']:.3f}, "
                f"accuracy {line['accuracy']:.3f}, {line['pairs_per_second']:.0f} pairs/s"
            )

    state = train(model, data, settings, folder=folder, should_stop=should_stop, on_step=tell)
    left_out = sampler.left_out
    provenance = {
        "num_steps": settings.num_steps,
        "num_batches_an_epoch": len(sampler),
        "num_pairs": len(inputs.pairs),
        "num_pairs_in_tails": left_out.num_in_tails,
        "num_pairs_in_small_domains": left_out.num_in_small_domains,
        "num_parameters": sum(weight.numel() for weight in model.parameters()),
        "seconds": round(state.seconds, 1),
    }
    return model.eval(), summarise(read_metrics(folder), provenance)


def device() -> torch.device:
    """Gives this process's GPU if there is one, else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(own)
    return own


def config_of(run: Run) -> ModelConfig:
    """Gives the model a run asks for, with the sizes its start weights dictate."""
    head = LARGE_HEAD if run.hidden_size >= 512 else SMALL_HEAD
    shared = {
        name: getattr(run, name)
        for name in (
            *("architecture", "backbone", "num_layers", "num_first_stage_layers", "hidden_size", "num_contexts"),
            *("tokens_per_document", "num_soft_prompts", "sequence_dropout", "residual", "prompts", "max_tokens"),
        )
    }
    num_heads = max(1, run.hidden_size // head)
    config = ModelConfig(**shared, num_heads=num_heads, intermediate_size=4 * run.hidden_size)
    return fit_to_start(config, run.start)


def build_sampler(run: Run, inputs: Inputs) -> BatchSampler:
    """Gives the run's batches."""
    clusters = inputs.clusters if run.sampler == "cluster" else None
    codes = domain_codes(run, inputs.pairs)
    return BatchSampler(
        run.sampler, codes, batch_size=run.batch_size, seed=run.seed, clusters=clusters, packing=run.packing
    )


def settings_of(run: Run, num_batches: int) -> TrainSettings:
    """Gives the training settings; epochs become steps. Several processes share each batch: as one process would."""
    num_steps = run.num_steps if run.num_steps is not None else (run.num_epochs or 0) * num_batches
    fields = ("seed", "learning_rate", "num_warmup_steps", "weight_decay", "max_grad_norm", "temperature")
    values: dict[str, Any] = {name: getattr(run, name) for name in fields}
    return TrainSettings(run_id=run_id(run), num_steps=num_steps, global_negatives=num_processes() > 1, **values)


def _surrogate(run: Run, inputs: Inputs) -> tuple[np.ndarray, np.ndarray | None, np.ndarray | None]:
    documents = inputs.pairs.texts("document", np.arange(len(inputs.pairs)))
    return content_keys(documents), inputs.embeddings("query"), inputs.embeddings("document")


def filter_batch(
    run: Run, keys_N: np.ndarray, queries_ND: np.ndarray | None, documents_ND: np.ndarray | None, pairs_B: np.ndarray
) -> Filtered:
    """Says which entries of a batch are no negatives (eq. 4), and how hard the batch is for the surrogate."""
    own_B = np.arange(len(pairs_B))
    scores_BB = None
    if queries_ND is not None and documents_ND is not None:
        scores_BB = np.asarray(queries_ND[pairs_B], np.float32) @ np.asarray(documents_ND[pairs_B], np.float32).T
    filtering = scores_BB if run.filter == "surrogate" else None
    masked_BB = mask_false_negatives(own_B, keys_N[pairs_B], scores_QM=filtering, margin=run.filter_margin)
    return Filtered(masked_BB, None if scores_BB is None else batch_difficulty(scores_BB, own_B))


def summarise(lines: list[dict[str, Any]], provenance: dict[str, Any]) -> Summary:
    """Gives the means over the last tenth of the steps, the values behind them, and the speed."""
    tail = lines[-max(1, round(len(lines) * TAIL_SHARE)) :]
    arrays = {f"train/{name}": np.array([line[name] for line in tail]) for name in ("loss", "accuracy")}
    metrics = {name: float(values.mean()) for name, values in arrays.items()}
    metrics["train/masked_fraction"] = float(np.mean([line["masked_fraction"] for line in tail]))
    metrics["train/pairs_per_second"] = float(np.median([line["pairs_per_second"] for line in lines]))
    difficulties = [line["difficulty"] for line in lines if line["difficulty"] is not None]
    if difficulties:
        metrics["train/difficulty"] = float(np.mean(difficulties))
    return Summary(metrics, arrays, {**provenance, "memory_bytes": max(line["memory_bytes"] for line in lines)})
