"""Use the biencoder of a run as a fixed encoder, for a filter that was trained on the same text as the model (§5).

`repro.execute` trains the run and saves its weights. `load_surrogate` then opens them by the id of the run.

Shapes: N texts, D dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from repro.storage.paths import run_folder


def get_trained_folder(run_id: str) -> Path:
    """Return the folder with the weights of a run that serves as a filter."""
    return run_folder(run_id) / "filter-model"


class TrainedEncoder:
    """Biencoder of a run. Texts are embedded without prompts."""

    depends_on_batch = True
    report: Callable[[int, int], None] = staticmethod(lambda num_done, num_texts: None)

    def __init__(self, run_id: str) -> None:
        from repro.model.biencoder import Biencoder

        folder = get_trained_folder(run_id)
        if not folder.is_dir():
            raise ValueError(f"filter_model={run_id} is not trained here: `repro run {run_id}` trains it")
        self._model = Biencoder.from_pretrained(folder)
        self.num_dimensions = self._model.config.hidden_size
        self.num_threads = 2 if self._model.device.type == "cuda" else 1

    def embed(self, texts: Sequence[str], max_tokens: int) -> np.ndarray:
        """Return unit vectors, float32 (N, D), of texts cut to `max_tokens`."""
        config = self._model.config
        self._model.config = replace(config, max_tokens=min(max_tokens, config.max_tokens))
        self._model.report = self.report
        return self._model.encode(list(texts))
