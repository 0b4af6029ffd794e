"""From a run to its model, batches and training settings, before anything is trained."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from repro.batches.mixing import MixedSampler
from repro.batches.sampler import StoredSampler
from repro.data.own.imported import explain_none_set_apart
from repro.data.tokens import load_tokenizer
from repro.model.config import ModelConfig
from repro.model.contextual import Model
from repro.model.start import build_model, fit_to_start
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import domain_codes, get_tokenizer_name, list_domain_names, stores_order
from repro.pipeline.stages import make_batch_sampler
from repro.spec import FIELDS, Run, find_implementation, get_training_values, list_phases, nested_widths
from repro.spec.identity import get_training_id
from repro.spec.validation import check_warmup
from repro.storage.paths import is_imported
from repro.storage.platform_info import NO_GPUS, measure_peak_bytes
from repro.train.batch_view import BatchViewer
from repro.train.feed import Filtered, Sampler
from repro.train.loss import LossParts, batch_loss
from repro.train.parallel import count_processes
from repro.train.performance import (
    ChunkSizes,
    batches_are_sharded,
    explain_indivisible,
    read_chunks_variable,
    uses_autocast,
)

SMALL_HEAD_SIZE = 32
"""Head size of MiniLM."""
LARGE_HEAD_SIZE = 64
"""Head size of NomicBERT, for hidden sizes of at least 512."""
MAX_UNUSED_IDS = 1024
"""The largest number of unused word vectors. Configurations round the vocabulary up, but never by more than this."""
STEPS_PER_DIFFICULTY = 100


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
    autocast: bool = True  # on a GPU
    values: Mapping[str, Any] = field(default_factory=dict)  # of the fields of the run, stored in checkpoints

    def __post_init__(self) -> None:
        check_warmup(self.num_warmup_steps, self.num_steps)

    @property
    def shares_batches(self) -> bool:
        """Whether the processes share each batch. Otherwise each computes whole batches."""
        return batches_are_sharded(self.batches_a_step, count_processes())

    def compute_loss(self, queries_QD: Tensor, documents_MD: Tensor, masked: Tensor | None = None) -> LossParts:
        """Return the loss of this run."""
        loss, widths, temperature = self.loss, self.nested_sizes, self.temperature
        return batch_loss(queries_QD, documents_MD, loss=loss, widths=widths, temperature=temperature, masked=masked)


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


def build_untrained(run: Run) -> Model:
    """Build the model of a run with its start weights, without a first phase."""
    model = build_model(make_model_config(run), start=run.start, seed=run.seed, heads=run.heads)
    # for evaluation, because training has its own settings
    model.is_narrow = uses_autocast()
    return model


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
    uses_autocast()
    read_chunks_variable()
    if run.kept_weights == "best" and not is_imported(run.corpus):
        raise ValueError(explain_none_set_apart(run.corpus))
    for phase in list_phases(run):
        # Runs in epochs can be checked only if the number of batches is known.
        if phase.num_steps:
            make_train_settings(phase, 0)
    config = make_model_config(run)
    num_words = load_tokenizer(config.tokenizer).get_vocab_size()
    if not 0 <= config.vocab_size - num_words <= MAX_UNUSED_IDS:
        raise ValueError(f"start={run.start!r} has {config.vocab_size} words, not the {num_words} of its tokenizer")


def build_sampler(inputs: Inputs) -> Sampler:
    """Build the sampler of a run."""
    build = find_implementation("sampler", inputs.run.sampler, SAMPLERS, f"SAMPLERS in {__name__}")
    return build(inputs)


def _build_batch_sampler(inputs: Inputs) -> Sampler:
    run, pairs = inputs.run, inputs.pairs
    if run.mixing_alpha is not None:
        return MixedSampler(
            domain_codes(run, pairs),
            alpha=run.mixing_alpha,
            batch_size=run.batch_size,
            seed=run.seed,
            names=list_domain_names(run, pairs),
        )
    if stores_order(run):
        return StoredSampler(inputs.graph.order.build(), batch_size=run.batch_size, seed=run.seed)
    return make_batch_sampler(run, pairs, inputs.clusters if run.sampler == "cluster" else None)


SAMPLERS: dict[str, Callable[[Inputs], Sampler]] = dict.fromkeys(("random", "domain", "cluster"), _build_batch_sampler)
"""Builders of samplers by their name in `Run.sampler`."""


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
        raise ValueError(f"num_epochs={run.num_epochs} of {num_batches} batches are less than one step")
    values = _copy_fields(run, TrainSettings) | {"num_steps": num_steps, "nested_sizes": nested_widths(run)}
    return TrainSettings(
        run_id=get_training_id(run), autocast=uses_autocast(), values=get_training_values(run), **values
    )


def build_filter(inputs: Inputs) -> Callable[[np.ndarray, int], Filtered]:
    """Return a function that gives the mask of a batch (eq. 4) and its difficulty, given its pairs and its number.

    At the paper's scales, vectors that serve only the difficulty are half of all reads. They are then read every
    `STEPS_PER_DIFFICULTY` steps.
    """
    viewer, run = BatchViewer(inputs), inputs.run
    num_batches = run.batches_a_step * (STEPS_PER_DIFFICULTY if run.scale in ("small", "large") else 1)

    def filter_batch(pairs_B: np.ndarray, number: int = 0) -> Filtered:
        view = viewer(pairs_B, with_scores=number % num_batches < run.batches_a_step)
        return Filtered(view.masked, view.difficulty)

    return filter_batch


def measure_gpu_bytes(device: torch.device) -> int | None:
    """Return the total memory of a GPU in bytes, or None for a CPU."""
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else None


def measure_memory_bytes(device: torch.device) -> int:
    """Return the peak memory in bytes: of the GPU if the model uses one, else of this process."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    return measure_peak_bytes()
