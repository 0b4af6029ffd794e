"""Score a contextual model under documents of the searched corpus that are selected in several ways.

1. All documents are embedded under random documents of the corpus, as in an ordinary evaluation.
2. `SELECTIONS` choose C documents from these vectors: cluster centres, the most typical, the most diverse, and those
   nearest to the queries. The last one reads the test queries. It is an upper bound, and no way to use a model.
3. The collection is searched under each selection.

The paper samples at random (§9.12). Shapes: D documents, Q queries, C contexts, H dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.analyses.retrieval import wrap_contextual_encoder
from repro.batches.cluster import best_attempt
from repro.evaluate.collections import (
    Collection,
    describe_datasets,
    read_collections,
    score_headline,
    search_collection,
    summarise_scores,
)
from repro.evaluate.comparison import paired_gaps
from repro.evaluate.contexts import draw_context
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import count_test_contexts
from repro.seeds import derive

DEPTH = 10
RANDOM = "random"


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `selection/WAY/GROUP/ndcg_at_10` per dataset, family and mean, and `selection/WAY/gain/…` over random."""
    run, suite, collections = inputs.run, inputs.suite, read_collections(inputs.suite)
    encoder, count = wrap_contextual_encoder(run, model), count_test_contexts(run)
    scores: dict[str, list[np.ndarray]] = {}
    for collection in collections.values():
        for selection, values in score_selections(encoder, collection, count, run.context_seed).items():
            scores.setdefault(f"selection/{selection}", []).append(values)
    rows = describe_datasets(suite, collections)
    metrics, arrays = summarise_scores(scores, rows)
    for selection in SELECTIONS:
        gap = paired_gaps(arrays[f"selection/{selection}"], arrays[f"selection/{RANDOM}"], rows)["mean"]
        metrics |= gap.as_metrics(f"selection/{selection}/gain")
    provenance = {"name": suite.name, "datasets": rows, "context_seed": run.context_seed, "num_contexts": count}
    return Measured(metrics, arrays, provenance)


def score_selections(encoder: Encoder, collection: Collection, count: int, seed: int) -> dict[str, np.ndarray]:
    """Return the NDCG@10 of each query, float32 (Q,), under each selection of `count` documents."""
    retrieval, role = collection.retrieval, collection.document_role

    context = draw_context("own", retrieval, num_contexts=count, seed=seed)
    encoder.set_context(context.texts, seed, role)
    queries_QH, documents_DH = collection.embed(encoder)
    scores = {RANDOM: score_headline(search_collection(collection, queries_QH, documents_DH, DEPTH), collection)}
    for name, select in SELECTIONS.items():
        selected = select(queries_QH, documents_DH, min(count, len(documents_DH)), seed)
        encoder.set_context([retrieval.documents[row] for row in selected], seed, role)
        scores[name] = score_headline(search_collection(collection, *collection.embed(encoder), DEPTH), collection)
    return scores


def select_centres(queries_QH: np.ndarray, documents_DH: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the document nearest to each of `count` K-means centres, int (C,). No document is chosen twice."""
    centroids_CH = best_attempt(documents_DH, count, derive(seed, "context selection"))
    similarity_CD = centroids_CH @ documents_DH.T
    selected: list[int] = []
    for row_D in similarity_CD:
        # Two centres may be nearest to the same document.
        row_D[selected] = -np.inf
        selected.append(int(row_D.argmax()))
    return np.array(selected)


def select_typical(queries_QH: np.ndarray, documents_DH: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the documents most similar to the mean of the corpus, int (C,)."""
    return np.argsort(-(documents_DH @ documents_DH.mean(axis=0)), kind="stable")[:count]


def select_diverse(queries_QH: np.ndarray, documents_DH: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return documents far from each other, int (C,), by farthest-first traversal from the most typical one."""
    selected = [int(select_typical(queries_QH, documents_DH, 1, seed)[0])]
    nearest_D = documents_DH @ documents_DH[selected[0]]
    while len(selected) < count:
        nearest_D[selected] = np.inf
        selected.append(int(nearest_D.argmin()))
        # For each document, its similarity to the nearest chosen one. The next choice minimises it.
        nearest_D = np.maximum(nearest_D, documents_DH @ documents_DH[selected[-1]])
    return np.array(selected)


def select_relevant(queries_QH: np.ndarray, documents_DH: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Return the documents most similar to the queries on average, int (C,)."""
    return np.argsort(-(documents_DH @ queries_QH.mean(axis=0)), kind="stable")[:count]


SELECTIONS: Mapping[str, Callable[[np.ndarray, np.ndarray, int, int], np.ndarray]] = {
    "centres": select_centres,
    "typical": select_typical,
    "diverse": select_diverse,
    "relevant": select_relevant,
}
"""Ways to select C documents: from the vectors of queries (Q, H) and documents (D, H), C, and a seed."""
