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


def measure(run: Run, model: Any, folder: Path) -> Measured:
    """Scores the model (or the reference system that stands in its place) on the run's suite."""
    evaluation = evaluate(run, model, folder / "trec")
    return Measured(evaluation.metrics, evaluation.per_query, evaluation.provenance)


def evaluate(run: Run, model: Any, folder: Path) -> Evaluation:
    """Scores a run's system on the run's suite, a contextual model under each of the run's `test_contexts`."""
    suite = suite_of(run)
    if run.architecture == "bm25":
        return evaluate_bm25(suite, folder=folder)
    if run.architecture == "contextual":
        count = run.num_contexts if run.num_test_contexts is None else run.num_test_contexts
        contexts = run.test_contexts.split("+")
        if len(suite.datasets) == 1:  # alone, a collection has no wrong corpus
            contexts = [kind for kind in contexts if kind != "wrong"]
        encoder = model if run.num_test_contexts is None else WithNulls(model)
        return evaluate_suite(
            encoder, suite, contexts=contexts, num_contexts=count, seed=run.context_seed, folder=folder
        )
    return evaluate_suite(surrogate_encoder(run) if model is None else model, suite, folder=folder)


@dataclass(frozen=True)
class WithNulls:
    """A contextual model given fewer context documents than it has places for: the other places hold its null vector.

    The paper's way to "supply any number of contextual inputs" (figure 16).
    """

    model: Any

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Embeds the texts as context, and puts the null vector in the places that are left."""
        self.model.set_context(None)
        if texts:
            nulls_CD = self.model.context_CD
            self.model.set_context_tokens(self.model.tokenize(list(texts), prompt))
            given_CD = self.model.context_CD[: len(nulls_CD)]
            nulls_CD[: len(given_CD)] = given_CD
            self.model.context_CD = nulls_CD

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Gives unit vectors, float32 (N, D)."""
        vectors_ND: np.ndarray = self.model.encode(texts, prompt)
        return vectors_ND


def surrogate_encoder(run: Run) -> SurrogateEncoder:
    """Gives the run's surrogate, untrained, as something to be scored."""
    from repro.batches.surrogate import load_surrogate

    return SurrogateEncoder(load_surrogate(run.surrogate), run.max_tokens)


@dataclass(frozen=True)
class SurrogateEncoder:
    """The untrained surrogate as something to be scored."""

    surrogate: Any
    max_tokens: int

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Takes and ignores a context."""

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Gives the surrogate's unit vectors, float32 (N, D)."""
        vectors_ND: np.ndarray = self.surrogate.embed(list(texts), self.max_tokens)
        return vectors_ND
