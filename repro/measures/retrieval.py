"""Scores on the run's suite: NDCG@10 and others for each dataset, under the own, a wrong and the null context."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.evaluate.suites import Evaluation, evaluate_bm25, evaluate_suite
from repro.inputs import suite_of
from repro.measures import Measured
from repro.spec import Run

CONTEXTS = ("own", "wrong", "null")


def measure(run: Run, model: Any, folder: Path) -> Measured:
    """Scores the model (or the reference system that stands in its place) on the run's suite."""
    evaluation = evaluate(run, model, folder / "trec")
    return Measured(evaluation.metrics, evaluation.per_query, evaluation.provenance)


def evaluate(run: Run, model: Any, folder: Path) -> Evaluation:
    """Scores a run's system on the run's suite."""
    suite = suite_of(run)
    if run.architecture == "bm25":
        return evaluate_bm25(suite, folder=folder)
    if run.architecture == "contextual":
        count = run.num_contexts if run.num_test_contexts is None else run.num_test_contexts
        return evaluate_suite(model, suite, contexts=CONTEXTS, num_contexts=count, seed=run.context_seed, folder=folder)
    return evaluate_suite(surrogate_encoder(run) if model is None else model, suite, folder=folder)


def surrogate_encoder(run: Run) -> SurrogateEncoder:
    """Gives the run's surrogate, untrained, as something to be scored."""
    from repro.batches.surrogate import load_surrogate

    return SurrogateEncoder(load_surrogate(run.surrogate), run.max_tokens)


@dataclass(frozen=True)
class SurrogateEncoder:
    """The untrained surrogate as something to be scored."""

    surrogate: Any
    max_tokens: int

    def set_context(self, texts: Sequence[str] | None, seed: int = 0) -> None:
        """Takes and ignores a context."""

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Gives the surrogate's unit vectors, float32 (N, D)."""
        vectors_ND: np.ndarray = self.surrogate.embed(list(texts), self.max_tokens)
        return vectors_ND
