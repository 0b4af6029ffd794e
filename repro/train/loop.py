"""Train a model, write its log and checkpoints, and resume with identical results (§4.2, §5).

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
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from repro.model.backbone import Backbone
from repro.model.contextual import ContextualModel, Model
from repro.model.texts import Texts
from repro.spec.validation import check_warmup
from repro.stopping import Interrupted, delay_stops, is_asked_to_stop
from repro.storage.platform_info import measure_peak_bytes
from repro.train.checkpoint import (
    MetricsLog,
    TrainState,
    describe_session,
    is_finished,
    read_checkpoint,
    write_checkpoint,
)
from repro.train.chunks import ChunkSizes
from repro.train.feed import Feed, StepFeed, TrainData, compute_batch_hash, get_sampler_state, iter_step_feeds
from repro.train.gradcache import Stages, add_gradients
from repro.train.loss import LossParts, batch_loss
from repro.train.optimizer import build_optimizer, compute_learning_rate, set_learning_rate
from repro.train.parallel import (
    any_process,
    average_over_processes,
    broadcast_weights,
    check_same_value,
    count_processes,
    gather_contexts,
    gather_documents,
    gather_with_gradient,
    rank,
    reduce_gradients,
)
from repro.train.set_apart import (
    SET_APART_LOSS,
    compute_set_apart_loss,
    is_measured_after,
    load_best_weights,
    note_loss,
    remove_worse_weights,
)
from repro.train.sharing import batches_are_sharded
from repro.train.switches import Switches


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """Training hyperparameters.

    The fields from `checkpoint_every_seconds` on change only rounding, if nothing is dropped at random. `chunks` may
    change random draws (sequence dropout, pooling by frequency), but not their distribution.
    """

    run_id: str
    seed: int
    num_steps: int
    learning_rate: float
    num_warmup_steps: int
    first_stage_rate: float = 1.0  # factor of the learning rate
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    temperature: float = 0.02
    loss: str = "infonce"
    nested_sizes: tuple[int, ...] = ()  # prefix widths of the Matryoshka loss, () for whole vectors
    batches_a_step: int = 1
    checkpoint_every_seconds: float = 120.0
    chunks: ChunkSizes = field(default_factory=ChunkSizes)
    switches: Switches = field(default_factory=Switches)
    values: Mapping[str, Any] = field(default_factory=dict)  # of the fields of the run, stored in checkpoints

    def __post_init__(self) -> None:
        check_warmup(self.num_warmup_steps, self.num_steps)

    @property
    def shares_batches(self) -> bool:
        """Whether the processes share each batch. Otherwise each computes whole batches."""
        return batches_are_sharded(self.batches_a_step, count_processes())


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
        OSError: The disk is full. The last checkpoint remains valid.
    """
    folder.mkdir(parents=True, exist_ok=True)
    # Every process has built the model from the same seed. Broadcasting rules out differences between machines.
    broadcast_weights(model.parameters())
    prepare(model, settings.switches)
    optimizer = make_optimizer(model, settings)
    state = _resume(folder, settings, data, model, optimizer)
    # A finished run gets no further session, because loading it computes no step.
    if not is_finished(state, settings.num_steps):
        session = describe_session(state.step, settings.switches, count_processes())
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
    open_log = MetricsLog(folder, state.step, state.log_sha256) if rank() == 0 else nullcontext()
    # Training seeds the global generators, so restore them for the caller afterwards.
    devices = range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices), open_log as log, closing(feeds), delay_stops():
        while not is_finished(state, settings.num_steps):
            state, line = _run_step(model, optimizer, feeds, settings, state)
            set_apart = data.set_apart if is_measured_after(state.step, settings.num_steps) else None
            if set_apart is not None:
                loss = compute_set_apart_loss(
                    model,
                    set_apart,
                    seed=settings.seed,
                    temperature=settings.temperature,
                    loss=settings.loss,
                    widths=settings.nested_sizes,
                )
                state = note_loss(folder, state, model, loss)
                line[SET_APART_LOSS] = loss
            # The state holds the digest of the log, so the line comes before the checkpoint that covers it.
            if log is not None:
                log.append(line)
                state = replace(state, log_sha256=log.digest)
            on_step(line)
            # All processes take the same decision. Otherwise those that continue would wait forever in a collective
            # call.
            stop = any_process(should_stop() or is_asked_to_stop(), model.device) and not is_finished(
                state, settings.num_steps
            )
            if stop or set_apart is not None or _is_due(settings, state.step, time.monotonic() - saved_at):
                _save_checkpoint(folder, state, model, optimizer, log)
                saved_at = time.monotonic()
            if stop:
                raise Interrupted(f"stopped after step {state.step} of {settings.num_steps}; the checkpoint is written")
        # `holds_best` is part of the checkpoint, so a later call does not load the weights again.
        if state.best_step and not state.holds_best:
            load_best_weights(folder, state, model)
            state = replace(state, holds_best=True)
            _save_checkpoint(folder, state, model, optimizer, log)
    return state


def make_optimizer(model: Model, settings: TrainSettings) -> torch.optim.Optimizer:
    """Build the optimiser for these settings."""
    return build_optimizer(
        model,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        first_stage_rate=settings.first_stage_rate,
        fused=settings.switches.fused,
    )


def prepare(model: Model, switches: Switches) -> None:
    """Apply the performance options to the backbones."""
    for backbone in model.modules():
        if isinstance(backbone, Backbone):
            backbone.set_checkpointing(switches.checkpoint)
            backbone.compile_forward("inductor" if switches.compile else None)


def _resume(
    folder: Path, settings: TrainSettings, data: TrainData, model: Model, optimizer: torch.optim.Optimizer
) -> TrainState:
    """Load the checkpoint of a folder, or return the initial state if there is none.

    Raises ValueError if its sampler state does not match. Warns if another number of processes changes random draws.
    """
    state = read_checkpoint(folder, settings.run_id, model, optimizer, settings.values)
    check_same_value("checkpoint", "none" if state is None else f"of step {state.step}, log {state.log_sha256}")
    if state is None:
        return TrainState(settings.run_id, num_processes=count_processes(), values=settings.values)
    # The seed alone is not enough: other data or another batch size would give other batches for the same step.
    sampler = get_sampler_state(data.batches, state.step * settings.batches_a_step)
    if tuple(state.sampler) != tuple(sampler):
        raise ValueError(
            f"the checkpoint in {folder} left its sampler at {list(state.sampler)}, not {list(sampler)} as here: "
            "the data, the batch size or the seed differs. Remove the folder to start again"
        )
    # Each process has its own random stream only if batches are shared, now or when the checkpoint was written.
    is_shared = settings.shares_batches or batches_are_sharded(settings.batches_a_step, state.num_processes)
    if state.num_processes != count_processes() and is_shared and has_random_drops(model) and rank() == 0:
        warnings.warn(
            f"the checkpoint in {folder} is of {state.num_processes} processes, now there are {count_processes()}: each "
            "process draws its own context drops, so the resumed training uses other draws than an uninterrupted one",
            stacklevel=2,
        )
    # An older checkpoint has no values, or lacks fields that were added since.
    return replace(state, num_processes=count_processes(), values=settings.values)


def has_random_drops(model: Model) -> bool:
    """Return whether training draws random drops, which depend on the number of processes and the chunk sizes."""
    config = model.config
    return (
        config.architecture == "contextual"
        and not config.is_blind
        and (config.sequence_dropout > 0 or config.pooling == "frequency")
    )


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
        "batch": "+".join(compute_batch_hash(batch.pairs_B) for batch in step_feed.batches),
        "pairs_per_second": round(sum(len(batch.pairs_B) for batch in step_feed.batches) / seconds, 1),
        "memory_bytes": measure_memory_bytes(model.device),
    }
    # On a busy machine a step takes longer, but not more processor time.
    cpu_seconds = state.cpu_seconds + time.process_time() - cpu_started_at
    seconds += state.seconds
    return replace(state, step=step, seconds=seconds, cpu_seconds=cpu_seconds, sampler=step_feed.sampler), line


def stages_for(model: Model, feed: Feed, settings: TrainSettings) -> Stages:
    """Return the stages and the loss of a batch for the gradient cache, in the precision of the model's device."""
    uses_bfloat16 = model.device.type == "cuda" and settings.switches.autocast

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
            queries_QD = gather_with_gradient(queries_QD)
            documents_MD = gather_documents(documents_MD, feed.num_own_pairs)
        return batch_loss(
            queries_QD,
            documents_MD,
            loss=settings.loss,
            widths=settings.nested_sizes,
            temperature=settings.temperature,
            masked=feed.masked,
        )

    stages = Stages(second, loss, first if feed.texts.contexts is not None else None)
    if settings.shares_batches:
        return replace(stages, gather=gather_contexts)
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
    reduce_gradients(model.parameters(), settings.batches_a_step)
    # Clip after averaging, so that the result does not depend on the number of processes.
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
    rate = compute_learning_rate(
        step, peak=settings.learning_rate, num_warmup_steps=settings.num_warmup_steps, num_steps=settings.num_steps
    )
    means = average_over_processes(values.mean(0))
    # One transfer, so the CPU waits for the device only once per step.
    loss, accuracy, masked_fraction, difficulty, norm_value = torch.cat([means, norm.double()[None]]).tolist()
    # A non-finite loss gives a non-finite norm in every process, so all processes raise.
    if not (math.isfinite(loss) and math.isfinite(norm_value)):
        raise ValueError(
            f"step {step} of {settings.num_steps}: loss {loss}, norm of the gradient {norm_value} at learning rate "
            f"{rate:.3g}: not finite. The step was skipped and the last checkpoint is unchanged. A restart would fail "
            "again: lower learning_rate, increase num_warmup_steps or, on a GPU, set REPRO_SWITCHES=no-autocast"
        )
    set_learning_rate(optimizer, rate)
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


def _is_due(settings: TrainSettings, step: int, seconds: float) -> bool:
    """Return whether a checkpoint is due after this step."""
    return seconds >= settings.checkpoint_every_seconds or step == settings.num_steps


def _save_checkpoint(
    folder: Path, state: TrainState, model: Model, optimizer: torch.optim.Optimizer, log: MetricsLog | None
) -> None:
    """Write a checkpoint and remove weights that it no longer needs.

    The log is synced first, because the checkpoint refers to its lines.
    """
    if log is not None:
        log.sync()
    if rank() == 0:
        write_checkpoint(folder, state, model, optimizer)
    # Only now: until the new checkpoint is on disk, the old one refers to the earlier weights.
    remove_worse_weights(folder, state)


def measure_gpu_bytes(device: torch.device) -> int | None:
    """Return the total memory of a GPU in bytes, or None for a CPU."""
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else None


def measure_memory_bytes(device: torch.device) -> int:
    """Return the peak memory in bytes: of the GPU if the model uses one, else of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return measure_peak_bytes()
