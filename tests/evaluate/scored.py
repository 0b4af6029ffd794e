"""Score an encoder on a suite by exact search, with the settings that most tests use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from repro.data.beir import Suite
from repro.evaluate.suites import Encoder, Evaluation, EvaluationOutputs, Setting, evaluate_setting

FAMILIES = {"ants": "insects", "bees": "insects", "oaks": "trees"}


def evaluate_suite(
    encoder: Encoder,
    suite: Suite,
    *,
    contexts: Sequence[str] = ("own",),
    num_contexts: int = 0,
    seed: int = 0,
    folder: Path | None = None,
) -> Evaluation:
    """Score an encoder by exact search under each context. Write TREC run files to `folder`."""
    setting = Setting(contexts=contexts, num_contexts=num_contexts, seed=seed)
    return evaluate_setting(encoder, suite, setting, EvaluationOutputs(runs=folder))


class FakeEncoder:
    """An encoder with one dimension per number. A query has the right one only if the context has its collection."""

    def __init__(self) -> None:
        self.contexts: list[Sequence[str] | None] = [None]

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Store the context. The last one counts."""
        self.contexts.append(texts)

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return unit vectors (N, 50)."""
        vectors, context = np.zeros((len(texts), 50), dtype=np.float32), self.contexts[-1]
        for row, text in enumerate(texts):
            _, collection, number = text.split()
            is_right = prompt == "document" or context is None or any(collection in other for other in context)
            vectors[row, int(number) + (0 if is_right else 20)] = 1
        return vectors
