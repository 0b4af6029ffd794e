"""Scores of prefixes of the vectors (Matryoshka Representation Learning): how much of a vector a search needs.

1. Every text is embedded once, under each of the run's `test_contexts`. 2. The whole vectors and their prefixes,
normalised anew, are searched: of the widths that the run's loss names, else of the standard ones. 3. Of a model whose
loss names no widths, the vectors are also rotated so that their first dimensions are the first right singular vectors
(scipy's SVD, uncentred) of vectors of the training documents, and cut likewise: `desk+svd16/…`.

Shapes: N training documents, W dimensions, Q queries.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from repro.evaluate.suites import Encoder, Keeping, evaluate_setting
from repro.inputs.inputs import Inputs
from repro.measures import Measured
from repro.measures.keeping import keep_in
from repro.measures.retrieval import contextual_encoder, setting_of
from repro.seeds import generator_for
from repro.spec import nested_widths, standard_widths

NUM_SVD_DOCUMENTS = 4096
Value = TypeVar("Value")


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}/…` and `{suite}+width16/…`; for a model trained without widths also `{suite}+svd16/…`."""
    run, suite = inputs.run, inputs.suite
    widths = nested_widths(run) or standard_widths(run.hidden_size)
    setting = setting_of(inputs, widths=widths)
    keeping = Keeping(runs=folder / "trec", kept=keep_in(folder, run, model))
    encoder = contextual_encoder(run, model) if run.architecture == "contextual" else model
    found = evaluate_setting(encoder, suite, setting, keeping)
    metrics, arrays = dict(found.metrics), dict(found.per_query)
    if run.nested_sizes is None and run.architecture == "biencoder":
        directions_WW = principal_directions(_training_vectors(inputs, model))
        kept = keep_in(folder, run, model, turned=hashlib.sha256(directions_WW.tobytes()).hexdigest())
        rotated = Rotated(model, directions_WW)
        by_svd = evaluate_setting(rotated, suite, setting, Keeping(runs=folder / "trec-svd", kept=kept))
        metrics |= _at_widths_of_svd(by_svd.metrics, suite.name)
        arrays |= _at_widths_of_svd(by_svd.per_query, suite.name)
    return Measured(metrics, arrays, {**found.provenance, "widths": list(widths)})


def _training_vectors(inputs: Inputs, model: Encoder) -> np.ndarray:
    count = len(inputs.pairs)
    drawn = generator_for(inputs.run.seed, "svd").permutation(count)[:NUM_SVD_DOCUMENTS]
    return model.encode(inputs.pairs.texts("document", np.sort(drawn)), "document")


def principal_directions(vectors_NW: np.ndarray) -> np.ndarray:
    """Return the right singular vectors, the first in the first column, float32 (W, W)."""
    from scipy.linalg import svd

    rows_WW = svd(np.asarray(vectors_NW, np.float64), full_matrices=len(vectors_NW) < vectors_NW.shape[1])[2]
    return np.ascontiguousarray(rows_WW.T, dtype=np.float32)


@dataclass(frozen=True)
class Rotated:
    """An encoder whose vectors are turned: whole vectors compare as before, prefixes are projections."""

    encoder: Encoder
    directions_WW: np.ndarray

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Hand the context on."""
        self.encoder.set_context(texts, seed, prompt)

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return unit vectors, float32 (N, W)."""
        turned_NW: np.ndarray = self.encoder.encode(texts, prompt) @ self.directions_WW
        return turned_NW


def _at_widths_of_svd(by_path: Mapping[str, Value], suite: str) -> dict[str, Value]:
    """Return what was found at widths, and nothing else, with paths that say so of the SVD: `desk+svd16/…`."""
    width, svd = f"{suite}+width", f"{suite}+svd"
    return {svd + path.removeprefix(width): value for path, value in by_path.items() if path.startswith(width)}
