"""Score prefixes of the vectors (Matryoshka Representation Learning).

1. Every text is embedded once under each of the run's `test_contexts`.
2. The whole vectors and their normalised prefixes are searched. Their widths are those of the run's loss, or the
   standard ones.
3. If the loss has no widths, the vectors are also rotated first: `desk+svd16/…`. The first dimensions are then the
   first right singular vectors (scipy's SVD, uncentred) of the vectors of training documents.

Shapes: N training documents, W dimensions, Q queries.
"""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.analyses.caching import open_cache
from repro.analyses.retrieval import choose_encoder, make_setting
from repro.evaluate.suites import Encoder, EvaluationOutputs, evaluate_setting
from repro.pipeline.inputs import Inputs
from repro.seeds import make_rng
from repro.spec import list_scored_widths

NUM_SVD_DOCUMENTS = 4096


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}/…` and `{suite}+width16/…`, and for a model trained without widths also `{suite}+svd16/…`."""
    run = inputs.run
    widths = list_scored_widths(run)
    setting, key = make_setting(inputs, widths=widths), {}
    if run.nested_sizes is None and run.architecture == "biencoder":
        directions_WW = compute_principal_directions(_compute_training_vectors(inputs, model))
        setting = replace(setting, directions_WW=directions_WW)
        key["turned"] = hashlib.sha256(directions_WW.tobytes()).hexdigest()
    outputs = EvaluationOutputs(runs=folder / "trec", cache=open_cache(folder, run, model, **key))
    evaluation = evaluate_setting(choose_encoder(inputs, model), inputs.suite, setting, outputs)
    return Measured(evaluation.metrics, evaluation.per_query, {**evaluation.provenance, "widths": list(widths)})


def _compute_training_vectors(inputs: Inputs, model: Encoder) -> np.ndarray:
    num_pairs = len(inputs.pairs)
    rows = make_rng(inputs.run.seed, "svd").permutation(num_pairs)[:NUM_SVD_DOCUMENTS]
    return model.encode(inputs.pairs.texts("document", np.sort(rows)), "document")


def compute_principal_directions(vectors_NW: np.ndarray) -> np.ndarray:
    """Return the right singular vectors as columns, the first one first, float32 (W, W)."""
    from scipy.linalg import svd

    rows_WW = svd(np.asarray(vectors_NW, np.float64), full_matrices=len(vectors_NW) < vectors_NW.shape[1])[2]
    return np.ascontiguousarray(rows_WW.T, dtype=np.float32)
