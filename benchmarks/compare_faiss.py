"""Compare our search and clustering with plain FAISS: processor time and agreement of the results.

    python -m benchmarks.compare_faiss --num-points 100000 --width 384 --write benchmarks/compare_faiss.json

Both sides alternate in one process, on vectors drawn from a mixture, so that clusters exist.

    search      the 100 best documents per query              FAISS: IndexFlatIP
    neighbours  the nearest documents of sampled documents    FAISS: IndexFlatIP
    negatives   hard negatives of one domain                  FAISS: IndexFlatIP, then the same selection
    kmeans      the best of three K-means attempts            FAISS: faiss.Kmeans on all points, with our seeds

The benchmark fails if scores differ by more than rounding, or if mean distances to centroids differ by more than one
percent. The column `equal` is the share of queries with identical results, or of points in the same cluster.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import faiss
import numpy as np

from benchmarks.harness import describe_machine, make_parser, time_in_turns, write_rows
from repro.analyses.pairs import find_nearest_rows
from repro.batches.cluster import NUM_ATTEMPTS, NUM_ITERATIONS, best_attempt
from repro.batches.negatives import mine_negatives
from repro.evaluate.retrieval import rank_by_score, search
from repro.seeds import derive

DEPTH, NUM_NEAREST, NUM_NEGATIVES, NUM_TOPICS = 100, 11, 7, 400
ROUNDING, KMEANS_TOLERANCE = 1e-5, 0.01
SearchResult = tuple[np.ndarray, np.ndarray]
"""Rows (Q, K) and their scores (Q, K)."""
Actions = dict[str, Callable[[], SearchResult]]
"""The two implementations of a task: "ours" and "faiss"."""


def draw_vectors(num: int, width: int, seed: int) -> np.ndarray:
    """Return unit vectors around topics that all draws share, float32 (N, D)."""
    topics = np.random.default_rng(0).normal(size=(NUM_TOPICS, width))
    rng = np.random.default_rng([1, seed])
    vectors = topics[rng.integers(0, NUM_TOPICS, num)] + 0.8 * rng.normal(size=(num, width))
    return np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def search_with_faiss(queries: np.ndarray, documents: np.ndarray, count: int) -> SearchResult:
    """Return the best documents of each query by FAISS's exact inner-product index."""
    index = faiss.IndexFlatIP(documents.shape[1])
    index.add(documents)
    scores, rows = index.search(queries, count)
    return rows, scores


def compare_others(
    queries: np.ndarray, documents: np.ndarray, selves: np.ndarray, count: int, find_rows: Callable[[], np.ndarray]
) -> Actions:
    """Return two ways to find the best `count` documents of each query without its own: `find_rows` and FAISS."""

    def theirs() -> SearchResult:
        found, _ = search_with_faiss(queries, documents, count + 1)
        others = [[row for row in rows if row != own][:count] for rows, own in zip(found, selves, strict=True)]
        return add_scores(np.array(others))

    def add_scores(rows: np.ndarray) -> SearchResult:
        # float32 (Q, K)
        return rows, np.einsum("qd,qkd->qk", queries, documents[rows])

    return {"ours": lambda: add_scores(find_rows()), "faiss": theirs}


def prepare_search(options: argparse.Namespace) -> Actions:
    """Prepare exact search."""
    queries = draw_vectors(options.num_queries, options.width, 1)
    documents = draw_vectors(options.num_points, options.width, 2)
    query_ids, document_ids = [str(row) for row in range(len(queries))], [f"{row:09d}" for row in range(len(documents))]

    def to_arrays(ranked: list[list[tuple[str, float]]]) -> SearchResult:
        rows = np.array([[int(name) for name, _ in ranking] for ranking in ranked])
        return rows, np.array([[score for _, score in ranking] for ranking in ranked])

    def ours() -> SearchResult:
        rankings = search(queries, documents, query_ids, document_ids, k=DEPTH)
        return to_arrays([list(ranking.items()) for ranking in rankings.values()])

    def theirs() -> SearchResult:
        rows, scores = search_with_faiss(queries, documents, DEPTH)
        # FAISS must also return ids, with ties ordered by id. Otherwise it would do less work than ours.
        runs = [
            dict(zip((document_ids[row] for row in ranking), row_scores, strict=True))
            for ranking, row_scores in zip(rows, scores, strict=True)
        ]
        return to_arrays([rank_by_score(run) for run in runs])

    return {"ours": ours, "faiss": theirs}


def prepare_neighbours(options: argparse.Namespace) -> Actions:
    """Prepare the search for the nearest documents of sampled documents."""
    documents = draw_vectors(options.num_points, options.width, 2)
    sample = np.random.default_rng(3).choice(len(documents), options.num_queries, replace=False)

    def find_rows() -> np.ndarray:
        return find_nearest_rows(documents, np.arange(len(documents)), sample, NUM_NEAREST)

    return compare_others(documents[sample], documents, sample, NUM_NEAREST, find_rows)


def prepare_negatives(options: argparse.Namespace) -> Actions:
    """Prepare hard-negative mining in one domain with as many pairs as points. Likely positives stay included."""
    queries, documents = (draw_vectors(options.num_points, options.width, seed) for seed in (1, 2))
    keys, codes = np.arange(len(queries)), np.zeros(len(queries), np.int32)

    def find_rows() -> np.ndarray:
        return mine_negatives(queries, documents, codes, keys, num_hard_negatives=NUM_NEGATIVES, with_near=True, seed=0)

    return compare_others(queries, documents, keys, NUM_NEGATIVES, find_rows)


def prepare_kmeans(options: argparse.Namespace) -> Actions:
    """Prepare clustering. The results are each pair's cluster and squared distance to its centroid."""
    half = options.width // 2
    paired = np.concatenate([draw_vectors(options.num_points // 2, half, seed) for seed in (1, 2)], axis=1)
    # As in our clustering, each pair enters twice: as (query, document) and as (document, query).
    points = np.concatenate([paired, np.roll(paired, half, axis=1)])

    def assign(centroids: np.ndarray) -> SearchResult:
        index = faiss.IndexFlatL2(points.shape[1])
        index.add(centroids)
        distances, clusters = index.search(paired, 1)
        return clusters, distances

    def attempt(attempt_index: int) -> tuple[float, np.ndarray]:
        # Without these limits FAISS would sample the points.
        limits = {"min_points_per_centroid": 1, "max_points_per_centroid": len(points)}
        seed = derive(0, attempt_index) % 2**31
        kmeans = faiss.Kmeans(points.shape[1], options.num_clusters, niter=NUM_ITERATIONS, seed=seed, **limits)
        objective = kmeans.train(points)
        assert kmeans.centroids is not None
        return objective, kmeans.centroids

    return {
        "ours": lambda: assign(best_attempt(points, options.num_clusters, 0)),
        "faiss": lambda: assign(min(map(attempt, range(NUM_ATTEMPTS)), key=lambda result: result[0])[1]),
    }


TASKS: Mapping[str, Callable[[argparse.Namespace], Actions]] = {
    "search": prepare_search,
    "neighbours": prepare_neighbours,
    "negatives": prepare_negatives,
    "kmeans": prepare_kmeans,
}


def compare(task: str, options: argparse.Namespace) -> dict[str, Any]:
    """Return one row: the median seconds of both implementations, and the agreement of their results."""
    timings = time_in_turns(TASKS[task](options), options.num_rounds)
    (rows, scores), (other_rows, other_scores) = timings.results["ours"], timings.results["faiss"]
    if task == "kmeans":
        # Cluster numbers differ if an empty cluster was dropped, so only the mean distance is compared.
        difference = abs(float(scores.mean()) / float(other_scores.mean()) - 1)
    else:
        difference = float(np.abs(scores - other_scores).max())
    tolerance = KMEANS_TOLERANCE if task == "kmeans" else ROUNDING
    assert difference < tolerance, f"{task}: the results differ by {difference}"
    medians = {name: round(median, 3) for name, median in timings.medians.items()}
    return {
        "task": task,
        **{key: getattr(options, key) for key in ("num_points", "num_queries", "width", "num_clusters")},
        **{f"{name}_cpu_seconds": median for name, median in medians.items()},
        "ours_over_faiss": round(medians["ours"] / medians["faiss"], 3),
        "largest_difference": difference,
        "equal": round(float((rows == other_rows).all(axis=1).mean()), 4),
    }


def main() -> None:
    """Compare each task, print a line and update the record."""
    parser = make_parser(__doc__, num_points=100_000, num_queries=2000, width=128, num_clusters=256, num_rounds=3)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS, help="default: all")
    options = parser.parse_args()
    for task in options.tasks:
        row = compare(task, options) | describe_machine() | {"num_threads": faiss.omp_get_max_threads()}
        print("{task:<11} ours {ours_cpu_seconds:8.3f} s  faiss {faiss_cpu_seconds:8.3f} s  {ours_over_faiss:6.2f} x  "
              "equal {equal:.4f}, difference {largest_difference:.1e}".format(**row), flush=True)  # fmt: skip
        write_rows(options.write, [row], ("task", "num_points", "width"))


if __name__ == "__main__":
    main()
