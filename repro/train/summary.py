"""Report a training run's progress, and summarise its log for the record."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from repro.model.contextual import Model
from repro.pipeline.inputs import Inputs
from repro.spec.identity import get_training_id
from repro.storage.paths import run_folder
from repro.train import set_apart
from repro.train.checkpoint import TrainState, read_state
from repro.train.feed import Sampler
from repro.train.parallel import rank
from repro.train.performance import ChunkSizes
from repro.train.setup import TrainSettings

Progress = Callable[[str], None]
OnStep = Callable[[dict[str, Any]], None]
"""Callback that receives each line of the log."""
TAIL_SHARE = 0.1  # share of the last steps over which "train loss" is averaged
REPORT_EVERY = 10.0  # seconds
TENSORBOARD_VARIABLE = "REPRO_TENSORBOARD"
"""Environment variable that turns on scalars for TensorBoard."""


class Summary(NamedTuple):
    """Summary of a training run for its record."""

    metrics: dict[str, float]
    arrays: dict[str, np.ndarray]
    provenance: dict[str, Any]


def make_step_reporter(num_steps: int, num_done: int, progress: Progress) -> OnStep:
    """Return a callback that reports progress every ten seconds, with an estimate of the remaining time.

    The estimate uses the time per step of this session.
    `num_done` is the number of steps in the checkpoint, and a resumed run reports it first.
    """
    started_at = reported_at = time.monotonic()

    def report(line: dict[str, Any]) -> None:
        nonlocal reported_at
        step = line["step"]
        if 0 < num_done == step - 1:
            progress(f"  resuming after step {num_done} of {num_steps}")
        now = time.monotonic()
        is_due = now - reported_at >= REPORT_EVERY
        measured = f", {line[set_apart.LOSS]:.3f} on the pairs set apart" if set_apart.LOSS in line else ""
        if not (is_due or measured or step == num_steps):
            return
        reported_at = now
        text = f"  step {step}/{num_steps}: loss {line['loss']:.3f}{measured}, accuracy {line['accuracy']:.3f}, "
        text += f"{line['pairs_per_second']:.0f} pairs/s"
        if step < num_steps:
            minutes = (now - started_at) / (step - num_done) * (num_steps - step) / 60
            text += f", about {minutes:.0f} min left" if minutes >= 1 else ", less than a minute left"
        progress(text)

    return report


@contextmanager
def open_scalars(folder: Path, num_done: int, report: OnStep) -> Iterator[OnStep]:
    """Yield `report`, or a function that also writes each log line as scalars for TensorBoard if REPRO_TENSORBOARD is set.

    They are in `tensorboard` next to the checkpoint: `tensorboard --logdir $REPRO_HOME/runs`. A resumed run replaces
    those after `num_done` steps. Raises ModuleNotFoundError if TensorBoard is not installed.
    """
    if not os.environ.get(TENSORBOARD_VARIABLE) or rank() > 0:
        yield report
        return
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(folder / "tensorboard", purge_step=num_done + 1) as writer:

        def write(line: dict[str, Any]) -> None:
            report(line)
            for name, value in line.items():
                if isinstance(value, int | float) and name != "step":
                    writer.add_scalar(f"train/{name}", value, line["step"])

        yield write


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
    # those of any session, in order of appearance
    if switches := dict.fromkeys(word for session in state.sittings for word in session.get("switches", ())):
        provenance["switches"] = list(switches)
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

    Loss, accuracy and masked fraction are means over the last tenth of the steps. Difficulty is a mean over
    all steps that measured it, and speed a median. The arrays contain the averaged values.
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
