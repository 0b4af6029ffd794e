"""What a search costs and finds when a narrow prefix makes a shortlist and wider ones rank it: adaptive retrieval.

Every route of `repro.evaluate.adaptive` over the run's widths: NDCG@10, multiplications of a query in millions, and
queries a second of FAISS and numpy on this machine, the index and prefixes of documents made before.

Shapes: Q queries, N documents, W dimensions.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.data.beir import HEADLINE
from repro.evaluate.adaptive import Prefixed, Route, routes
from repro.evaluate.collections import Collection, describe_datasets, headline, read_collections, without_quirky_hits
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.spec import nested_widths, standard_widths

DEPTH = 10
MILLION = 1e6


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}+ROUTE/NAME/ndcg_at_10`, `…/mflops` and `…/queries_per_second` for each route and dataset."""
    run, suite = inputs.run, inputs.suite
    collections = read_collections(suite)
    every = routes(nested_widths(run) or standard_widths(run.hidden_size))
    metrics: dict[str, float] = {}
    values: dict[str, list[np.ndarray]] = {route.name: [] for route in every}
    for dataset in suite.datasets:
        own = collections[dataset.name]
        queries_QW = model.encode(own.retrieval.queries, "query")
        documents = Prefixed(model.encode(own.retrieval.documents, own.document_role))
        for route in every:
            found, seconds = search(own, queries_QW, documents, route)
            values[route.name].append(found)
            path = f"{suite.name}+{route.name}/{dataset.name}"
            metrics[f"{path}/{HEADLINE}"] = float(found.mean())
            metrics[f"{path}/mflops"] = route.num_multiplications(len(own.retrieval.documents)) / MILLION
            metrics[f"{path}/queries_per_second"] = len(queries_QW) / max(seconds, 1e-9)
    names = [dataset.name for dataset in suite.datasets]
    for route in every:
        for last in (HEADLINE, "mflops", "queries_per_second"):
            each = [metrics[f"{suite.name}+{route.name}/{name}/{last}"] for name in names]
            metrics[f"{suite.name}+{route.name}/mean/{last}"] = float(np.mean(each))
    arrays = {f"{suite.name}+{name}": np.concatenate(each).astype(np.float32) for name, each in values.items()}
    return Measured(metrics, arrays, {"name": suite.name, "datasets": describe_datasets(suite, collections)})


def search(
    collection: Collection, queries_QW: np.ndarray, documents: Prefixed, route: Route
) -> tuple[np.ndarray, float]:
    """Return the NDCG@10 of every judged query along a route, float32 (Q,), and the seconds that the search took."""
    import faiss

    retrieval, k = collection.retrieval, min(DEPTH + collection.num_extra_hits, len(documents.documents_NW))
    index = faiss.IndexFlatIP(route.widths[0])
    index.add(documents.at(route.widths[0]))
    started = time.perf_counter()
    places_QC, scores_QC = documents.search(index, queries_QW, route, k)
    seconds = time.perf_counter() - started
    hits = {
        query: {retrieval.document_ids[place]: float(value) for place, value in zip(places, scores, strict=True)}
        for query, places, scores in zip(retrieval.query_ids, places_QC.tolist(), scores_QC.tolist(), strict=True)
    }
    return headline(without_quirky_hits(hits, collection, DEPTH), collection), seconds
