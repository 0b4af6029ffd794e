"""Model sizes for timing benchmarks: those of our own scales, and full MiniLM on the same text."""

from __future__ import annotations

from typing import Any

from repro.data.pairs import Pairs
from repro.pipeline.stages import StageGraph
from repro.spec import Run, base

MINILM: dict[str, Any] = {
    "backbone": "bert",
    "start": "minilm",
    "num_layers": 6,
    "num_first_stage_layers": 6,
    "hidden_size": 384,
    "num_contexts": 64,
    "num_soft_prompts": 8,
    "prompts": "task",
    "max_tokens": 64,
}
SIZES = ("smoke", "desk", "minilm")


def run_of(size: str, **changes: Any) -> Run:
    """Return a run of that size: its text, batch and model."""
    return base("desk", **MINILM, **changes) if size == "minilm" else base(size, **changes)


def load_pairs(run: Run) -> Pairs:
    """Return the training pairs of a run. Builds corpus and selection if they are missing."""
    graph = StageGraph(run)
    graph.corpus.build(print)
    graph.selection.build(print)
    return graph.selected_pairs()
