"""Embed a few documents under many contexts, and compare how far they move with how far apart they are (figure 15).

1. D documents are drawn from TREC-COVID (§9.5), or from the first dataset of a suite without it. Each dataset of the
   suite, up to C of them, provides one context as in `evaluate/contexts.py`.
2. All D documents are embedded under each context. `within` is the mean distance between the vectors of one document
   under two contexts. `between` is the mean distance to the other documents, `nearest` that to the nearest one.
3. PCA (two directions of all their vectors) lays out the first few documents for the figure.

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
from repro.seeds import make_rng

PAPERS = "trec-covid"
NUM_DOCUMENTS, NUM_CONTEXTS, NUM_DRAWN = 64, 16, 6


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `spread/within`, `between` and `nearest` per document, and `pca/DOCUMENT/CONTEXT/x` and `y`."""
    run, datasets = inputs.run, choose_context_datasets(inputs.suite.datasets)
    if len(datasets) < 2:
        raise ValueError(
            f"measure='spread' with suite={run.suite!r}, which has one collection and so one context; choose a suite of "
            "several collections"
        )
    collections = list(read_collections(Suite(inputs.suite.name, datasets)).values())
    role, retrieval = collections[0].document_role, collections[0].retrieval
    order = make_rng(run.context_seed, "documents under many contexts").permutation(len(retrieval.documents))
    texts = [retrieval.documents[index] for index in order[:NUM_DOCUMENTS]]
    contexts = []
    vectors = []
    for collection in collections:
        contexts.append(draw_context("own", collection.retrieval, num_contexts=run.num_contexts, seed=run.context_seed))
        model.set_context(contexts[-1].texts, run.context_seed, role)
        vectors.append(model.encode(texts, role))
    vectors_CDH = np.stack(vectors)
    arrays = compute_distances(vectors_CDH)
    metrics = {name: float(values.mean()) for name, values in arrays.items()}
    metrics["spread/kept_apart"] = float((arrays["spread/within"] < arrays["spread/nearest"]).mean())
    layout_CD2 = project_to_plane(vectors_CDH[:, :NUM_DRAWN])
    for (context, document), (x, y) in _list_points(layout_CD2):
        metrics[f"pca/document {document + 1}/{datasets[context].name}/x"] = x
        metrics[f"pca/document {document + 1}/{datasets[context].name}/y"] = y
    exhibit = [{"document": f"document {index + 1}", "text": text} for index, text in enumerate(texts[:NUM_DRAWN])]
    provenance = {"dataset": retrieval.name, "contexts": [context.provenance for context in contexts]}
    return Measured(metrics, arrays, provenance, {"documents": exhibit})


def choose_context_datasets(datasets: Sequence[SuiteDataset]) -> tuple[SuiteDataset, ...]:
    """Return the datasets that provide contexts, in order, with the paper's dataset first."""
    first = [dataset for dataset in datasets if dataset.name == PAPERS]
    return tuple([*first, *(dataset for dataset in datasets if dataset not in first)][:NUM_CONTEXTS])


def _list_points(layout_CD2: np.ndarray) -> list[tuple[tuple[int, int], tuple[float, float]]]:
    indices = np.ndindex(*layout_CD2.shape[:2])
    return [((c, d), (float(layout_CD2[c, d, 0]), float(layout_CD2[c, d, 1]))) for c, d in indices]


def compute_distances(vectors_CDH: np.ndarray) -> dict[str, np.ndarray]:
    """Return Euclidean distances per document (D,): within it, to the others on average, and to the nearest one."""
    from scipy.spatial.distance import cdist

    num_contexts, num_documents, width = vectors_CDH.shape
    flat = vectors_CDH.transpose(1, 0, 2).reshape(-1, width).astype(np.float64)
    # Distances of differences: `2 - 2 a·b` of float32 unit vectors loses the digits of a small distance.
    distances = cdist(flat, flat).reshape(num_documents, num_contexts, num_documents, num_contexts)
    by_pair_DD = distances.mean(axis=(1, 3))
    # The mean over contexts includes the distance 0 of a vector to itself, which must not count.
    own_D = np.diagonal(by_pair_DD) * num_contexts / (num_contexts - 1)
    others_DD = np.where(np.eye(num_documents, dtype=bool), np.nan, by_pair_DD)
    return {
        "spread/within": own_D,
        "spread/between": np.nanmean(others_DD, axis=1),
        "spread/nearest": np.nanmin(others_DD, axis=1),
    }


def project_to_plane(vectors_CDH: np.ndarray) -> np.ndarray:
    """Return the first two principal coordinates, (C, D, 2). Signs are fixed: the larger side of an axis is positive."""
    flat = vectors_CDH.reshape(-1, vectors_CDH.shape[-1]).astype(np.float64)
    centred = flat - flat.mean(axis=0)
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2]
    coordinates = centred @ axes.T
    coordinates *= np.where(np.abs(coordinates.max(axis=0)) < np.abs(coordinates.min(axis=0)), -1, 1)
    return coordinates.reshape(*vectors_CDH.shape[:2], 2)
