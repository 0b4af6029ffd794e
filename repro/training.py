"""Trains the model of one run from its inputs, and sums the training up for the record."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repro.batches.mask import batch_difficulty, content_keys, mask_false_negatives
from repro.batches.sampler import BatchSampler
from repro.identity import training_id
from repro.inputs import Inputs, domain_codes, stages_of
from repro.lease import acquire
from repro.model.biencoder import Biencoder
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.start import build_model, fit_to_start
from repro.places import run_folder
from repro.spec import Run, first_phase_of
from repro.train.feed import Filtered, TrainData
from repro.train.loop import TrainSettings, train
from repro.train.metrics import read_metrics
from repro.train.parallel import join_processes, num_processes

Model = Biencoder | ContextualModel
Report = Callable[[str], None]
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
    run: Run, *, should_stop: Callable[[], bool] = lambda: False, report: Report = print
) -> tuple[Model, Summary]:
    """Gives a run's model in eval mode, and the summary of its training, which goes on from where it was left.

    Runs that differ in evaluation only share a training, and so its folder: one process trains, the others wait.
    """
    join_processes(device())
    folder = run_folder(training_id(run))
    if num_processes() > 1:  # a job of several processes has its own queue to keep others out
        return _train(run, folder, should_stop, report)
    while (lease := acquire(folder / "training")) is None:
        time.sleep(1.0)
    with lease:
        return _train(run, folder, should_stop, report)


def trained_model(run: Run, report: Report = print) -> Model:
    """Gives the trained model of a run in eval mode, training it when it is not there."""
    for stage in stages_of(run):
        stage.build(report)
    return train_run(run, report=report)[0]


def _train(run: Run, folder: Path, should_stop: Callable[[], bool], report: Report) -> tuple[Model, Summary]:
    inputs = Inputs(run)
    sampler = build_sampler(run, inputs)
    settings = settings_of(run, len(sampler))
    model = start_model(run, should_stop, report).to(device())
    documents = inputs.tokens("document")
    data = TrainData(
        inputs.tokens("query"),
        documents,
        sampler,
        build_filter(run, inputs),
        negatives=documents if run.num_hard_negatives else None,
        negative_rows_NH=inputs.negatives,
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
        "id": settings.run_id,
        "num_pairs": len(inputs.pairs),
        "num_pairs_in_tails": left_out.num_in_tails,
        "num_pairs_in_small_domains": left_out.num_in_small_domains,
        "num_parameters": sum(weight.numel() for weight in model.parameters()),
        "seconds": round(state.seconds, 1),
    }
    if (first := first_phase_of(run)) is not None:
        provenance["first_phase"] = training_id(first)
    return model.eval(), summarise(read_metrics(folder), provenance)


def start_model(run: Run, should_stop: Callable[[], bool], report: Report) -> Model:
    """Gives the model a training starts from: fresh, or what the first phase has left."""
    model = build_model(config_of(run), start=run.start, seed=run.seed, heads=run.heads)
    first = first_phase_of(run)
    if first is not None:
        model.load_state_dict(train_run(first, should_stop=should_stop, report=report)[0].state_dict())
    return model


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
    fields = (
        "seed",
        "learning_rate",
        "first_stage_rate",
        "num_warmup_steps",
        "weight_decay",
        "max_grad_norm",
        "temperature",
    )
    values: dict[str, Any] = {name: getattr(run, name) for name in fields}
    return TrainSettings(run_id=training_id(run), num_steps=num_steps, global_negatives=num_processes() > 1, **values)


def build_filter(run: Run, inputs: Inputs) -> Callable[[np.ndarray], Filtered]:
    """Gives what says which entries of a batch are no negatives (eq. 4), and how hard it is for the surrogate."""
    keys_N = content_keys(inputs.pairs.texts("document", np.arange(len(inputs.pairs))))
    queries_ND, documents_ND, negatives_NH = inputs.embeddings("query"), inputs.embeddings("document"), inputs.negatives
    kind, margin, num_hard = run.filter, run.filter_margin, run.num_hard_negatives

    def judge(pairs_B: np.ndarray) -> Filtered:
        own_B, rows_M, scores_BM = np.arange(len(pairs_B)), pairs_B, None
        if negatives_NH is not None:
            rows_M = np.concatenate([pairs_B, negatives_NH[pairs_B].reshape(-1)])
        if queries_ND is not None and documents_ND is not None:
            scores_BM = np.asarray(queries_ND[pairs_B], np.float32) @ np.asarray(documents_ND[rows_M], np.float32).T
        filtering = scores_BM if kind == "surrogate" else None
        masked_BM = mask_false_negatives(
            own_B, keys_N[rows_M], scores_QM=filtering, margin=margin, num_hard_negatives=num_hard
        )
        return Filtered(masked_BM, None if scores_BM is None else batch_difficulty(scores_BM, own_B))

    return judge


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
