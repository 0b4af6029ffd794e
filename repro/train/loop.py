"""The training loop: batches in, weights, a log and checkpoints out; stopped anywhere, it goes on to the same numbers.

A step (§4.2, §5): 1. `feed` gives the texts of its batches; 2. the engine adds the gradients of each loss; 3. processes
bring them together, their mean over the batches is clipped; 4. where loss and gradient are numbers AdamW takes its
step, else the training ends; 5. one line is logged, means over the batches and all their hashes.
Whatever is random in a batch is a function of (seed, number of the batch), so nothing but weights, optimiser and the
number of steps has to be kept. Float32 on CPU; on a GPU the stages run under bfloat16 autocast, weights, loss and
gradients stay float32.

What a stage drops at random is drawn batch by batch, piece by piece and, where processes share batches, by each from a
stream of its own: another number of these, or other sizes of chunks and pieces, may draw otherwise. Without such draws
they change rounding alone.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from repro.model.backbone import Backbone
from repro.model.contextual import ContextualModel, Model
from repro.model.texts import Texts
from repro.spec.values import check_warmup
from repro.stopping import Interrupted, is_asked_to_stop, unbroken
from repro.storage.machine import measure_peak_bytes
from repro.train.checkpoint import TrainState, read_checkpoint, write_checkpoint
from repro.train.chunks import ChunkSizes
from repro.train.feed import Feed, StepFeed, TrainData, compute_batch_hash, feeds_of_steps, sampler_state
from repro.train.gradcache import Stages, add_gradients
from repro.train.loss import LossParts, batch_loss
from repro.train.metrics import MetricsLog
from repro.train.optimizer import build_optimizer, learning_rate_at, set_learning_rate
from repro.train.parallel import (
    any_process,
    count_processes,
    finish_gradients,
    gather_contexts,
    gather_documents,
    gather_with_gradient,
    mean_everywhere,
    rank,
    same_everywhere,
    same_value_everywhere,
)
from repro.train.sharing import batches_are_sharded
from repro.train.sittings import sitting_here
from repro.train.switches import Switches


@dataclass(frozen=True, kw_only=True)
class TrainSettings:
    """How to train; the last group, from `checkpoint_every_seconds` on, changes rounding only, where nothing is drawn.

    `chunks` may change what a stage drops at random (sequence dropout, pooling by frequency), never how likely that is.
    """

    run_id: str
    seed: int
    num_steps: int
    learning_rate: float
    num_warmup_steps: int
    first_stage_rate: float = 1.0  # of the learning rate
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    temperature: float = 0.02
    loss: str = "infonce"
    nested_sizes: tuple[int, ...] = ()  # widths of the prefixes that the loss is summed over; none: whole vectors
    batches_a_step: int = 1
    checkpoint_every_seconds: float = 120.0
    checkpoint_every_steps: int | None = None
    chunks: ChunkSizes = field(default_factory=ChunkSizes)
    switches: Switches = field(default_factory=Switches)

    def __post_init__(self) -> None:
        check_warmup(self.num_warmup_steps, self.num_steps)

    @property
    def shares_batches(self) -> bool:
        """Whether the processes there are share each batch; else each has whole ones."""
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
    """Train the model in place and return the final state; go on from the checkpoint in `folder` when there is one.

    `on_step` gets each line of the log. `Interrupted` when `should_stop` says so in any process; ValueError for a log
    or checkpoint of another run, or a loss that is no number; OSError on a full disk. The last checkpoint stays whole.
    """
    folder.mkdir(parents=True, exist_ok=True)
    same_everywhere(model.parameters())
    prepare(model, settings.switches)
    optimizer = optimizer_for(model, settings)
    state = _take_up(folder, settings, data, model, optimizer)
    if state.step < settings.num_steps:
        state = replace(state, chunks=settings.chunks.words)
        state = replace(state, sittings=[*state.sittings, sitting_here(state.step, settings.switches)])
    kept_at = time.monotonic()
    model.train()
    if model.device.type == "cuda":  # or the log would tell the peak of what this process did before
        torch.cuda.reset_peak_memory_stats(model.device)
    feeds, devices = _feeds(model, data, settings, state.step), range(torch.cuda.device_count())
    with torch.random.fork_rng(devices=devices), _open_log(folder, state) as log, closing(feeds), unbroken():
        while state.step < settings.num_steps:
            state, line = _advance(model, optimizer, feeds, settings, state)
            if log is not None:
                log.append(line)
                state = replace(state, log_sha256=log.digest)
            on_step(line)
            stop = any_process(should_stop() or is_asked_to_stop(), model.device) and state.step < settings.num_steps
            if stop or _is_due(settings, state.step, time.monotonic() - kept_at):
                _keep(folder, state, model, optimizer, log)
                kept_at = time.monotonic()
            if stop:
                raise Interrupted(f"stopped after step {state.step} of {settings.num_steps}; the checkpoint is written")
    return state


def optimizer_for(model: Model, settings: TrainSettings) -> torch.optim.Optimizer:
    """Return the optimiser that these settings ask for."""
    return build_optimizer(
        model,
        learning_rate=settings.learning_rate,
        weight_decay=settings.weight_decay,
        first_stage_rate=settings.first_stage_rate,
        fused=settings.switches.fused,
    )


def prepare(model: Model, switches: Switches, backend: str = "inductor") -> None:
    """Set up the backbones as the switches say; `backend` is torch.compile's."""
    for backbone in model.modules():
        if isinstance(backbone, Backbone):
            backbone.keep_less(switches.checkpoint)
            backbone.compile_forward(backend if switches.compile else None)


def _take_up(
    folder: Path, settings: TrainSettings, data: TrainData, model: Model, optimizer: torch.optim.Optimizer
) -> TrainState:
    state = read_checkpoint(folder, settings.run_id, model, optimizer)
    same_value_everywhere("checkpoint", "none" if state is None else f"of step {state.step}, log {state.log_sha256}")
    if state is None:
        return TrainState(settings.run_id, num_processes=count_processes())
    sampler = sampler_state(data.batches, state.step * settings.batches_a_step)
    if tuple(state.sampler) != tuple(sampler):
        raise ValueError(
            f"the checkpoint in {folder} left its sampler at {list(state.sampler)}, not {list(sampler)} as here: "
            "the data, the batch size or the seed is another one; remove the folder to start again"
        )
    shared = settings.shares_batches or batches_are_sharded(settings.batches_a_step, state.num_processes)
    if state.num_processes != count_processes() and shared and drops_at_random(model) and rank() == 0:
        warnings.warn(
            f"the checkpoint in {folder} is of {state.num_processes} processes, now there are {count_processes()}: each "
            "drops contexts by draws of its own, so the training goes on with other draws than it would have had",
            stacklevel=2,
        )
    return replace(state, num_processes=count_processes())


def drops_at_random(model: Model) -> bool:
    """Return whether a training step draws what it drops: such numbers depend on processes and chunk sizes."""
    config = model.config
    return (
        config.architecture == "contextual"
        and not config.is_blind
        and (config.sequence_dropout > 0 or config.pooling == "frequency")
    )


def _advance(
    model: Model,
    optimizer: torch.optim.Optimizer,
    feeds: Iterator[StepFeed],
    settings: TrainSettings,
    state: TrainState,
) -> tuple[TrainState, dict[str, Any]]:
    """Do one step; return the new state and the step's line."""
    started, step = time.monotonic(), state.step + 1
    batches, own, sampler = next(feeds)
    numbers = take_step(model, optimizer, own, settings, step=step)
    seconds = time.monotonic() - started  # the numbers are there: the device has done what they took
    line = {
        "step": step,
        **numbers,
        "batch": "+".join(compute_batch_hash(batch.pairs_B) for batch in batches),
        "pairs_per_second": round(sum(len(batch.pairs_B) for batch in batches) / seconds, 1),
        "memory_bytes": measure_memory_bytes(model.device),
    }
    return replace(state, step=step, seconds=state.seconds + seconds, sampler=sampler), line


def _feeds(model: Model, data: TrainData, settings: TrainSettings, first: int) -> Generator[StepFeed, None, None]:
    """Give what this process computes of each step from one on."""
    sees_documents = isinstance(model, ContextualModel) and not model.config.is_blind
    count = model.config.num_contexts if sees_documents else 0
    steps = range(first, settings.num_steps)
    return feeds_of_steps(data, steps, settings.batches_a_step, num_contexts=count, seed=settings.seed)


def stages_for(model: Model, feed: Feed, settings: TrainSettings) -> Stages:
    """Return the stages and the loss of a step as the engine takes them, under the precision of the model's device."""
    is_narrow = model.device.type == "cuda" and settings.switches.autocast

    def narrow() -> torch.autocast:
        return torch.autocast(model.device.type, dtype=torch.bfloat16, enabled=is_narrow)

    def first(texts: Texts) -> Tensor:
        assert isinstance(model, ContextualModel), "only a contextual model is given context documents"
        with narrow():
            return _wide(model.first_stage(texts))

    def second(texts: Texts, contexts_CD: Tensor | None) -> Tensor:
        with narrow():
            if isinstance(model, ContextualModel):
                assert (contexts_CD is None) == model.config.is_blind, "only a blind model is given no documents"
                return _wide(model.second_stage(texts, contexts_CD))
            return _wide(model.embed_texts(texts))

    def loss(queries_QD: Tensor, documents_MD: Tensor) -> LossParts:
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
    return replace(stages, gather=gather_contexts) if settings.shares_batches else stages


def _wide(vectors_ND: Tensor) -> Tensor:
    return vectors_ND.to(torch.promote_types(vectors_ND.dtype, torch.float32))


def take_step(
    model: Model, optimizer: torch.optim.Optimizer, feeds: Iterable[Feed], settings: TrainSettings, *, step: int
) -> dict[str, Any]:
    """Add the gradients of a step, finish them and take the optimiser's step; return what the log says of its numbers.

    ValueError, in every process and before a weight has moved, when the loss or the gradient's norm is not finite.
    """
    told = torch.stack([_add_batch(model, feed, settings) for feed in feeds])
    finish_gradients(model.parameters(), settings.batches_a_step)
    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
    rate = learning_rate_at(
        step, peak=settings.learning_rate, num_warmup_steps=settings.num_warmup_steps, num_steps=settings.num_steps
    )
    means = mean_everywhere(told.mean(0))
    *numbers, difficulty, norm_value = torch.cat([means, norm.double()[None]]).tolist()  # waits once
    loss, accuracy, masked_fraction = numbers
    if not (math.isfinite(loss) and math.isfinite(norm_value)):  # a loss that is not leaves no process a finite norm
        raise ValueError(
            f"step {step} of {settings.num_steps}: loss {loss}, norm of the gradient {norm_value} at learning rate "
            f"{rate:.3g}: not finite, so the step is not taken and the last checkpoint stays. Started again it would "
            "end so again: lower learning_rate, lengthen num_warmup_steps or, on a GPU, say REPRO_SWITCHES=no-autocast"
        )
    set_learning_rate(optimizer, rate)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    found = {"loss": loss, "accuracy": accuracy, "masked_fraction": masked_fraction, "learning_rate": rate}
    return {**found, "difficulty": None if math.isnan(difficulty) else difficulty}


def _add_batch(model: Model, feed: Feed, settings: TrainSettings) -> Tensor:
    """Add the gradient of a batch's loss; return its loss, accuracy, masked fraction and difficulty (NaN: none)."""
    torch.manual_seed(feed.draw_seed)
    feed = feed.to(model.device)
    parts = add_gradients(stages_for(model, feed, settings), feed.texts, settings.chunks)
    told = (parts.loss, parts.accuracy, parts.masked_fraction)
    difficulty = math.nan if feed.difficulty is None else feed.difficulty
    return torch.stack([*(one.double() for one in told), torch.full_like(told[0], difficulty, dtype=torch.float64)])


def _is_due(settings: TrainSettings, step: int, seconds: float) -> bool:
    every = settings.checkpoint_every_steps
    by_steps = every is not None and step % every == 0
    return by_steps or seconds >= settings.checkpoint_every_seconds or step == settings.num_steps


def _keep(
    folder: Path, state: TrainState, model: Model, optimizer: torch.optim.Optimizer, log: MetricsLog | None
) -> None:
    if log is not None:
        log.sync()
    if rank() == 0:
        write_checkpoint(folder, state, model, optimizer)


def _open_log(folder: Path, state: TrainState) -> AbstractContextManager[MetricsLog | None]:
    return MetricsLog(folder, state.step, state.log_sha256) if rank() == 0 else nullcontext()


def measure_gpu_bytes(device: torch.device) -> int | None:
    """Return the whole memory of a GPU; None for a CPU."""
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else None


def measure_memory_bytes(device: torch.device) -> int:
    """Return the most memory used so far: of the GPU if the model is on one, else of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return measure_peak_bytes()
