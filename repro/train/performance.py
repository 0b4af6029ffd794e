"""Precision, chunk sizes and shares of processes: they change only rounding and random drops of a step.

On a GPU the stages are computed in bfloat16. `REPRO_SWITCHES=no-autocast` computes them in float32. The chunk sizes depend
on the precision, and random drops depend on the chunk sizes. Set REPRO_CHUNKS to compare both.

`REPRO_CHUNKS` sets the number of texts whose graphs are in memory together, per stage:

    REPRO_CHUNKS="64,128" repro run table1 --scale large     # texts of the second stage, texts of the first

1. Every text counts with its maximum length. In the second stage this includes contexts and soft prompts.
2. A graph needs a number of bytes per token, layer and unit of width, a few outside the layers, and one attention mask
   per layer.
3. A step whose graphs all fit into `STEP_SHARE` of the memory stores them and takes one pass. Otherwise each stage gets
   a share of the memory, and at least `MIN_TEXTS_PER_CHUNK` texts. The rest is left for weights, optimiser and loss.

On a CPU the memory is what is free when a run starts. The sizes are stored in checkpoint and record, and a resumed run
uses the stored sizes, so its numbers are reproducible. Training and the planner use the same estimate.

Processes divide the batches of a step. A step has G batches, `Run.batches_a_step`. Each batch has its own negatives,
contexts, mask and loss, and the gradient is the mean over batches. If G is a multiple of the number of processes W, each
process computes G / W whole batches, as in the official scripts. Otherwise all processes share every batch.

This module does not import torch.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.model.config import ModelConfig
from repro.spec import TRAINED, Run, get_first_phase

if TYPE_CHECKING:
    import torch

SWITCHES_VARIABLE, CHUNKS_VARIABLE = "REPRO_SWITCHES", "REPRO_CHUNKS"
CPU_PIECE, GPU_PIECE = 64, 1024
STEP_SHARE = 0.5
"""Share of the memory for the graphs of a whole step."""
GPU_CHUNK_SHARE, CPU_CHUNK_SHARE = 0.3, 0.5
"""Share of the memory for the chunk of a stage. If the texts of both stages fit their chunks, both are in memory."""
MIN_TEXTS_PER_CHUNK = 4
MIN_BUDGET_BYTES = 2**30
"""Minimum budget on a CPU in bytes. Libraries and weights need about as much, so smaller chunks save little."""
NARROW = {"nomic": 58.2, "bert": 40.2, "modernbert": 56.2}
"""Bytes that autograd stores per token, layer and unit of width, by backbone, with stages in bfloat16.

These constants were measured with `torch.autograd.graph.saved_tensors_hooks` on a CPU, without weights. They are
differences between models of two and four layers on four and eight texts. Heads are 64 wide and feed-forward layers
four times the width. tests/train/test_performance.py repeats the measurement. On an H200, ten steps of `small`
in chunks chosen for 42 GiB used 40 GiB.
"""
WIDE = {"nomic": 96.2, "bert": 64.2, "modernbert": 104.2}
"""The same in float32."""
NARROW_MASK, WIDE_MASK = 2, 4
"""Bytes of a layer's mask per pair of tokens of a text, in bfloat16 and float32."""
OUTSIDE_LAYERS = 4.5
"""Bytes per token and unit of width outside the layers."""
NO_AUTOCAST = "no-autocast"


def uses_autocast() -> bool:
    """Return whether a GPU computes the stages in bfloat16. Raises ValueError for an unknown word in REPRO_SWITCHES."""
    words = os.environ.get(SWITCHES_VARIABLE, "").split()
    if unknown := [word for word in words if word != NO_AUTOCAST]:
        raise ValueError(f"{SWITCHES_VARIABLE} has {unknown[0][:40]!r}: the only word is {NO_AUTOCAST!r}")
    return not words


@dataclass(frozen=True)
class ChunkSizes:
    """Number of texts with a graph in memory, per stage, and number of texts of similar length that are computed
    together.
    """

    texts: int = 4096
    contexts: int = 4096
    piece: int | None = None  # None: the default of the device

    def on(self, device: torch.device) -> ChunkSizes:
        """Return the sizes of the pieces on a device. A CPU needs pieces that fit its cache, a GPU needs large ones."""
        piece = self.piece or (GPU_PIECE if device.type == "cuda" else CPU_PIECE)
        return ChunkSizes(min(piece, self.texts), min(piece, self.contexts), piece)

    def hold(self, num_texts: int, num_contexts: int) -> bool:
        """Return whether the graphs of all texts of a step fit. Otherwise each text runs forward twice."""
        return num_texts <= self.texts and num_contexts <= self.contexts

    @property
    def words(self) -> str:
        """Sizes in the format of REPRO_CHUNKS."""
        return f"{self.texts},{self.contexts}"


Sizes = ModelConfig | Run
"""Objects with the size of a model. Both use the same field names."""


def estimate_second_stage_bytes(model: Sizes, *, autocast: bool) -> float:
    """Return the bytes of one text's graph in the second stage, with its context if the model has one."""
    num_tokens = model.max_tokens
    if model.architecture == "contextual":
        num_tokens += model.num_contexts * model.tokens_per_document + model.num_soft_prompts
    return _estimate_text_bytes(num_tokens, model.num_layers, model, autocast)


def estimate_first_stage_bytes(model: Sizes, *, autocast: bool) -> float:
    """Return the bytes of one context document's graph."""
    return _estimate_text_bytes(model.max_tokens, model.num_first_stage_layers, model, autocast)


def _estimate_text_bytes(num_tokens: int, num_layers: int, model: Sizes, autocast: bool) -> float:
    """Return the bytes of the graph of one text."""
    activations, mask = (NARROW, NARROW_MASK) if autocast else (WIDE, WIDE_MASK)
    layer = activations[model.backbone] * model.hidden_size + mask * num_tokens
    return num_tokens * (OUTSIDE_LAYERS * model.hidden_size + num_layers * layer)


def estimate_graph_bytes(
    model: Sizes, sizes: ChunkSizes, *, autocast: bool, num_texts: int, num_contexts: int = 0
) -> float:
    """Return the peak bytes of a step's graphs: both stages if all texts fit, else one chunk of the larger stage."""
    # If everything fits, both graphs exist until the backward pass. In chunks, only one piece of one stage has a graph.
    second = min(num_texts, sizes.texts) * estimate_second_stage_bytes(model, autocast=autocast)
    first = min(num_contexts, sizes.contexts) * estimate_first_stage_bytes(model, autocast=autocast)
    return second + first if sizes.hold(num_texts, num_contexts) else max(second, first)


def choose_chunks(
    model: Sizes,
    *,
    autocast: bool,
    num_texts: int,
    gpu_bytes: int | None = None,
    free: int | None = None,
    stored: str = "",
) -> ChunkSizes:
    """Return the chunk sizes of a run.

    Args:
        model: Model or run to train.
        autocast: Whether a GPU computes in bfloat16.
        num_texts: Queries and documents of a step.
        gpu_bytes: Total memory of the GPU, or None for a CPU.
        free: Free memory of a machine without a GPU. None means unknown, and the default sizes are used.
        stored: Sizes in the run's checkpoint, which remain unchanged.

    Raises:
        ValueError: REPRO_CHUNKS, which overrides everything, is not two numbers.
    """
    override = read_chunks_variable()
    if override is not None:
        return override
    if stored:
        return ChunkSizes(*map(int, stored.split(",")))
    default = ChunkSizes()
    if gpu_bytes is not None:
        # A share of the total memory. The free memory depends on other programs, and the sizes should not.
        step_budget, chunk_budget = STEP_SHARE * gpu_bytes, GPU_CHUNK_SHARE * gpu_bytes
    elif free is not None:
        # a CPU trains in float32
        autocast = False
        step_budget, chunk_budget = (max(MIN_BUDGET_BYTES, share * free) for share in (STEP_SHARE, CPU_CHUNK_SHARE))
    else:
        return default
    num_contexts = model.num_contexts if model.architecture == "contextual" else 0
    graphs = estimate_graph_bytes(model, default, autocast=autocast, num_texts=num_texts, num_contexts=num_contexts)
    if graphs <= step_budget:
        return default
    bytes_per_text = [
        estimate(model, autocast=autocast) for estimate in (estimate_second_stage_bytes, estimate_first_stage_bytes)
    ]
    sizes = (max(MIN_TEXTS_PER_CHUNK, int(chunk_budget / num_bytes)) for num_bytes in bytes_per_text)
    return ChunkSizes(*(min(default.texts, size) for size in sizes))


def read_chunks_variable() -> ChunkSizes | None:
    """Return the sizes that REPRO_CHUNKS sets, or None. Raises ValueError if it is not two numbers."""
    text = os.environ.get(CHUNKS_VARIABLE, "").strip()
    if not text:
        return None
    numbers = re.fullmatch(r"0*([1-9][0-9]{0,8})\s*,\s*0*([1-9][0-9]{0,8})", text)
    if numbers is None:
        raise ValueError(f"{CHUNKS_VARIABLE} is {text[:40]!r}: expected two whole numbers of at least 1, as 64,128")
    return ChunkSizes(*map(int, numbers.groups()))


def batches_are_sharded(batches_a_step: int, num_processes: int) -> bool:
    """Return whether all processes share each batch. Otherwise each process has G / W whole batches."""
    return batches_a_step % num_processes > 0


def list_own_places(batches_a_step: int, *, rank: int, num_processes: int) -> range:
    """Return the positions in the step of the batches that a process computes, whole or shared."""
    if batches_are_sharded(batches_a_step, num_processes):
        return range(batches_a_step)
    num_own = batches_a_step // num_processes
    return range(rank * num_own, (rank + 1) * num_own)


def explain_indivisible(run: Run, num_processes: int) -> str:
    """Return an error message if `num_processes` cannot train the run or its first phase, else an empty string."""
    if run.architecture not in TRAINED:
        return ""
    if run.measure == "steps" and num_processes > 1:
        return f"measure='steps' evaluates during training and needs one process, not {num_processes}"
    size, batches_a_step = run.batch_size, run.batches_a_step
    if not batches_are_sharded(batches_a_step, num_processes) or size % num_processes == 0:
        first_phase = get_first_phase(run)
        return explain_indivisible(first_phase, num_processes) if first_phase else ""
    return (
        f"a batch of {size} cannot be shared equally by {num_processes} processes (nor can "
        f"batches_a_step={batches_a_step} be distributed whole). The number of processes must divide {size} or {batches_a_step}"
    )
