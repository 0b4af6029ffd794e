"""Vectors of a few documents, each under many contexts: how far they move, and how far apart documents are (fig. 15).

1. From TREC-COVID (§9.5), or from the first dataset of a suite without it, D documents are drawn. Every dataset of the
   suite, up to C of them, gives one context: the one that `evaluate/contexts.py` draws for it.
2. All D documents are embedded under each context. `within`: mean distance between the vectors of one document under
   two contexts. `between`: mean distance to the other documents' vectors. `nearest`: to the nearest other document.
3. The first few documents are laid out by PCA (two directions of all their vectors) for the picture.

Shapes: D documents, C contexts, H dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.data.beir import Suite, SuiteDataset
from repro.evaluate.collections import read_collections
from repro.evaluate.contexts import draw_context
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.seeds import generator_for

PAPERS = "trec-covid"
NUM_DOCUMENTS, NUM_CONTEXTS, NUM_DRAWN = 64, 16, 6


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `spread/within`, `between`, `nearest`, a value a document, and `pca/DOCUMENT/CONTEXT/x` and `y`."""
    run, datasets = inputs.run, looked_at(inputs.suite.datasets)
    collections = list(read_collections(Suite(inputs.suite.name, datasets)).values())
    role, retrieval = collections[0].document_role, collections[0].retrieval
    order = generator_for(run.context_seed, "documents under many contexts").permutation(len(retrieval.documents))
    texts = [retrieval.documents[place] for place in order[:NUM_DOCUMENTS]]
    drawn, vectors = [], []
    for one in collections:
        drawn.append(draw_context("own", one.retrieval, num_contexts=run.num_contexts, seed=run.context_seed))
        model.set_context(drawn[-1].texts, run.context_seed, one.document_role)
        vectors.append(model.encode(texts, role))
    vectors_CDH = np.stack(vectors)
    arrays = distances(vectors_CDH)
    metrics = {name: float(values.mean()) for name, values in arrays.items()}
    metrics["spread/kept_apart"] = float((arrays["spread/within"] < arrays["spread/nearest"]).mean())
    layout_CD2 = principal_plane(vectors_CDH[:, :NUM_DRAWN])
    for (context, document), (x, y) in _points(layout_CD2):
        metrics[f"pca/document {document + 1}/{datasets[context].name}/x"] = x
        metrics[f"pca/document {document + 1}/{datasets[context].name}/y"] = y
    shown = [{"document": f"document {place + 1}", "text": text} for place, text in enumerate(texts[:NUM_DRAWN])]
    found = {"dataset": retrieval.name, "contexts": [context.provenance for context in drawn]}
    return Measured(metrics, arrays, found, {"documents": shown})


def looked_at(datasets: Sequence[SuiteDataset]) -> tuple[SuiteDataset, ...]:
    """Return the datasets that give contexts, in their order but that of the paper's documents first."""
    first = [one for one in datasets if one.name == PAPERS]
    return tuple([*first, *(one for one in datasets if one not in first)][:NUM_CONTEXTS])


def _points(layout_CD2: np.ndarray) -> list[tuple[tuple[int, int], tuple[float, float]]]:
    places = np.ndindex(*layout_CD2.shape[:2])
    return [((c, d), (float(layout_CD2[c, d, 0]), float(layout_CD2[c, d, 1]))) for c, d in places]


def distances(vectors_CDH: np.ndarray) -> dict[str, np.ndarray]:
    """Return Euclidean distances, one value a document (D,): within it, to the others on average, to the nearest."""
    from scipy.spatial.distance import cdist

    num_contexts, num_documents, width = vectors_CDH.shape
    flat = vectors_CDH.transpose(1, 0, 2).reshape(-1, width).astype(np.float64)
    # of differences: `2 - 2 a·b` of float32 units loses all that a small distance is
    apart = cdist(flat, flat).reshape(num_documents, num_contexts, num_documents, num_contexts)
    by_pair_DD = apart.mean(axis=(1, 3))
    own_D = np.diagonal(by_pair_DD) * num_contexts / max(1, num_contexts - 1)  # a vector and itself do not count
    others_DD = np.where(np.eye(num_documents, dtype=bool), np.nan, by_pair_DD)
    return {
        "spread/within": own_D,
        "spread/between": np.nanmean(others_DD, axis=1),
        "spread/nearest": np.nanmin(others_DD, axis=1),
    }


def principal_plane(vectors_CDH: np.ndarray) -> np.ndarray:
    """Return the two first principal coordinates of all vectors, (C, D, 2); the larger side of each axis is positive"""
    flat = vectors_CDH.reshape(-1, vectors_CDH.shape[-1]).astype(np.float64)
    centred = flat - flat.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    laid = centred @ axes.T
    laid *= np.where(np.abs(laid.max(axis=0)) < np.abs(laid.min(axis=0)), -1, 1)
    return laid.reshape(*vectors_CDH.shape[:2], 2)
