"""How many texts keep their graph at once, by stage: what a share of a GPU's memory holds, or of a CPU's free memory.

    REPRO_CHUNKS="64,128" repro run table1 --scale large     # texts of the second stage, texts of the first

1. A text is reckoned at its longest: in the second stage behind all contexts and soft prompts, in the first alone.
2. Its graph keeps, a token and unit of width, so many bytes in each layer and a few outside of them, and a layer's copy
of its attention mask. 3. Each stage may take `SHARE` of the memory, so many texts, and a few in any case; a step whose
texts all fit keeps both graphs at once, which leaves the rest for weights, their optimiser and the loss.

On a CPU the budget is half of the memory that is free when a run starts, and at least `LEAST_BUDGET`. A step that fits
keeps all its graphs. The sizes are stored in checkpoint and record, and a resumed run keeps them: its numbers repeat.

Training, `doctor --gpu` and the planner reckon alike. Nothing here needs torch.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from repro.model.config import ModelConfig
from repro.spec import Run
from repro.train.switches import Switches

if TYPE_CHECKING:
    import torch

VARIABLE = "REPRO_CHUNKS"
CPU_PIECE, GPU_PIECE = 64, 1024
SHARE = 0.3
LEAST_TEXTS = 4
FREE_SHARE = 0.5
LEAST_BUDGET = 2**30
"""Bytes on a CPU. Libraries and weights take about as much, so chunks for a smaller budget save little."""
NARROW = {"nomic": 58.2, "bert": 40.2, "modernbert": 56.2}
"""Bytes that autograd keeps a token, layer and unit of width, by backbone, with the stages in bfloat16.

Measured, as the rest here, by `torch.autograd.graph.saved_tensors_hooks` on a CPU, weights left out, as differences
between models of two and four layers on four and eight texts, heads 64 wide, feed-forward layers four times the width;
tests/train/test_chunks.py measures them again. No GPU has confirmed them."""
WIDE = {"nomic": 96.2, "bert": 64.2, "modernbert": 104.2}
"""The same in float32."""
NARROW_MASK, WIDE_MASK = 2, 4
"""Bytes of the mask a layer keeps, for each pair of a text's tokens."""
OUTSIDE = 4.5
"""Bytes a token and unit of width before the first layer and after the last."""
CHECKPOINTED = 4.0
"""Bytes a token, layer and unit of width when layers are computed again, one at a time, in backward."""


@dataclass(frozen=True)
class ChunkSizes:
    """How many texts keep their graph at once, by stage, and how many of similar length are computed together."""

    texts: int = 4096
    contexts: int = 4096
    piece: int | None = None  # None: what suits the device

    def on(self, device: torch.device) -> ChunkSizes:
        """Return how many are computed together: a CPU wants them to fit its cache, a GPU wants many at once."""
        piece = self.piece or (GPU_PIECE if device.type == "cuda" else CPU_PIECE)
        return ChunkSizes(min(piece, self.texts), min(piece, self.contexts), piece)

    def hold(self, num_texts: int, num_contexts: int) -> bool:
        """Return whether all texts of a step keep their graph at once; else each is computed forward twice."""
        return num_texts <= self.texts and num_contexts <= self.contexts

    @property
    def words(self) -> str:
        """The sizes as REPRO_CHUNKS takes them."""
        return f"{self.texts},{self.contexts}"


Sizes = ModelConfig | Run
"""Both say how large a model is, in the same words."""


def estimate_second_stage_bytes(model: Sizes, switches: Switches) -> float:
    """Return what the graph of one text keeps until backward, behind its context where the model has one."""
    before = model.num_contexts * model.tokens_per_document + model.num_soft_prompts
    num_tokens = model.max_tokens + (before if model.architecture == "contextual" else 0)
    return _bytes(num_tokens, model.num_layers, model, switches)


def estimate_first_stage_bytes(model: Sizes, switches: Switches) -> float:
    """Return what the graph of one context document keeps until backward."""
    return _bytes(model.max_tokens, model.num_first_stage_layers, model, switches)


def _bytes(num_tokens: int, num_layers: int, model: Sizes, switches: Switches) -> float:
    kept, mask = (NARROW, NARROW_MASK) if switches.autocast else (WIDE, WIDE_MASK)
    a_layer = kept[model.backbone] * model.hidden_size + mask * num_tokens
    layers = num_layers * a_layer
    if switches.checkpoint:
        layers = num_layers * CHECKPOINTED * model.hidden_size + a_layer
    return num_tokens * (OUTSIDE * model.hidden_size + layers)


def chunks_for(
    model: Sizes,
    gpu_bytes: int | None,
    switches: Switches,
    *,
    free: int | None = None,
    stored: str | None = None,
    num_texts: int = 0,
) -> ChunkSizes:
    """Return the chunk sizes of a run.

    Args:
        model: What is trained.
        gpu_bytes: All memory of the GPU; None for a CPU.
        switches: How stages are computed.
        free: Free memory of a machine without GPU; None if it is unknown, which counts as enough.
        stored: The sizes in the run's checkpoint, which stay as they are.
        num_texts: Queries and documents of a step, which a CPU keeps together if they fit.

    Raises:
        ValueError: REPRO_CHUNKS, which overrides everything, is not two numbers.
    """
    if (given := chunks_given()) is not None:
        return given
    if stored:
        return parse_sizes(stored)
    if gpu_bytes is not None:
        of_each = (estimate_second_stage_bytes(model, switches), estimate_first_stage_bytes(model, switches))
        return ChunkSizes(*(max(LEAST_TEXTS, int(SHARE * gpu_bytes / one)) for one in of_each))
    if free is None:
        return ChunkSizes()
    switches, usual = replace(switches, autocast=False), ChunkSizes()
    num_contexts = model.num_contexts if model.architecture == "contextual" else 0
    budget = max(LEAST_BUDGET, int(FREE_SHARE * free))
    if estimate_graph_bytes(model, usual, switches, num_texts=num_texts, num_contexts=num_contexts) <= budget:
        return usual
    of_each = (estimate_second_stage_bytes(model, switches), estimate_first_stage_bytes(model, switches))
    return ChunkSizes(*(max(LEAST_TEXTS, min(4096, int(budget / one))) for one in of_each))


def parse_sizes(words: str) -> ChunkSizes:
    """Return the sizes that a checkpoint or record holds."""
    texts, contexts = words.split(",")
    return ChunkSizes(int(texts), int(contexts))


def chunks_given() -> ChunkSizes | None:
    """Return the sizes that the environment sets, None when it sets none; ValueError when they are not two numbers."""
    words = os.environ.get(VARIABLE, "").strip()
    if not words:
        return None
    numbers = [part.strip() for part in words.split(",")]
    if len(numbers) != 2 or not all(map(_is_count, numbers)):
        raise ValueError(
            f"{VARIABLE} is {words[:40]!r}: it takes how many texts of the second and of the first stage keep their "
            f"graph at once, two whole numbers of at least 1, such as {VARIABLE}=64,128; or unset it"
        )
    return ChunkSizes(*map(int, numbers))


def _is_count(word: str) -> bool:
    return word.isascii() and word.isdigit() and len(word) < 10 and int(word) > 0


def estimate_graph_bytes(
    model: Sizes, sizes: ChunkSizes, switches: Switches, *, num_texts: int, num_contexts: int = 0
) -> float:
    """Return what a step keeps at most: both graphs when all its texts fit, else a chunk's of the stage with more."""
    second = min(num_texts, sizes.texts) * estimate_second_stage_bytes(model, switches)
    first = min(num_contexts, sizes.contexts) * estimate_first_stage_bytes(model, switches)
    return second + first if sizes.hold(num_texts, num_contexts) else max(second, first)
