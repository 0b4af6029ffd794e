"""An encoder whose scores are known, and the contexts under which most tests score it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from repro.evaluate.suites import Setting

FAMILIES = {"ants": "insects", "bees": "insects", "oaks": "trees"}
SETTING = Setting(contexts=("own", "wrong", "null"), num_contexts=4, seed=1)


class FakeEncoder:
    """An encoder with one dimension per number. A query has the right one only if the context has its collection."""

    def __init__(self) -> None:
        self.contexts: list[Sequence[str] | None] = [None]
        self.texts: list[str] = []

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Store the context. The last one counts."""
        self.contexts.append(texts)

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return unit vectors (N, 50), and store the texts."""
        self.texts += texts
        vectors, context = np.zeros((len(texts), 50), dtype=np.float32), self.contexts[-1]
        for row, text in enumerate(texts):
            _, collection, number = text.split()
            is_right = prompt == "document" or context is None or any(collection in other for other in context)
            vectors[row, int(number) + (0 if is_right else 20)] = 1
        return vectors
