"""Scores of prefixes of the vectors (Matryoshka Representation Learning): how much of a vector a search needs.

1. Every text is embedded once, under each of the run's `test_contexts`. 2. The whole vectors and their prefixes,
normalised anew, are searched: of the widths that the run's loss names, else of the standard ones. 3. Of a model whose
loss names no widths, the vectors are also rotated so that their first dimensions are the first right singular vectors
(scipy's SVD, uncentred) of vectors of the training documents, and cut likewise: `desk+svd16/…`.

Shapes: N training documents, W dimensions, Q queries.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.analyses.keeping import keep_in
from repro.analyses.retrieval import contextual_encoder, make_setting
from repro.evaluate.suites import Encoder, Keeping, evaluate_setting
from repro.pipeline.inputs import Inputs
from repro.seeds import generator_for
from repro.spec import nested_widths, standard_widths

NUM_SVD_DOCUMENTS = 4096


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}/…` and `{suite}+width16/…`; for a model trained without widths also `{suite}+svd16/…`."""
    run = inputs.run
    widths = nested_widths(run) or standard_widths(run.hidden_size)
    setting, decides = make_setting(inputs, widths=widths), {}
    if run.nested_sizes is None and run.architecture == "biencoder":
        directions_WW = principal_directions(_compute_training_vectors(inputs, model))
        setting = replace(setting, directions_WW=directions_WW)
        decides["turned"] = hashlib.sha256(directions_WW.tobytes()).hexdigest()
    encoder = contextual_encoder(run, model) if run.architecture == "contextual" else model
    keeping = Keeping(runs=folder / "trec", kept=keep_in(folder, run, model, **decides))
    found = evaluate_setting(encoder, inputs.suite, setting, keeping)
    return Measured(found.metrics, found.per_query, {**found.provenance, "widths": list(widths)})


def _compute_training_vectors(inputs: Inputs, model: Encoder) -> np.ndarray:
    count = len(inputs.pairs)
    drawn = generator_for(inputs.run.seed, "svd").permutation(count)[:NUM_SVD_DOCUMENTS]
    return model.encode(inputs.pairs.texts("document", np.sort(drawn)), "document")


def principal_directions(vectors_NW: np.ndarray) -> np.ndarray:
    """Return the right singular vectors, the first in the first column, float32 (W, W)."""
    from scipy.linalg import svd

    rows_WW = svd(np.asarray(vectors_NW, np.float64), full_matrices=len(vectors_NW) < vectors_NW.shape[1])[2]
    return np.ascontiguousarray(rows_WW.T, dtype=np.float32)
