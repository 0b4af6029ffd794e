"""Compare contexts of a contextual model: other corpora (`cross`, `spread`) and ways to select (`selection`).

`cross`: Score each of several domains under contexts from each other domain (figure 7).

1. The datasets of the suite are test domains and context domains alike, up to `NUM_DOMAINS` (all for CQADupStack).
   Families take turns.
2. Each domain is searched under a context from each domain, including its own.
3. `cross/own` and `cross/other` hold one value per query: NDCG@10 under its own corpus, and the mean under others.

`spread`: Embed a few documents under many contexts, and compare how far they move with how far apart they are (figure 15).

1. D documents are drawn from TREC-COVID (§9.5), or from the first dataset of a suite without it. Each dataset of the
   suite, up to C of them, provides one context as in `evaluate/contexts.py`.
2. All D documents are embedded under each context. `within` is the mean distance between the vectors of one document
   under two contexts. `between` is the mean distance to the other documents, `nearest` that to the nearest one.
3. PCA (two directions of all their vectors) lays out the first few documents for the figure.

Shapes: D documents, C contexts, H dimensions.

`selection`: Score a contextual model under documents of the searched corpus that are selected in several ways.

1. All documents are embedded under random documents of the corpus, as in an ordinary evaluation.
2. `SELECTIONS` choose C documents from these vectors: cluster centres, the most typical, the most diverse, and those
   nearest to the queries. The last one reads the test queries. It is an upper bound, and no way to use a model.
3. The collection is searched under each selection.

The paper samples at random (§9.12). Shapes: D documents, Q queries, C contexts, H dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repro.analyses import Measured, check_suite
from repro.analyses.retrieval import FirstStage, load_first_stage, wrap_contextual_encoder
from repro.batches.cluster import best_attempt
from repro.data.beir import HEADLINE, Suite, SuiteDataset
from repro.evaluate.collections import (
    Collection,
    describe_datasets,
    read_collections,
    score_headline,
    search_collection,
    summarise_scores,
)
from repro.evaluate.comparison import paired_gaps
from repro.evaluate.contexts import draw_context, have_wrong_corpora
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import count_test_contexts
from repro.seeds import derive, make_rng

# ---- cross


NUM_DOMAINS = 10
NUM_FORUMS = 12
DEPTH = 10


def measure_cross(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `cross/CONTEXT/TEST/ndcg_at_10`, `cross/own/ndcg_at_10`, `cross/other/ndcg_at_10`, `cross/crossovers`."""
    run = inputs.run
    max_domains = NUM_FORUMS if run.suite == "cqadupstack" else NUM_DOMAINS
    suite = Suite(run.suite, tuple(choose_domains(inputs.suite.datasets, max_domains)))
    check_suite(run, have_wrong_corpora(suite.datasets), "several collections with different documents")
    collections = read_collections(suite)
    first_stage = load_first_stage(inputs)
    scores: dict[tuple[str, str], np.ndarray] = {}
    for name, context in collections.items():
        by_test = _score_under_context(context, inputs, model, collections, first_stage)
        scores |= {(name, test): values for test, values in by_test.items()}
    metrics = {f"cross/{context}/{test}/ndcg_at_10": float(values.mean()) for (context, test), values in scores.items()}
    own = [scores[name, name] for name in collections]
    other = [
        np.mean([scores[context, name] for context in collections if context != name], axis=0) for name in collections
    ]
    arrays = {"cross/own/ndcg_at_10": np.concatenate(own), "cross/other/ndcg_at_10": np.concatenate(other)}
    metrics |= {name: float(values.mean()) for name, values in arrays.items()}
    # Domains with a foreign context that scores higher than their own.
    has_better_foreign = [
        any(metrics[f"cross/{c}/{t}/ndcg_at_10"] > metrics[f"cross/{t}/{t}/ndcg_at_10"] for c in collections)
        for t in collections
    ]
    metrics["cross/crossovers"] = float(np.mean(has_better_foreign))
    provenance: dict[str, Any] = {
        "name": run.suite,
        "datasets": describe_datasets(suite, collections),
        "context_seed": run.context_seed,
    }
    if first_stage is not None:
        provenance["first_stage"] = dict(first_stage.provenance)
    return Measured(metrics, arrays, provenance)


def _score_under_context(
    context: Collection,
    inputs: Inputs,
    model: Encoder,
    tests: Mapping[str, Collection],
    first: FirstStage | None,
) -> dict[str, np.ndarray]:
    """Return the NDCG@10 of each query of each domain, float32 (Q,), under a context drawn from one domain."""
    run = inputs.run
    sample = draw_context("own", context.retrieval, num_contexts=run.num_contexts, seed=run.context_seed)
    scores, role = {}, ""
    for name, test in tests.items():
        # As in retrieval, context documents get the prompt of the searched collection. It differs for Quora only.
        if test.document_role != role:
            role = test.document_role
            model.set_context(sample.texts, run.context_seed, role)
        candidates = None if first is None else first.candidates[name]
        scores[name] = score_headline(search_collection(test, *test.embed(model), DEPTH, candidates), test)
    return scores


def choose_domains(datasets: tuple[SuiteDataset, ...], count: int = NUM_DOMAINS) -> list[SuiteDataset]:
    """Return up to `count` datasets, taking turns between families, in the order of families."""
    families: dict[str, list[SuiteDataset]] = {}
    for dataset in datasets:
        families.setdefault(dataset.family, []).append(dataset)
    selected = [row[index] for index in range(len(datasets)) for row in families.values() if index < len(row)][:count]
    return [dataset for row in families.values() for dataset in row if dataset in selected]


# ---- spread


PAPERS = "trec-covid"
NUM_DOCUMENTS, NUM_CONTEXTS, NUM_DRAWN = 64, 16, 6


def measure_spread(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `spread/within`, `between` and `nearest` per document, and `pca/DOCUMENT/CONTEXT/x` and `y`."""
    run, datasets = inputs.run, choose_context_datasets(inputs.suite.datasets)
    check_suite(run, len(datasets) > 1, "several collections")
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
    for (context, document, axis), value in np.ndenumerate(layout_CD2):
        metrics[f"pca/document {document + 1}/{datasets[context].name}/{'xy'[axis]}"] = float(value)
    exhibit = [{"document": f"document {index + 1}", "text": text} for index, text in enumerate(texts[:NUM_DRAWN])]
    provenance = {"dataset": retrieval.name, "contexts": [context.provenance for context in contexts]}
    return Measured(metrics, arrays, provenance, {"documents": exhibit})


def choose_context_datasets(datasets: Sequence[SuiteDataset]) -> tuple[SuiteDataset, ...]:
    """Return the datasets that provide contexts, in order, with the paper's dataset first."""
    first = [dataset for dataset in datasets if dataset.name == PAPERS]
    return tuple([*first, *(dataset for dataset in datasets if dataset not in first)][:NUM_CONTEXTS])


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


# ---- selection


RANDOM = "random"


def measure_selection(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `selection/WAY/GROUP/ndcg_at_10` per dataset, family and mean, and `selection/WAY/gain/…` over random."""
    run, suite, collections = inputs.run, inputs.suite, read_collections(inputs.suite)
    encoder, count = wrap_contextual_encoder(run, model), count_test_contexts(run)
    scores: dict[str, list[dict[str, np.ndarray]]] = {}
    for collection in collections.values():
        for selection, values in score_selections(encoder, collection, count, run.context_seed).items():
            scores.setdefault(f"selection/{selection}", []).append({HEADLINE: values})
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
