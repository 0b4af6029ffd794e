"""Time our own search and clustering against plain FAISS, alternating in one process, and compare the results.

    python -m benchmarks.beside_faiss --num-points 100000 --width 384 --write benchmarks/beside_faiss.json

`search`: the exact 100 best documents of every query. FAISS: IndexFlatIP. `neighbours`: the nearest documents of
sampled ones, excluding themselves. FAISS: IndexFlatIP. `negatives`: hard negatives. FAISS: IndexFlatIP over the domain,
then the same rule. `kmeans`: the best of three attempts at centroids. FAISS: faiss.Kmeans on all points, with the same
iterations and the seeds of our attempts. Vectors are drawn from a mixture, so that clusters exist.

The benchmark fails if scores differ by more than rounding, or distances to centroids by more than one percent. "Equal"
is the share of queries with identical results, or of points in the same cluster. Seconds are processor time.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import faiss
import numpy as np

from benchmarks.kept_rows import keep_rows
from repro.analyses.neighbours import find_nearest_rows
from repro.batches.cluster import NUM_ATTEMPTS, NUM_ITERATIONS, best_attempt
from repro.batches.negatives import mine_negatives
from repro.evaluate.retrieval import rank_by_score, search
from repro.seeds import derive

DEPTH, NUM_NEAREST, NUM_NEGATIVES, NUM_TOPICS = 100, 11, 7, 400
ROUNDING = 1e-5
Found = tuple[np.ndarray, np.ndarray]
"""Rows (Q, K) and their scores (Q, K)."""


def drawn(num: int, width: int, seed: int) -> np.ndarray:
    """Return unit vectors around topics shared by all draws, float32 (N, D)."""
    topics = np.random.default_rng(0).normal(size=(NUM_TOPICS, width))
    rng = np.random.default_rng([1, seed])
    vectors = topics[rng.integers(0, NUM_TOPICS, num)] + 0.8 * rng.normal(size=(num, width))
    return np.ascontiguousarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def search_with_faiss(queries: np.ndarray, documents: np.ndarray, count: int) -> Found:
    """Return the results of FAISS."""
    index = faiss.IndexFlatIP(documents.shape[1])
    index.add(documents)
    scores, rows = index.search(queries, count)
    return rows, scores


def searches(asked: argparse.Namespace) -> dict[str, Callable[[], Found]]:
    """Return exact search, ours and theirs."""
    queries, documents = drawn(asked.num_queries, asked.width, 1), drawn(asked.num_points, asked.width, 2)
    names = ([str(n) for n in range(len(queries))], [f"{n:09d}" for n in range(len(documents))])

    def ours() -> Found:
        hits = [list(each.items()) for each in search(queries, documents, *names, k=DEPTH).values()]
        rows = [[int(name) for name, _ in each] for each in hits]
        return np.array(rows), np.array([[score for _, score in each] for each in hits])

    def theirs() -> Found:
        # Equal scores are ordered by id, as in ours. A run must be written in order in either case.
        rows, scores = search_with_faiss(queries, documents, DEPTH)
        runs = [
            dict(zip((names[1][n] for n in each), own, strict=True)) for each, own in zip(rows, scores, strict=True)
        ]
        hits = [rank_by_score(run) for run in runs]
        return np.array([[int(name) for name, _ in each] for each in hits]), np.array([[s for _, s in e] for e in hits])

    return {"ours": ours, "faiss": theirs}


def neighbours(asked: argparse.Namespace) -> dict[str, Callable[[], Found]]:
    """Return the nearest documents of sampled ones."""
    documents = drawn(asked.num_points, asked.width, 2)
    own = np.random.default_rng(3).choice(len(documents), asked.num_queries, replace=False)

    def ours() -> Found:
        rows = find_nearest_rows(documents, np.arange(len(documents)), own, NUM_NEAREST)
        return rows, compute_scores(documents[own], documents, rows)

    def theirs() -> Found:
        rows, _ = search_with_faiss(documents[own], documents, NUM_NEAREST + 1)
        rows = np.array([[n for n in each if n != me][:NUM_NEAREST] for each, me in zip(rows, own, strict=True)])
        return rows, compute_scores(documents[own], documents, rows)

    return {"ours": ours, "faiss": theirs}


def negatives(asked: argparse.Namespace) -> dict[str, Callable[[], Found]]:
    """Return hard negatives for as many pairs as points, in one domain that contains likely positives."""
    queries, documents = drawn(asked.num_points, asked.width, 1), drawn(asked.num_points, asked.width, 2)
    keys, codes = np.arange(len(queries)), np.zeros(len(queries), np.int32)

    def ours() -> Found:
        count = {"num_hard_negatives": NUM_NEGATIVES, "with_near": True}
        rows = mine_negatives(queries, documents, codes, keys, **count, seed=0)
        return rows, compute_scores(queries, documents, rows)

    def theirs() -> Found:
        rows, _ = search_with_faiss(queries, documents, NUM_NEGATIVES + 1)
        rows = np.array([[n for n in each if n != me][:NUM_NEGATIVES] for me, each in enumerate(rows)])
        return rows, compute_scores(queries, documents, rows)

    return {"ours": ours, "faiss": theirs}


def kmeans(asked: argparse.Namespace) -> dict[str, Callable[[], Found]]:
    """Return each point's cluster, and its squared distance to the centroid."""
    half = asked.width // 2
    paired = np.concatenate([drawn(asked.num_points // 2, half, 1), drawn(asked.num_points // 2, half, 2)], axis=1)
    points = np.concatenate([paired, np.roll(paired, half, axis=1)])

    def nearest(centroids: np.ndarray) -> Found:
        index = faiss.IndexFlatL2(points.shape[1])
        index.add(centroids)
        apart, cluster = index.search(paired, 1)
        return cluster, apart

    def attempt(number: int) -> tuple[float, np.ndarray]:
        sizes = {"min_points_per_centroid": 1, "max_points_per_centroid": len(points)}
        seed = derive(0, number) % 2**31
        made = faiss.Kmeans(points.shape[1], asked.num_clusters, niter=NUM_ITERATIONS, seed=seed, **sizes)
        return made.train(points), made.centroids

    return {
        "ours": lambda: nearest(best_attempt(points, asked.num_clusters, 0)),
        "faiss": lambda: nearest(min(map(attempt, range(NUM_ATTEMPTS)), key=lambda made: made[0])[1]),
    }


def compute_scores(queries: np.ndarray, documents: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the inner products of each query with the documents found for it."""
    return np.einsum("qd,qkd->qk", queries, documents[rows])


TASKS: Mapping[str, Callable[[argparse.Namespace], dict[str, Callable[[], Found]]]] = {
    "search": searches,
    "neighbours": neighbours,
    "negatives": negatives,
    "kmeans": kmeans,
}


def compared(name: str, asked: argparse.Namespace) -> dict[str, Any]:
    """Return one row: the median seconds of both, and the agreement of their results."""
    ways = TASKS[name](asked)
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    found: dict[str, Found] = {}
    for _ in range(asked.num_rounds):
        for way, action in ways.items():
            started = time.process_time()
            found[way] = action()
            seconds[way].append(time.process_time() - started)
    (rows, scores), (other_rows, other_scores) = found["ours"], found["faiss"]
    if name == "kmeans":  # cluster numbers differ if an empty cluster was dropped
        apart = abs(float(scores.mean()) / float(other_scores.mean()) - 1)
    else:
        apart = float(np.abs(scores - other_scores).max())
    assert apart < (0.01 if name == "kmeans" else ROUNDING), f"{name}: the results differ by {apart}"
    median = {way: round(statistics.median(each), 3) for way, each in seconds.items()}
    return {
        "task": name,
        **{key: getattr(asked, key) for key in ("num_points", "num_queries", "width", "num_clusters")},
        **{f"{way}_cpu_seconds": median[way] for way in ways},
        "ours_over_faiss": round(median["ours"] / median["faiss"], 3),
        "largest_difference": apart,
        "equal": round(float((rows == other_rows).all(axis=1).mean()), 4),
    }


def main() -> None:
    """Compare, print, and write the rows to the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = {"num-points": 100_000, "num-queries": 2000, "width": 128, "num-clusters": 256, "num-rounds": 3}
    for name, value in sizes.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--tasks", nargs="*", default=list(TASKS), choices=TASKS)
    parser.add_argument("--write", type=Path, help="the record to put the rows into")
    asked = parser.parse_args()
    machine = {"processor": platform.processor() or platform.machine(), "num_threads": faiss.omp_get_max_threads()}
    for name in asked.tasks:
        row = compared(name, asked) | machine | {"load_average": round(os.getloadavg()[0], 1)}
        print("{task:<11} ours {ours_cpu_seconds:8.3f} s  faiss {faiss_cpu_seconds:8.3f} s  {ours_over_faiss:6.2f} x  "
              "equal {equal:.4f}, apart {largest_difference:.1e}".format(**row), flush=True)  # fmt: skip
        if asked.write:
            keep_rows(asked.write, [row], ("task", "num_points", "width"))


if __name__ == "__main__":
    main()
