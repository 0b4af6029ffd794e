"""Measure adaptive retrieval: a narrow prefix selects a shortlist, wider prefixes rank it.

Matryoshka Representation Learning (Kusupati et al. 2022), figure 8:

1. FAISS searches all documents by the narrowest prefix and returns a pool.
2. Each further width ranks the pool and cuts it to a smaller one.
3. The last width ranks the remaining documents.

Prefixes are normalised again at each width. A route of one width is single-shot search. Two widths are a shortlist and
its reranking, more are the funnel of that paper. Ties go to the document with the smaller index.

Each route is measured by NDCG@10, millions of multiplications per query, and queries per second of FAISS and numpy on
this machine. The time excludes the index and the prefixes of documents, which are built before.

Shapes: Q queries, N documents, W dimensions, C documents of a pool.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.analyses import Measured
from repro.data.beir import HEADLINE, MEAN, group_datasets
from repro.evaluate.collections import (
    Collection,
    apply_collection_rules,
    describe_datasets,
    read_collections,
    score_headline,
)
from repro.evaluate.prefixes import take_prefix
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.spec import list_scored_widths

DEPTH = 10
MILLION = 1e6
FUNNEL_POOLS = (200, 100, 50, 25, 10)
SHORTLIST = FUNNEL_POOLS[0]
"""Pool sizes of the paper. The first is also the size of the shortlist."""
FUNNEL_FROM = 16


@dataclass(frozen=True)
class Route:
    """Widths in rising order, and the pool size of each width but the last."""

    name: str
    widths: tuple[int, ...]
    pools: tuple[int, ...] = ()

    def num_multiplications(self, num_documents: int, k: int = 1) -> int:
        """Return the number of multiplications per query for `k` hits in a corpus of `num_documents`."""
        counts = (num_documents, *(min(max(pool, k), num_documents) for pool in self.pools))
        return sum(count * width for count, width in zip(counts, self.widths, strict=True))


def list_routes(widths: tuple[int, ...]) -> list[Route]:
    """Return single-shot search at every width, each shortlist with each wider reranking, and the funnel.

    Names: "whole" (all dimensions), "width16", "from16" (reranked by the whole vector), "from16to64", "funnel".
    """
    full_width = widths[-1]
    routes = [Route("whole" if width == full_width else f"width{width}", (width,)) for width in widths]
    for index, first in enumerate(widths):
        routes += [
            Route(f"from{first}" if last == full_width else f"from{first}to{last}", (first, last), (SHORTLIST,))
            for last in widths[index + 1 :]
        ]
    steps = tuple(width for width in widths if width >= FUNNEL_FROM)
    pools = tuple(FUNNEL_POOLS[min(number, len(FUNNEL_POOLS) - 1)] for number in range(len(steps) - 1))
    return [*routes, Route("funnel", steps, pools)] if pools else routes


Prefixes = Mapping[int, np.ndarray]
"""The documents of a collection at every width, normalised again, float32 (N, width)."""


def search(
    index: Any, queries_QW: np.ndarray, prefixes: Prefixes, route: Route, k: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the indices of the k best documents per query, best first, int64 (Q, k), and their cosines.

    `index` is the FAISS index of the documents at the first width of the route.
    """
    # A collection that removes self-hits searches for one more than the last pool of the funnel.
    pool_sizes = [min(max(pool, k), index.ntotal) for pool in (*route.pools, k)]
    scores_QC, rows_QC = index.search(np.ascontiguousarray(take_prefix(queries_QW, route.widths[0])), pool_sizes[0])
    for width, pool in zip(route.widths[1:], pool_sizes[1:], strict=True):
        # The sort below is stable, so index order gives ties to the smaller index.
        rows_QC = np.sort(rows_QC, axis=1)
        # Each query has its own candidates, so this is not a plain matrix product.
        scores_QC = np.einsum("qm,qcm->qc", take_prefix(queries_QW, width), prefixes[width][rows_QC])
        order_QC = np.argsort(-scores_QC, axis=1, kind="stable")[:, :pool]
        rows_QC = np.take_along_axis(rows_QC, order_QC, axis=1)
        scores_QC = np.take_along_axis(scores_QC, order_QC, axis=1)
    return rows_QC, scores_QC


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}+ROUTE/NAME/ndcg_at_10`, `…/mflops` and `…/queries_per_second` per route and dataset."""
    run, suite = inputs.run, inputs.suite
    collections = read_collections(suite)
    widths = list_scored_widths(run)
    routes = list_routes(widths)
    metrics: dict[str, float] = {}
    values: dict[str, list[np.ndarray]] = {route.name: [] for route in routes}
    for dataset in suite.datasets:
        collection = collections[dataset.name]
        queries_QW, documents_NW = collection.embed(model)
        prefixes = {width: np.ascontiguousarray(take_prefix(documents_NW, width)) for width in widths}
        for route in routes:
            scores, seconds = search_route(collection, queries_QW, prefixes, route)
            values[route.name].append(scores)
            path = f"{suite.name}+{route.name}/{dataset.name}"
            metrics[f"{path}/{HEADLINE}"] = float(scores.mean())
            metrics[f"{path}/mflops"] = (
                route.num_multiplications(len(documents_NW), DEPTH + collection.num_extra_hits) / MILLION
            )
            metrics[f"{path}/queries_per_second"] = len(queries_QW) / max(seconds, 1e-9)
    rows = describe_datasets(suite, collections)
    names = [suite.datasets[index].name for index in group_datasets(rows)[MEAN]]
    for route in routes:
        path = f"{suite.name}+{route.name}"
        for measure_name in (HEADLINE, "mflops", "queries_per_second"):
            metrics[f"{path}/mean/{measure_name}"] = float(
                np.mean([metrics[f"{path}/{name}/{measure_name}"] for name in names])
            )
    arrays = {f"{suite.name}+{name}": np.concatenate(scores).astype(np.float32) for name, scores in values.items()}
    return Measured(metrics, arrays, {"name": suite.name, "datasets": rows})


def search_route(
    collection: Collection, queries_QW: np.ndarray, prefixes: Prefixes, route: Route
) -> tuple[np.ndarray, float]:
    """Return the NDCG@10 of every judged query along a route, float32 (Q,), and the seconds of the search."""
    import faiss

    retrieval, index = collection.retrieval, faiss.IndexFlatIP(route.widths[0])
    # Building the index is not timed.
    index.add(prefixes[route.widths[0]])
    k = min(DEPTH + collection.num_extra_hits, index.ntotal)
    started = time.perf_counter()
    rows_QC, scores_QC = search(index, queries_QW, prefixes, route, k)
    seconds = time.perf_counter() - started
    hits = {
        query: {retrieval.document_ids[row]: float(value) for row, value in zip(rows, scores, strict=True)}
        for query, rows, scores in zip(retrieval.query_ids, rows_QC.tolist(), scores_QC.tolist(), strict=True)
    }
    return score_headline(apply_collection_rules(hits, collection, DEPTH), collection), seconds
