"""Trains the model of one run from its inputs, and sums the training up for the record."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repro.batches.mixing import MixedSampler
from repro.batches.sampler import BatchSampler
from repro.data.tokens import load_tokenizer
from repro.model.config import ModelConfig
from repro.model.contextual import Model
from repro.model.start import build_model, fit_to_start
from repro.pipeline.inputs import Inputs
from repro.pipeline.wanted import domain_codes, get_tokenizer_name, list_domain_names
from repro.spec import Run, get_first_phase, nested_widths
from repro.spec.identity import get_training_id
from repro.spec.values import count_noun
from repro.stopping import Interrupted
from repro.storage.lease import acquire
from repro.storage.machine import measure_free_bytes
from repro.storage.paths import home, run_folder
from repro.train.batch_view import BatchViewer
from repro.train.checkpoint import chunks_in, sittings_in
from repro.train.chunks import ChunkSizes, chunks_for, chunks_given
from repro.train.feed import Filtered, TrainData
from repro.train.loop import TrainSettings, measure_gpu_bytes, train
from repro.train.metrics import read_metrics
from repro.train.parallel import any_process, count_processes, join_processes, rank
from repro.train.sharing import explain_indivisible
from repro.train.sittings import words_of
from repro.train.steps_done import steps_done
from repro.train.switches import switches_here

Progress = Callable[[str], None]
TAIL_SHARE = 0.1  # of the steps, at the end: what "train loss" means
REPORT_EVERY = 10.0  # seconds
LEAST_LINES = 4
"""Per training run, however short it is."""
MODEL_FIELDS = (
    *("architecture", "backbone", "num_layers", "num_first_stage_layers", "hidden_size", "num_contexts"),
    *("tokens_per_document", "num_soft_prompts", "sequence_dropout", "pooling", "residual", "prompts", "max_tokens"),
)
"""Fields that a run and its model have in common."""
SMALL_HEAD, LARGE_HEAD = 32, 64  # MiniLM's head size; NomicBERT's, from hidden size 512 on


@dataclass(frozen=True)
class Summary:
    """What a record keeps of a training."""

    metrics: dict[str, float]
    arrays: dict[str, np.ndarray]
    provenance: dict[str, Any]


def train_run(
    inputs: Inputs, *, should_stop: Callable[[], bool] = lambda: False, progress: Progress = print
) -> tuple[Model, Summary]:
    """Return a run's model in eval mode, and the summary of its training, which goes on from where it was left.

    Runs that differ in evaluation only share a training, and so its folder: one process trains, the others wait.
    """
    join_processes(device())
    folder = run_folder(get_training_id(inputs.run))
    with _lease_of_all(folder / "training"):
        return _train(inputs, folder, should_stop, progress)


def _lease_of_all(folder: Path) -> AbstractContextManager[object]:
    """Return the lease of a folder, waiting for it; of several processes of one job, the first holds it for all."""
    while True:
        lease = acquire(folder) if rank() == 0 else None
        if any_process(lease is not None, device()):
            return lease or nullcontext()
        time.sleep(1.0)


def trained_model(run: Run, progress: Progress = print) -> Model:
    """Return the trained model of a run in eval mode, training it when it is not there."""
    inputs = Inputs(run)
    inputs.build(progress)
    return train_run(inputs, progress=progress)[0]


def _train(inputs: Inputs, folder: Path, should_stop: Callable[[], bool], progress: Progress) -> tuple[Model, Summary]:
    run = inputs.run
    model, data, settings, sampler = prepare_training(inputs, should_stop, progress)

    tell = teller(settings.num_steps, steps_done(folder), progress)
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
        "sittings": list(state.sittings),
    }
    if run.sampler == "cluster" and (sampled := inputs.sampled_domains):
        provenance["clusters_fitted_on_samples"] = sampled
    provenance |= {"switches": words} if (words := words_of(state.sittings)) else {}
    provenance |= {"chunks": settings.chunks.words} if settings.chunks != ChunkSizes() else {}
    if inputs.first_phase is not None:
        provenance["first_phase"] = first = get_training_id(inputs.first_phase.run)
        provenance["first_phase_sittings"] = sittings_in(run_folder(first))
    if rank() > 0:  # the log is rank 0's: another node may not see its last lines yet, and has no use for them
        return model.eval(), Summary({}, {}, provenance)
    return model.eval(), summarise(read_metrics(folder, settings.num_steps), provenance)


def teller(
    num_steps: int, num_done: int, progress: Progress, *, clock: Callable[[], float] = time.monotonic
) -> Callable[[dict[str, Any]], None]:
    """Return what reports a step every ten seconds and about how long the rest takes; first, report a resumed step.

    Short runs report `LEAST_LINES` steps at least. The rest is estimated from the seconds of all steps of this sitting,
    those between them included. `num_done`: of the checkpoint.
    """
    started = clock()
    reported, before, share = started, started, max(1, (num_steps - num_done) // LEAST_LINES)
    if 0 < num_done < num_steps:
        progress(f"  goes on after step {num_done} of {num_steps}")

    def tell(line: dict[str, Any]) -> None:
        nonlocal reported, before
        step, now = line["step"], clock()
        is_due = (now - reported) + (now - before) > REPORT_EVERY  # after another step like this one it would be late
        before = now
        if not is_due and (step - num_done) % share and step != num_steps:
            return
        reported = now
        minutes = (now - started) / (step - num_done) * (num_steps - step) / 60
        left = f"about {minutes:.0f} min left" if minutes >= 1 else "less than a minute left"
        progress(
            f"  step {step}/{num_steps}: loss {line['loss']:.3f}, accuracy {line['accuracy']:.3f}, "
            f"{line['pairs_per_second']:.0f} pairs/s" + (f", {left}" if step < num_steps else "")
        )

    return tell


def prepare_training(
    inputs: Inputs, should_stop: Callable[[], bool], progress: Progress
) -> tuple[Model, TrainData, TrainSettings, BatchSampler | MixedSampler]:
    """Return the model at its start, what it is trained on, and how."""
    run, sampler = inputs.run, build_sampler(inputs)
    settings = make_train_settings(run, len(sampler))  # before a first phase is trained for settings that cannot be
    model = start_model(inputs, should_stop, progress).to(device())
    data = TrainData(
        inputs.tokens("query", model.config.vocab_size),
        inputs.tokens("document", model.config.vocab_size),
        sampler,
        build_filter(inputs),
        negative_rows_NH=inputs.negatives,
    )
    if inputs.known_positives is not None:
        progress(f"  {inputs.known_positives.describe()}")
    chunks = chunks_for(
        model.config,
        measure_gpu_bytes(model.device),
        settings.switches,
        free=_compute_free_share(),
        stored=chunks_in(run_folder(settings.run_id)),
        num_texts=run.batch_size * (2 + run.num_hard_negatives),
    )
    return model, data, replace(settings, chunks=chunks), sampler


def _compute_free_share() -> int | None:
    """Return the free memory of the machine for one of this job's processes; None if it is unknown."""
    free = measure_free_bytes()
    return None if free is None else free // count_processes()


def models_along(inputs: Inputs, steps: Sequence[int], folder: Path) -> Iterator[tuple[int, Model]]:
    """Give the run's model as it is after each of some steps, in eval mode, by training it once more in `folder`.

    Steps rise, and the last is below the training's own. What is left of an earlier attempt in `folder` is removed.
    ValueError in a job of several processes, of which one alone measures.
    """
    if count_processes() > 1:
        raise ValueError("the models along a training are made by one process: run this measure on one GPU")
    shutil.rmtree(folder, ignore_errors=True)
    model, data, settings, _ = prepare_training(inputs, lambda: False, lambda line: None)
    reached = [0]

    def note(line: dict[str, Any]) -> None:
        reached[0] = line["step"]

    for step in steps:
        assert reached[0] < step < settings.num_steps, "steps rise, and end before the training does"
        try:
            train(model, data, settings, folder=folder, should_stop=lambda: reached[0] >= step, on_step=note)  # noqa: B023
        except Interrupted:
            if reached[0] != step:  # somebody else asked to stop
                raise
        yield step, model.eval()


def start_model(inputs: Inputs, should_stop: Callable[[], bool], progress: Progress) -> Model:
    """Return the model a training starts from: fresh, or what the first phase has left."""
    run, first = inputs.run, inputs.first_phase
    model = build_model(make_model_config(run), start=run.start, seed=run.seed, heads=run.heads)
    model.is_narrow = switches_here().autocast  # what it is measured in; a training has its own settings
    if first is not None:
        model.load_state_dict(train_run(first, should_stop=should_stop, progress=progress)[0].state_dict())
    return model


def device() -> torch.device:
    """Return this process's GPU if there is one, else the CPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(own)
    return own


def make_model_config(run: Run) -> ModelConfig:
    """Return the model a run asks for, with the sizes its start weights dictate."""
    return fit_to_start(replace(make_base_config(run), tokenizer=get_tokenizer_name(run)), run.start)


def make_base_config(run: Run) -> ModelConfig:
    """Return the model a run asks for by its own fields, which takes no file."""
    num_heads = max(1, run.hidden_size // (LARGE_HEAD if run.hidden_size >= 512 else SMALL_HEAD))
    shared = {name: getattr(run, name) for name in MODEL_FIELDS}
    return ModelConfig(**shared, num_heads=num_heads, intermediate_size=4 * run.hidden_size)


def check_model(run: Run) -> None:
    """ValueError, before anything is spent, when a run's start, sizes and vocabulary do not go together, when its
    settings cannot be, or when the environment sets switches or chunk sizes that there are not."""
    switches_here(), chunks_given()
    for phase in (run, get_first_phase(run)):
        if phase is not None and phase.num_steps is not None:  # of epochs, the number of batches is needed
            make_train_settings(phase, 0)
    config = make_model_config(run)
    num_words = load_tokenizer(config.tokenizer).get_vocab_size()
    if num_words > config.vocab_size:
        raise ValueError(
            f"start={run.start!r} has {config.vocab_size} word vectors, its tokenizer {config.tokenizer!r} {num_words} "
            "words: the model would read ids that it does not have; start from a checkpoint with its own tokenizer"
        )


def build_sampler(inputs: Inputs) -> BatchSampler | MixedSampler:
    """Return the run's batches."""
    run, pairs = inputs.run, inputs.pairs
    if run.mixing_alpha is not None:
        return MixedSampler(
            domain_codes(run, pairs),
            alpha=run.mixing_alpha,
            batch_size=run.batch_size,
            seed=run.seed,
            names=list_domain_names(run, pairs),
            folder=home(),
        )
    clusters = inputs.clusters if run.sampler == "cluster" else None
    return BatchSampler(
        run.sampler,
        domain_codes(run, pairs),
        batch_size=run.batch_size,
        seed=run.seed,
        clusters=clusters,
        packing=run.packing,
        folder=home(),
    )


def make_train_settings(run: Run, num_batches: int) -> TrainSettings:
    """Return the training settings. Epochs become steps: of the batches that are too few for a last one none is seen.

    Loss and gradient are those of one process, but for rounding and for what stages draw at random. ValueError where
    neither a batch nor the batches of a step can be divided equally among the processes.
    """
    if why := explain_indivisible(run, count_processes()):
        raise ValueError(why)
    whole = (run.num_epochs or 0) * num_batches // run.batches_a_step
    num_steps = run.num_steps if run.num_steps is not None else whole
    if not num_steps:
        raise ValueError(
            f"num_epochs={run.num_epochs} of {count_noun(num_batches, 'batch', 'batches')} are less than one step of "
            f"batches_a_step={run.batches_a_step}: use more epochs or pairs, or smaller steps"
        )
    fields = (
        "seed",
        "learning_rate",
        "first_stage_rate",
        "num_warmup_steps",
        "weight_decay",
        "max_grad_norm",
        "temperature",
        "loss",
        "batches_a_step",
    )
    values: dict[str, Any] = {name: getattr(run, name) for name in fields}
    values |= {"nested_sizes": nested_widths(run), "switches": switches_here()}
    return TrainSettings(run_id=get_training_id(run), num_steps=num_steps, **values)


def build_filter(inputs: Inputs) -> Callable[[np.ndarray], Filtered]:
    """Return what says which entries of a batch are no negatives (eq. 4), and how hard it is for the surrogate."""
    view_of = BatchViewer(inputs)

    def judge(pairs_B: np.ndarray) -> Filtered:
        view = view_of(pairs_B)
        return Filtered(view.masked, view.difficulty)

    return judge


def summarise(lines: list[dict[str, Any]], provenance: dict[str, Any]) -> Summary:
    """Return means over the last tenth of the steps, the values behind them, and the speed; difficulty is of all."""
    tail = lines[-max(1, round(len(lines) * TAIL_SHARE)) :]
    arrays = {f"train/{name}": np.array([line[name] for line in tail]) for name in ("loss", "accuracy")}
    metrics = {name: float(values.mean()) for name, values in arrays.items()}
    metrics["train/masked_fraction"] = float(np.mean([line["masked_fraction"] for line in tail]))
    metrics["train/pairs_per_second"] = float(np.median([line["pairs_per_second"] for line in lines]))
    difficulties = [line["difficulty"] for line in lines if line["difficulty"] is not None]
    if difficulties:
        metrics["train/difficulty"] = float(np.mean(difficulties))
    return Summary(metrics, arrays, {**provenance, "memory_bytes": max(line["memory_bytes"] for line in lines)})
