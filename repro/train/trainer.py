"""Train the model of a run from its inputs and summarise the training run for its record."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repro.batches.mixing import MixedSampler
from repro.batches.sampler import BatchSampler
from repro.data.own.imported import SET_APART_FILE, explain_none_set_apart
from repro.data.pairs import Side, read_pairs
from repro.data.tokens import Tokens, load_tokenizer, tokenize
from repro.data.wording import normalize_loosely
from repro.model.config import ModelConfig
from repro.model.contextual import Model
from repro.model.start import build_model, fit_to_start
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import domain_codes, get_tokenizer_name, list_domain_names
from repro.pipeline.prompting import PromptedTexts
from repro.pipeline.token_coverage import count_tokens
from repro.spec import FIELDS, Run, get_first_phase, get_training_run, get_training_values, nested_widths
from repro.spec.identity import get_training_id
from repro.stopping import Interrupted
from repro.storage.lease import acquire
from repro.storage.paths import get_home, is_imported, run_folder
from repro.storage.platform_info import NO_GPUS, measure_free_bytes
from repro.text import count_noun
from repro.train.batch_view import BatchViewer
from repro.train.checkpoint import (
    has_final_weights,
    list_switches,
    read_checkpoint,
    read_checkpoint_step,
    read_metrics,
    read_state,
)
from repro.train.chunks import ChunkSizes, choose_chunks, read_chunks_variable
from repro.train.feed import Filtered, Sampler, SetApart, TrainData
from repro.train.loop import TrainSettings, make_optimizer, measure_gpu_bytes, train
from repro.train.parallel import any_process, count_processes, join_processes, rank
from repro.train.set_apart import SET_APART_LOSS
from repro.train.sharing import explain_indivisible
from repro.train.switches import read_switches

Progress = Callable[[str], None]
TAIL_SHARE = 0.1  # share of the last steps over which "train loss" is averaged
REPORT_EVERY = 10.0  # seconds
MIN_PROGRESS_LINES = 4
"""Minimum number of progress lines per training run."""
SMALL_HEAD_SIZE = 32
"""Head size of MiniLM."""
LARGE_HEAD_SIZE = 64
"""Head size of NomicBERT, for hidden sizes of at least 512."""


@dataclass(frozen=True)
class Summary:
    """Summary of a training run for its record."""

    metrics: dict[str, float]
    arrays: dict[str, np.ndarray]
    provenance: dict[str, Any]


def train_run(
    inputs: Inputs, *, should_stop: Callable[[], bool] = lambda: False, progress: Progress = print
) -> tuple[Model, Summary]:
    """Train the model of a run, or resume its training. Return the model in eval mode and the summary.

    Runs that differ only in their evaluation share a training run and its folder. One process trains, the others wait.
    """
    if inputs.run.num_steps == 0:
        return build_untrained(inputs.run).to(device()).eval(), Summary({}, {}, {"num_steps": 0})
    # Before the lease, because rank 0 acquires it for the group.
    join_processes(device())
    folder = run_folder(get_training_id(inputs.run))
    with _acquire_for_all(folder / "training"):
        return _train(inputs, folder, should_stop, progress)


def _acquire_for_all(folder: Path) -> AbstractContextManager[object]:
    """Acquire the lease of a folder and wait for it if necessary. Rank 0 holds it for all processes of the job."""
    while True:
        # All ranks leave the loop in the same round. A rank that left it earlier would wait in its first collective
        # call.
        lease = acquire(folder) if rank() == 0 else None
        if any_process(lease is not None, device()):
            return lease or nullcontext()
        time.sleep(1.0)


def trained_model(run: Run, progress: Progress = print) -> Model:
    """Return the trained model of a run in eval mode. Train it if necessary.

    A finished training run needs no inputs. Its model opens even if its corpus was removed or imported again.
    """
    if run.num_steps == 0:
        return build_untrained(run).to(device()).eval()
    folder = run_folder(get_training_id(run))
    # The length of a run in epochs follows from its pairs.
    if run.num_steps is not None and has_final_weights(read_state(folder), run.num_steps):
        model = build_untrained(run).to(device())
        settings = make_train_settings(run, 0)
        read_checkpoint(folder, settings.run_id, model, make_optimizer(model, settings), settings.values)
        return model.eval()
    inputs = Inputs(run)
    inputs.build(progress)
    return train_run(inputs, progress=progress)[0]


def _train(inputs: Inputs, folder: Path, should_stop: Callable[[], bool], progress: Progress) -> tuple[Model, Summary]:
    run = inputs.run
    model, data, settings, sampler = prepare_training(inputs, folder, should_stop, progress)

    num_done = read_checkpoint_step(folder)
    # A resumed run has already reported how many texts are cut.
    if rank() == 0 and not num_done:
        for line in count_tokens(inputs.pairs, run).lines():
            progress(line)
        if num_unused := sampler.dropped_pairs.num_in_small_domains:
            progress(
                f"  {num_unused} of {len(inputs.pairs)} pairs are in domains smaller than a batch, and are never trained on"
            )
    report = make_step_reporter(settings.num_steps, num_done, progress)
    state = train(model, data, settings, folder=folder, should_stop=should_stop, on_step=report)
    # The optional entries below exist only if they apply.
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
    if run.sampler == "cluster" and (sampled := inputs.sampled_domains):
        provenance["clusters_fitted_on_samples"] = sampled
    if switches := list_switches(state.sittings):
        provenance["switches"] = switches
    if settings.chunks != ChunkSizes():
        provenance["chunks"] = settings.chunks.words
    if data.set_apart is not None:
        num_set_apart = len(data.set_apart.queries)
        provenance["kept_weights"] = {
            "step": state.best_step,
            "loss": state.best_loss,
            "num_pairs": num_set_apart,
            "ended_early": state.has_ended,
        }
        if state.best_loss is not None and state.step > num_done:
            early_end = f"training ended after step {state.step} of {settings.num_steps}; " if state.has_ended else ""
            progress(
                f"  {early_end}kept the weights of step {state.best_step}, with the lowest loss ({state.best_loss:.3f}) "
                f"on the {count_noun(num_set_apart, 'pair')} set apart"
            )
    if inputs.first_phase is not None:
        first_phase_id = get_training_id(inputs.first_phase.run)
        provenance["first_phase"] = first_phase_id
        first_phase_state = read_state(run_folder(first_phase_id))
        provenance["first_phase_sittings"] = list(first_phase_state.sittings) if first_phase_state else []
    # Rank 0 writes the log. Other nodes may not see its last lines yet and do not need them.
    if rank() > 0:
        return model.eval(), Summary({}, {}, provenance)
    return model.eval(), summarise(read_metrics(folder, state.step), provenance)


def make_step_reporter(
    num_steps: int, num_done: int, progress: Progress, *, clock: Callable[[], float] = time.monotonic
) -> Callable[[dict[str, Any]], None]:
    """Return a callback that reports progress every ten seconds, with an estimate of the remaining time.

    Short runs report at least `MIN_PROGRESS_LINES` steps. The estimate uses the time per step of this session,
    including the time between steps. `num_done` is the number of steps in the checkpoint, and a resumed run reports it
    first.
    """
    started_at = reported_at = last_step_at = clock()
    interval = max(1, (num_steps - num_done) // MIN_PROGRESS_LINES)
    is_resumed = 0 < num_done < num_steps

    def report(line: dict[str, Any]) -> None:
        nonlocal reported_at, last_step_at, is_resumed
        if is_resumed:
            progress(f"  resuming after step {num_done} of {num_steps}")
            is_resumed = False
        step = line["step"]
        now = clock()
        # A report is due if it would be late after another step of the same length.
        is_due = (now - reported_at) + (now - last_step_at) > REPORT_EVERY
        last_step_at = now
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


def prepare_training(
    inputs: Inputs, folder: Path, should_stop: Callable[[], bool], progress: Progress
) -> tuple[Model, TrainData, TrainSettings, Sampler]:
    """Return the model before training in `folder`, the training data, the settings and the sampler."""
    run = inputs.run
    sampler = build_sampler(inputs)
    # Check the settings before a first phase is trained.
    settings = make_train_settings(run, len(sampler))
    # This may train the first phase of the run.
    model = start_model(inputs, folder, should_stop, progress).to(device())
    data = TrainData(
        inputs.tokens("query", model.config.vocab_size),
        inputs.document_tokens(model.config.vocab_size),
        sampler,
        # Of the training run: several runs may share it, and its log must not depend on which of them starts it.
        build_filter(Inputs(get_training_run(run))),
        negative_rows_NH=inputs.negatives,
        set_apart=load_set_apart(inputs) if run.kept_weights == "best" else None,
    )
    free = measure_free_bytes()
    state = read_state(run_folder(settings.run_id))
    positives = inputs.known_positives
    # A resumed run has already reported them.
    if state is None and positives is not None and positives.num_pairs_with_several:
        progress(f"  {positives.describe()}")
    chunks = choose_chunks(
        model.config,
        measure_gpu_bytes(model.device),
        settings.switches,
        # the share of each process of this machine
        free=None if free is None else free // int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        stored=state.chunks if state else "",
        num_texts=run.batch_size * (2 + run.num_hard_negatives),
    )
    return model, data, replace(settings, chunks=chunks), sampler


def load_set_apart(inputs: Inputs) -> SetApart:
    """Load the pairs of an imported corpus that are set apart. A repeated query or document is left out.

    Raises ValueError if the corpus has none.
    """
    run = inputs.run
    path = inputs.graph.corpus.path / SET_APART_FILE
    if not path.is_file():
        raise ValueError(explain_none_set_apart(run.corpus))
    pairs = read_pairs(path)
    all_rows = np.arange(len(pairs))
    queries = pairs.texts("query", all_rows)
    documents = pairs.texts("document", all_rows)
    used_forms: set[str] = set()
    rows: list[int] = []
    # All other documents of the batch count as negatives. A repeated text would make a right answer a wrong one.
    for row, (query, document) in enumerate(zip(queries, documents, strict=True)):
        forms = {normalize_loosely(query), normalize_loosely(document)}
        if not forms & used_forms:
            rows.append(row)
            used_forms |= forms
    tokenizer = load_tokenizer(get_tokenizer_name(run))

    def tokenize_side(side: Side) -> Tokens:
        prompted = PromptedTexts(pairs, side, run.prompts, run.corpus)
        return tokenize(prompted.texts(np.array(rows)), tokenizer, run.max_tokens)

    return SetApart(tokenize_side("query"), tokenize_side("document"))


def iter_intermediate_models(inputs: Inputs, steps: Sequence[int], folder: Path) -> Iterator[tuple[int, Model]]:
    """Yield the model after each of these steps, in eval mode. The run is trained again in `folder`.

    Steps must ascend and end before the last step of the run. Files of an earlier attempt in `folder` are removed.

    Raises ValueError in a job of several processes, because only one process measures.
    """
    if count_processes() > 1:
        raise ValueError("the models along a training are made by one process: run this measure on one GPU")
    shutil.rmtree(folder, ignore_errors=True)
    model, data, settings, _ = prepare_training(inputs, folder, lambda: False, lambda line: None)
    # Without pairs set apart, the model keeps the weights of each step instead of the best ones.
    data = replace(data, set_apart=None)
    current_step = 0

    def note_step(line: dict[str, Any]) -> None:
        nonlocal current_step
        current_step = line["step"]

    for step in steps:
        assert current_step < step < settings.num_steps, "steps ascend and end before the last step of the run"
        try:
            train(model, data, settings, folder=folder, should_stop=lambda: current_step >= step, on_step=note_step)  # noqa: B023
        except Interrupted:
            # Any other interruption came from outside.
            if current_step != step:
                raise
        yield step, model.eval()


def start_model(inputs: Inputs, folder: Path, should_stop: Callable[[], bool], progress: Progress) -> Model:
    """Build the model before training in `folder`: new weights, or those after the first phase.

    If the folder has a checkpoint, its weights replace all of these, so the first phase is not needed.
    """
    model = build_untrained(inputs.run)
    if inputs.first_phase is None:
        return model
    # All processes take the same decision, because training the first phase needs all of them.
    if not any_process(read_checkpoint_step(folder) > 0, device()):
        if inputs.first_phase.run.num_steps is None:
            _check_first_warmup(inputs.first_phase)
        pretrained, _ = train_run(inputs.first_phase, should_stop=should_stop, progress=progress)
        model.load_state_dict(pretrained.state_dict())
    return model


def _check_first_warmup(inputs: Inputs) -> None:
    """Raise ValueError if a first phase given in epochs is shorter than its warm-up, which no field of a run sets."""
    num_batches = len(build_sampler(inputs))
    try:
        make_train_settings(inputs.run, num_batches)
    except ValueError as error:
        raise ValueError(
            f"first phase on {inputs.run.corpus}: {error}. Its warm-up is that of the scale: give num_pretraining_steps, "
            "which shortens it, or more num_pretraining_epochs"
        ) from error


def build_untrained(run: Run) -> Model:
    """Build the model of a run with its start weights, without a first phase."""
    model = build_model(make_model_config(run), start=run.start, seed=run.seed, heads=run.heads)
    # for evaluation, because training has its own settings
    model.is_narrow = read_switches().autocast
    return model


def device() -> torch.device:
    """Return the GPU of this process, or the CPU if there is none.

    Raises ValueError if the process was given a GPU that torch cannot use.
    """
    if not torch.cuda.is_available():
        given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
        if given not in NO_GPUS and (torch.backends.cuda.is_built() or "SLURM_JOB_ID" in os.environ):
            raise ValueError(
                f"CUDA_VISIBLE_DEVICES={given!r} gives this process a GPU, and torch {torch.__version__} cannot use it: "
                "install a build of torch for the driver of this machine, or set CUDA_VISIBLE_DEVICES= to use the CPU"
            )
        return torch.device("cpu")
    gpu = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    # Calls without an explicit device, such as the random state of the gradient cache, then use this GPU.
    torch.cuda.set_device(gpu)
    return gpu


def make_model_config(run: Run) -> ModelConfig:
    """Return the model config of a run, with the sizes of its pretrained weights."""
    return fit_to_start(replace(make_base_config(run), tokenizer=get_tokenizer_name(run)), run.start)


def make_base_config(run: Run) -> ModelConfig:
    """Return the model config from the run's own fields. This reads no file.

    Raises ValueError if the heads of the attention do not divide the width evenly.
    """
    head_size = LARGE_HEAD_SIZE if run.hidden_size >= 512 else SMALL_HEAD_SIZE
    num_heads = max(1, run.hidden_size // head_size)
    # a head has an even width, because the rotary embedding turns pairs of dimensions
    if run.start in ("random", "words") and run.hidden_size % (2 * num_heads):
        raise ValueError(f"hidden_size={run.hidden_size}: use a multiple of {head_size}, the width of a head")
    return ModelConfig(
        num_heads=num_heads,
        intermediate_size=4 * run.hidden_size,
        **_copy_fields(run, ModelConfig),
    )


def _copy_fields(run: Run, target: type) -> dict[str, Any]:
    """Return the values of the fields that a run and another dataclass have in common."""
    return {field.name: getattr(run, field.name) for field in fields(target) if field.name in FIELDS}


def check_model(run: Run) -> None:
    """Validate the model and settings of a run before any computation.

    Raises ValueError if start weights, sizes and vocabulary do not match, if a setting is invalid, or if REPRO_SWITCHES
    or REPRO_CHUNKS is invalid.
    """
    # Both raise an error if their environment variable is invalid.
    read_switches()
    read_chunks_variable()
    if run.kept_weights == "best" and not is_imported(run.corpus):
        raise ValueError(explain_none_set_apart(run.corpus))
    for phase in (run, get_first_phase(run)):
        # Runs in epochs can be checked only if the number of batches is known.
        if phase is not None and phase.num_steps:
            make_train_settings(phase, 0)
    config = make_model_config(run)
    num_words = load_tokenizer(config.tokenizer).get_vocab_size()
    if num_words > config.vocab_size:
        raise ValueError(
            f"start={run.start!r} has {config.vocab_size} word vectors, its tokenizer {config.tokenizer!r} {num_words} "
            "words: the model would read ids that it does not have; start from a checkpoint with its own tokenizer"
        )


def build_sampler(inputs: Inputs) -> Sampler:
    """Build the sampler of a run."""
    run, pairs = inputs.run, inputs.pairs
    if run.mixing_alpha is not None:
        return MixedSampler(
            domain_codes(run, pairs),
            alpha=run.mixing_alpha,
            batch_size=run.batch_size,
            seed=run.seed,
            names=list_domain_names(run, pairs),
            folder=get_home(),
        )
    return BatchSampler(
        run.sampler,
        domain_codes(run, pairs),
        batch_size=run.batch_size,
        seed=run.seed,
        clusters=inputs.clusters if run.sampler == "cluster" else None,
        packing=run.packing,
        folder=get_home(),
    )


def make_train_settings(run: Run, num_batches: int) -> TrainSettings:
    """Return the training settings. Epochs are converted to steps, and an incomplete last step is dropped.

    Loss and gradient do not depend on the number of processes, except for rounding and random drops.

    Raises ValueError if neither a batch nor the batches of a step can be divided equally among the processes.
    """
    if reason := explain_indivisible(run, count_processes()):
        raise ValueError(reason)
    num_steps = run.num_steps
    if num_steps is None:
        num_steps = (run.num_epochs or 0) * num_batches // run.batches_a_step
    if not num_steps:
        raise ValueError(
            f"num_epochs={run.num_epochs} of {count_noun(num_batches, 'batch', 'batches')} are less than one step of "
            f"batches_a_step={run.batches_a_step}: use more epochs or pairs, or smaller steps"
        )
    values = _copy_fields(run, TrainSettings) | {"num_steps": num_steps, "nested_sizes": nested_widths(run)}
    return TrainSettings(
        run_id=get_training_id(run), switches=read_switches(), values=get_training_values(run), **values
    )


def build_filter(inputs: Inputs) -> Callable[[np.ndarray], Filtered]:
    """Return a function that gives the mask of a batch (eq. 4) and its difficulty."""
    viewer = BatchViewer(inputs)

    def filter_batch(pairs_B: np.ndarray) -> Filtered:
        view = viewer(pairs_B)
        return Filtered(view.masked, view.difficulty)

    return filter_batch


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
