"""Report a training run's progress, and summarise its log for the record."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.model.contextual import Model
from repro.pipeline.inputs import Inputs
from repro.spec.identity import get_training_id
from repro.storage.paths import run_folder
from repro.train.checkpoint import TrainState, list_switches, read_state
from repro.train.chunks import ChunkSizes
from repro.train.feed import Sampler
from repro.train.set_apart import SET_APART_LOSS
from repro.train.setup import TrainSettings

Progress = Callable[[str], None]
TAIL_SHARE = 0.1  # share of the last steps over which "train loss" is averaged
REPORT_EVERY = 10.0  # seconds
MIN_PROGRESS_LINES = 4
"""Minimum number of progress lines per training run."""


@dataclass(frozen=True)
class Summary:
    """Summary of a training run for its record."""

    metrics: dict[str, float]
    arrays: dict[str, np.ndarray]
    provenance: dict[str, Any]


def make_step_reporter(
    num_steps: int, num_done: int, progress: Progress, *, clock: Callable[[], float] = time.monotonic
) -> Callable[[dict[str, Any]], None]:
    """Return a callback that reports progress every ten seconds, with an estimate of the remaining time.

    Short runs report at least `MIN_PROGRESS_LINES` steps. The estimate uses the time per step of this session.
    `num_done` is the number of steps in the checkpoint, and a resumed run reports it first.
    """
    started_at = reported_at = clock()
    interval = max(1, (num_steps - num_done) // MIN_PROGRESS_LINES)

    def report(line: dict[str, Any]) -> None:
        nonlocal reported_at
        step = line["step"]
        if 0 < num_done == step - 1:
            progress(f"  resuming after step {num_done} of {num_steps}")
        now = clock()
        is_due = now - reported_at >= REPORT_EVERY
        set_apart = f", {line[SET_APART_LOSS]:.3f} on the pairs set apart" if SET_APART_LOSS in line else ""
        is_regular = (step - num_done) % interval == 0 or step == num_steps
        if not (is_due or set_apart or is_regular):
            return
        reported_at = now
        text = f"  step {step}/{num_steps}: loss {line['loss']:.3f}{set_apart}, accuracy {line['accuracy']:.3f}, "
        text += f"{line['pairs_per_second']:.0f} pairs/s"
        if step < num_steps:
            minutes = (now - started_at) / (step - num_done) * (num_steps - step) / 60
            text += f", about {minutes:.0f} min left" if minutes >= 1 else ", less than a minute left"
        progress(text)

    return report


def describe_training(
    inputs: Inputs,
    sampler: Sampler,
    settings: TrainSettings,
    state: TrainState,
    model: Model,
    num_set_apart: int | None,
) -> dict[str, Any]:
    """Return the provenance of a training run. Entries that do not apply are left out."""
    provenance: dict[str, Any] = {
        "num_steps": state.step,
        "num_batches_an_epoch": len(sampler),
        "id": settings.run_id,
        "num_pairs": len(inputs.pairs),
        "num_pairs_in_tails": sampler.dropped_pairs.num_in_tails,
        "num_pairs_in_small_domains": sampler.dropped_pairs.num_in_small_domains,
        "num_parameters": sum(weight.numel() for weight in model.parameters()),
        "seconds": round(state.seconds, 1),
        "sittings": list(state.sittings),
        "cpu_seconds": round(state.cpu_seconds, 1),
    }
    if inputs.run.sampler == "cluster" and (sampled := inputs.sampled_domains):
        provenance["clusters_fitted_on_samples"] = sampled
    if switches := list_switches(state.sittings):
        provenance["switches"] = switches
    if settings.chunks != ChunkSizes():
        provenance["chunks"] = settings.chunks.words
    if num_set_apart is not None:
        provenance["kept_weights"] = {
            "step": state.best_step,
            "loss": state.best_loss,
            "num_pairs": num_set_apart,
            "ended_early": state.has_ended,
        }
    if inputs.first_phase is not None:
        first_phase_id = get_training_id(inputs.first_phase.run)
        provenance["first_phase"] = first_phase_id
        first_phase_state = read_state(run_folder(first_phase_id))
        provenance["first_phase_sittings"] = list(first_phase_state.sittings) if first_phase_state else []
    return provenance


def summarise(lines: list[dict[str, Any]], provenance: dict[str, Any]) -> Summary:
    """Summarise the log of a training run.

    Loss, accuracy and masked fraction are means over the last tenth of the steps. Difficulty is a mean over all steps
    and speed a median. The arrays contain the averaged values.
    """
    # A single step is noisy, so the final loss is a mean over the end of the log.
    tail = lines[-max(1, round(len(lines) * TAIL_SHARE)) :]
    arrays = {f"train/{name}": np.array([line[name] for line in tail]) for name in ("loss", "accuracy")}
    metrics = {name: float(values.mean()) for name, values in arrays.items()}
    metrics["train/masked_fraction"] = float(np.mean([line["masked_fraction"] for line in tail]))
    metrics["train/pairs_per_second"] = float(np.median([line["pairs_per_second"] for line in lines]))
    difficulties = [line["difficulty"] for line in lines if line["difficulty"] is not None]
    if difficulties:
        metrics["train/difficulty"] = float(np.mean(difficulties))
    return Summary(metrics, arrays, {**provenance, "memory_bytes": max(line["memory_bytes"] for line in lines)})
