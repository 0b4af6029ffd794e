"""The whole training run: from a run's inputs to its trained model and the summary for its record (§4.2, §5).

1. `train_run` acquires the lease of the training run, so that one process trains and the others wait.
2. `prepare_training` builds the model, after a first phase if the run has one, and the functions that build batches.
3. `train` takes the steps, writes the log and the checkpoints, and resumes with identical results.
4. `summarise` reduces the log to the numbers of the record.

A step:

1. `repro.train.feed` provides the texts of its batches.
2. The gradient cache adds the gradient of each batch's loss.
3. Gradients are averaged over processes and batches, and clipped.
4. If loss and gradient norm are finite, AdamW updates the weights. Otherwise training stops.
5. One line is logged, with means over the batches and all batch hashes.

All randomness of a batch is a function of (seed, batch number). Weights, optimiser state and the number of steps are
therefore the whole state. On a CPU all stages use float32. On a GPU they use bfloat16 autocast, while weights, loss and
gradients remain float32.

Random drops inside a stage are drawn per batch and piece. If processes share batches, each has its own random stream.
Another number of processes or other chunk sizes may therefore give other draws. Without random drops, they change only
rounding.
"""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from repro.model.contextual import ContextualModel, Model
from repro.model.texts import Texts
from repro.pipeline.inputs import Inputs
from repro.pipeline.token_coverage import count_tokens
from repro.spec import Run, get_training_run
from repro.spec.identity import get_training_id
from repro.stopping import Interrupted, delay_stops, is_asked_to_stop
from repro.storage.lease import acquire
from repro.storage.paths import run_folder
from repro.storage.platform_info import measure_free_bytes
from repro.train import parallel, set_apart
from repro.train.checkpoint import (
    MetricsLog,
    TrainState,
    describe_session,
    has_final_weights,
    is_finished,
    read_checkpoint,
    read_checkpoint_step,
    read_metrics,
    read_state,
    write_checkpoint,
)
from repro.train.feed import (
    Feed,
    Sampler,
    StepFeed,
    TrainData,
    compute_step_hash,
    get_sampler_state,
    iter_step_feeds,
    step_batches,
)
from repro.train.gradcache import Stages, add_gradients
from repro.train.loss import LossParts
from repro.train.performance import choose_chunks
from repro.train.setup import (
    TrainSettings,
    build_filter,
    build_sampler,
    build_untrained,
    device,
    make_train_settings,
    measure_gpu_bytes,
    measure_memory_bytes,
)
from repro.train.summary import Progress, Summary, describe_training, make_step_reporter, open_scalars, summarise

FIRST_STAGE = "first_stage_model."


def train_run(
    inputs: Inputs, *, should_stop: Callable[[], bool] = lambda: False, progress: Progress = print
) -> tuple[Model, Summary]:
    """Train the model of a run, or resume its training. Return the model in eval mode and the summary.

    Runs that differ only in their evaluation share a training run and its folder. One process trains, the others wait.
    """
    run = inputs.run
    if run.num_steps == 0:
        return build_untrained(run).to(device()).eval(), Summary({}, {}, {"num_steps": 0})
    # Before the lease, because rank 0 acquires it for the group.
    parallel.join_processes(device())
    folder = run_folder(get_training_id(run))
    with _acquire_for_all(folder / "training"):
        model, data, settings, sampler = prepare_training(inputs, folder, should_stop, progress)
        num_done = read_checkpoint_step(folder)
        # A resumed run has already reported how many texts are cut.
        if parallel.rank() == 0 and not num_done:
            for line in count_tokens(inputs.pairs, run).lines():
                progress(line)
            if num_unused := sampler.dropped_pairs.num_in_small_domains:
                progress(
                    f"  {num_unused} of {len(inputs.pairs)} pairs are in domains smaller than a batch, and are never trained on"
                )
        report = make_step_reporter(settings.num_steps, num_done, progress)
        with open_scalars(folder, num_done, report) as on_step:
            state = train(model, data, settings, folder=folder, should_stop=should_stop, on_step=on_step)
        if state.best_loss is not None and state.step > num_done:
            early_end = f"training ended after step {state.step} of {settings.num_steps}; " if state.has_ended else ""
            loss = f"loss {state.best_loss:.3f} on the pairs set apart"
            progress(f"  {early_end}kept the weights of step {state.best_step}, with the lowest {loss}")
        num_set_apart = None if data.set_apart is None else len(data.set_apart.queries)
        provenance = describe_training(inputs, sampler, settings, state, model, num_set_apart)
        # Rank 0 writes the log. Other nodes may not see its last lines yet and do not need them.
        if parallel.rank() > 0:
            return model.eval(), Summary({}, {}, provenance)
        return model.eval(), summarise(read_metrics(folder, state.step), provenance)


def _acquire_for_all(folder: Path) -> AbstractContextManager[object]:
    """Acquire the lease of a folder and wait for it if necessary. Rank 0 holds it for all processes of the job."""
    while True:
        # All ranks leave the loop in the same round. A rank that left it earlier would wait in its first collective
        # call.
        lease = acquire(folder) if parallel.rank() == 0 else None
        if parallel.any_process(lease is not None, device()):
            return lease or nullcontext()
        time.sleep(1.0)


def prepare_training(
    inputs: Inputs, folder: Path, should_stop: Callable[[], bool], progress: Progress
) -> tuple[Model, TrainData, TrainSettings, Sampler]:
    """Return the model before training in `folder`, the training data, the settings and the sampler."""
    run = inputs.run
    sampler = build_sampler(inputs)
    # Check the settings before a first phase is trained.
    settings = make_train_settings(run, len(sampler))
    # The id of a run does not name the recipes of its stages.
    of_training = Inputs(get_training_run(run))
    settings = replace(settings, values={**settings.values, **of_training.graph.describe_training_stages()})
    # This may train the first phase of the run.
    model = start_model(inputs, folder, should_stop, progress).to(device())
    data = TrainData(
        inputs.tokens("query", model.config.vocab_size),
        inputs.document_tokens(model.config.vocab_size),
        sampler,
        # Of the training run: several runs may share it, and its log must not depend on which of them starts it.
        build_filter(of_training),
        negative_rows_NH=inputs.negatives,
        set_apart=set_apart.load(inputs) if run.kept_weights == "best" else None,
    )
    free = measure_free_bytes()
    state = read_state(run_folder(settings.run_id))
    positives = inputs.known_positives
    # A resumed run has already reported them.
    if state is None and positives is not None and positives.num_pairs_with_several:
        progress(f"  {positives.describe()}")
    chunks = choose_chunks(
        model.config,
        autocast=settings.autocast,
        num_texts=run.batch_size * (2 + run.num_hard_negatives),
        gpu_bytes=measure_gpu_bytes(model.device),
        # the share of each process of this machine
        free=None if free is None else free // int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        stored=state.chunks if state else "",
    )
    return model, data, replace(settings, chunks=chunks), sampler


def start_model(inputs: Inputs, folder: Path, should_stop: Callable[[], bool], progress: Progress) -> Model:
    """Build the model before training in `folder`: new weights, or those after the first phase.

    If the folder has a checkpoint, its weights replace all of these, so the first phase is not needed.
    """
    model = build_untrained(inputs.run)
    if inputs.first_phase is None:
        return model
    # All processes take the same decision, because training the first phase needs all of them.
    if not parallel.any_process(read_checkpoint_step(folder) > 0, device()):
        pretrained, _ = train_run(inputs.first_phase, should_stop=should_stop, progress=progress)
        model.load_state_dict(pretrained.state_dict())
    return model


def train(
    model: Model,
    data: TrainData,
    settings: TrainSettings,
    *,
    folder: Path,
    should_stop: Callable[[], bool] = lambda: False,
    on_step: Callable[[dict[str, Any]], None] = lambda line: None,
) -> TrainState:
    """Train the model in place and return the final state. If `folder` has a checkpoint, training resumes from it.

    `on_step` receives each line of the log.

    Raises:
        Interrupted: `should_stop` returned True in some process. The checkpoint is written.
        ValueError: The log or checkpoint belongs to another run, or the loss is not finite.
        OSError or SafetensorError: The disk is full. The last checkpoint remains valid.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Every process has built the model from the same seed. Broadcasting rules out differences between machines.
    parallel.broadcast_weights(model.parameters())
    optimizer = make_optimizer(model, settings)
    state = _resume(folder, settings, data, model, optimizer)
    # A finished run gets no further session, because loading it computes no step.
    if not is_finished(state, settings.num_steps):
        session = describe_session(state.step, autocast=settings.autocast, num_processes=parallel.count_processes())
        state = replace(state, chunks=settings.chunks.words, sittings=[*state.sittings, session])
    saved_at = time.monotonic()
    model.train()
    # Otherwise the log would include the peak of earlier work in this process.
    if model.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(model.device)
    reads_documents = isinstance(model, ContextualModel) and not model.config.is_blind
    num_contexts = model.config.num_contexts if reads_documents else 0
    steps = range(state.step, settings.num_steps)
    feeds = iter_step_feeds(data, steps, settings.batches_a_step, num_contexts=num_contexts, seed=settings.seed)
    # Rank 0 has the log.
    log = MetricsLog(folder, state.step, state.log_sha256) if parallel.rank() == 0 else None
    # Training seeds the global generators, so restore them for the caller afterwards.
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices), closing(log) if log else nullcontext(), closing(feeds), delay_stops():
        while not is_finished(state, settings.num_steps):
            state, line = _run_step(model, optimizer, feeds, settings, state)
            measured = data.set_apart if set_apart.is_measured_after(state.step, settings.num_steps) else None
            if measured is not None:
                line[set_apart.LOSS] = loss = set_apart.compute_loss(model, measured, settings)
                state = set_apart.note_loss(folder, state, model, loss)
            # The state holds the digest of the log, so the line comes before the checkpoint that covers it.
            if log is not None:
                log.append(line)
                state = replace(state, log_sha256=log.digest)
            on_step(line)
            # All processes take the same decision. Otherwise those that continue would wait forever in a collective
            # call.
            is_last = is_finished(state, settings.num_steps)
            stop = parallel.any_process(should_stop() or is_asked_to_stop(), model.device) and not is_last
            is_due = time.monotonic() - saved_at >= settings.checkpoint_every_seconds
            if stop or is_last or is_due or measured is not None:
                _save_checkpoint(folder, state, model, optimizer, log)
                saved_at = time.monotonic()
            if stop:
                raise Interrupted(f"stopped after step {state.step} of {settings.num_steps}; the checkpoint is written")
        # `holds_best` is part of the checkpoint, so a later call does not load the weights again.
        if state.best_step and not state.holds_best:
            set_apart.load_best_weights(folder, state, model)
            state = replace(state, holds_best=True)
            _save_checkpoint(folder, state, model, optimizer, log)
    return state


def _resume(
    folder: Path, settings: TrainSettings, data: TrainData, model: Model, optimizer: torch.optim.Optimizer
) -> TrainState:
    """Load the checkpoint of a folder, or return the initial state if there is none.

    Raises ValueError if its sampler state does not match.
    """
    state = read_checkpoint(folder, settings.run_id, model, optimizer, settings.values)
    parallel.check_same_value(
        "checkpoint", "none" if state is None else f"of step {state.step}, log {state.log_sha256}"
    )
    if state is None:
        return TrainState(settings.run_id, values=settings.values)
    # The seed alone is not enough: other data or another batch size would give other batches for the same step.
    sampler = get_sampler_state(data.batches, state.step * settings.batches_a_step)
    if tuple(state.sampler) != tuple(sampler):
        found = f"{folder} left its sampler at {state.sampler}, not {sampler}: other data, batches or seed"
        raise ValueError(f"{found}; restore them, or remove the folder to train again")
    # Nor are their numbers: clusters that were built again may be others.
    if state.batch and not is_finished(state, settings.num_steps):
        last = step_batches(data.batches, state.step - 1, settings.batches_a_step)
        if compute_step_hash(last) != state.batch:
            raise ValueError(f"{folder} took other batches until step {state.step}: remove the folder to train again")
    # An older checkpoint has no values, or lacks fields that were added since.
    return replace(state, values=settings.values)


def _run_step(
    model: Model,
    optimizer: torch.optim.Optimizer,
    feeds: Iterator[StepFeed],
    settings: TrainSettings,
    state: TrainState,
) -> tuple[TrainState, dict[str, Any]]:
    """Run one step. Return the new state and the log line."""
    started_at = time.monotonic()
    cpu_started_at = time.process_time()
    step = state.step + 1
    step_feed = next(feeds)
    values = take_step(model, optimizer, step_feed.feeds, settings, step=step)
    # The values are on the CPU, so the device has finished the step.
    seconds = time.monotonic() - started_at
    line = {
        "step": step,
        **values,
        "batch": compute_step_hash(step_feed.batches),
        "pairs_per_second": round(sum(len(batch.pairs_B) for batch in step_feed.batches) / seconds, 1),
        "memory_bytes": measure_memory_bytes(model.device),
    }
    # On a busy machine a step takes longer, but not more processor time.
    cpu_seconds = state.cpu_seconds + time.process_time() - cpu_started_at
    seconds += state.seconds
    changes = {"step": step, "seconds": seconds, "cpu_seconds": cpu_seconds, "batch": line["batch"]}
    return replace(state, **changes, sampler=step_feed.sampler), line


def stages_for(model: Model, feed: Feed, settings: TrainSettings) -> Stages:
    """Return the stages and the loss of a batch for the gradient cache, in the precision of the model's device."""
    uses_bfloat16 = model.device.type == "cuda" and settings.autocast

    def autocast() -> torch.autocast:
        return torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=uses_bfloat16)

    def first(texts: Texts) -> Tensor:
        assert isinstance(model, ContextualModel), "only a contextual model is given context documents"
        with autocast():
            return _upcast(model.first_stage(texts))

    def second(texts: Texts, contexts_CD: Tensor | None) -> Tensor:
        with autocast():
            if isinstance(model, ContextualModel):
                assert (contexts_CD is None) == model.config.is_blind, "only a blind model is given no documents"
                return _upcast(model.second_stage(texts, contexts_CD))
            return _upcast(model.embed_texts(texts))

    def loss(queries_QD: Tensor, documents_MD: Tensor) -> LossParts:
        # The mask covers the whole batch, so the loss needs the vectors of all processes.
        if settings.shares_batches:
            queries_QD = parallel.gather_with_gradient(queries_QD)
            documents_MD = parallel.gather_documents(documents_MD, feed.num_own_pairs)
        return settings.compute_loss(queries_QD, documents_MD, feed.masked)

    stages = Stages(second, loss, first if feed.texts.contexts is not None else None)
    if settings.shares_batches:
        return replace(stages, gather=parallel.gather_contexts)
    return stages


def _upcast(vectors_ND: Tensor) -> Tensor:
    """Return vectors in at least float32."""
    return vectors_ND.to(torch.promote_types(vectors_ND.dtype, torch.float32))


def take_step(
    model: Model, optimizer: torch.optim.Optimizer, feeds: Iterable[Feed], settings: TrainSettings, *, step: int
) -> dict[str, Any]:
    """Compute the gradients of a step, update the weights and return the values for the log.

    Raises ValueError in every process, before the update, if the loss or the gradient norm is not finite.
    """
    # Each batch adds its gradient. Weights change only after the last one.
    values = torch.stack([_add_batch(model, feed, settings) for feed in feeds])
    parallel.reduce_gradients(model.parameters(), settings.batches_a_step)
    # Clip after averaging, so that the result does not depend on the number of processes.
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
    rate = compute_learning_rate(
        step, peak=settings.learning_rate, num_warmup_steps=settings.num_warmup_steps, num_steps=settings.num_steps
    )
    means = parallel.average_over_processes(values.mean(0))
    # One transfer, so the CPU waits for the device only once per step.
    loss, accuracy, masked_fraction, difficulty, norm_value = torch.cat([means, norm.double()[None]]).tolist()
    # A non-finite loss gives a non-finite norm in every process, so all processes raise.
    if not (math.isfinite(loss) and math.isfinite(norm_value)):
        raise ValueError(
            f"step {step} of {settings.num_steps}: loss {loss}, norm of the gradient {norm_value} at learning rate "
            f"{rate:.3g}: not finite. The step was skipped and the last checkpoint is unchanged. A restart would fail "
            "again: lower learning_rate, increase num_warmup_steps or, on a GPU, set REPRO_SWITCHES=no-autocast"
        )
    for group in optimizer.param_groups:
        group["lr"] = rate * group["rate"]
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return {
        "loss": loss,
        "accuracy": accuracy,
        "masked_fraction": masked_fraction,
        "learning_rate": rate,
        "difficulty": None if math.isnan(difficulty) else difficulty,
    }


def _add_batch(model: Model, feed: Feed, settings: TrainSettings) -> Tensor:
    """Add the gradient of a batch's loss. Return loss, accuracy, masked fraction and difficulty (NaN if there is none)."""
    # Random drops depend only on the run's seed and the batch number, so a resumed run repeats them.
    torch.manual_seed(feed.draw_seed)
    feed = feed.to(model.device)
    parts = add_gradients(stages_for(model, feed, settings), feed.texts, settings.chunks)
    # float64, so that averaging over batches and processes adds no rounding of float32.
    values = [value.double() for value in (parts.loss, parts.accuracy, parts.masked_fraction)]
    difficulty = math.nan if feed.difficulty is None else feed.difficulty
    return torch.stack([*values, torch.full_like(values[0], difficulty)])


def make_optimizer(model: nn.Module, settings: TrainSettings) -> torch.optim.AdamW:
    """Return AdamW over all weights. The first stage of a contextual model has its own factor of the learning rate.

    Weight decay applies to matrices, including word vectors. It does not apply to biases, norms and the null vector, as
    is usual for these backbones.
    """
    groups: list[dict[str, Any]] = []
    weights = [(name, weight) for name, weight in model.named_parameters() if weight.requires_grad]
    for is_first, rate in ((False, 1.0), (True, settings.first_stage_rate)):
        # Biases, norms and the null vector have one axis, matrices and word vectors have two.
        for is_matrix, decay in ((True, settings.weight_decay), (False, 0.0)):
            group = [
                weight
                for name, weight in weights
                if name.startswith(FIRST_STAGE) == is_first and (weight.ndim >= 2) == is_matrix
            ]
            if group:
                groups.append({"params": group, "weight_decay": decay, "rate": rate})
    return torch.optim.AdamW(groups, lr=settings.learning_rate, fused=True)


def compute_learning_rate(step: int, *, peak: float, num_warmup_steps: int, num_steps: int) -> float:
    """Return the learning rate of a step, counted from 1: linear warm-up to `peak`, then linear decay to zero (§5).

    It reaches `peak` at the end of warm-up, and one decay unit at the last step.
    """
    if step <= num_warmup_steps:
        return peak * step / num_warmup_steps
    return peak * (num_steps - step + 1) / (num_steps - num_warmup_steps)


def _save_checkpoint(
    folder: Path, state: TrainState, model: Model, optimizer: torch.optim.Optimizer, log: MetricsLog | None
) -> None:
    """Write a checkpoint and remove weights that it no longer needs.

    The log is synced first, because the checkpoint refers to its lines.
    """
    if log is not None:
        log.sync()
    if parallel.rank() == 0:
        write_checkpoint(folder, state, model, optimizer)
    # Only now: until the new checkpoint is on disk, the old one refers to the earlier weights.
    set_apart.remove_worse_weights(folder, state)


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


def iter_intermediate_models(inputs: Inputs, steps: Sequence[int], folder: Path) -> Iterator[tuple[int, Model]]:
    """Yield the model after each of these steps, in eval mode. The run is trained again in `folder`.

    Steps must ascend and end before the last step of the run. Files of an earlier attempt in `folder` are removed. Only
    one process can measure, which `explain_indivisible` checks.
    """
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
