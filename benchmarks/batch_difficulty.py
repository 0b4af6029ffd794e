"""Time each step of figure 6 at 10⁵ pairs and more, next to a reference implementation in the same process.

    python benchmarks/batch_difficulty.py --num-pairs 100000

Steps: K-means of the pairs per domain (reference: faiss.Kmeans with the same iterations and attempts on all pairs), the
greedy tour over centroids (reference: scipy's distance matrix and a loop), and the difficulty of every batch
(reference: scipy's cdist). Vectors are drawn from a mixture, so that clusters exist. Times are wall-clock seconds.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import faiss
import numpy as np
from scipy.spatial.distance import cdist

from repro.batches.cluster import NUM_ATTEMPTS, NUM_ITERATIONS, Clusters, cluster_pairs
from repro.batches.mask import compute_batch_difficulty
from repro.batches.pack import greedy_tour
from repro.batches.sampler import BatchSampler

WIDTH = 128
NUM_TOPICS = 400


def draw_pairs(num_pairs: int, num_domains: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return unit vectors of queries and documents, float32 (N, D), and each pair's domain, int32 (N,)."""
    rng = np.random.default_rng(0)
    topics = rng.normal(size=(NUM_TOPICS, WIDTH)).astype(np.float32)
    chosen = topics[rng.integers(0, NUM_TOPICS, num_pairs)]
    sides = [chosen + 0.8 * rng.normal(size=chosen.shape).astype(np.float32) for _ in range(2)]
    queries, documents = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in sides)
    return queries, documents, np.sort(rng.integers(0, num_domains, num_pairs)).astype(np.int32)


def timed(what: str, action: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of `action` and its seconds, and print them."""
    started = time.perf_counter()
    found = action()
    seconds = time.perf_counter() - started
    print(f"{what:<44} {seconds:8.2f} s", flush=True)
    return found, seconds


def cluster_with_faiss(queries: np.ndarray, documents: np.ndarray, codes: np.ndarray, cluster_size: int) -> float:
    """Return the mean over pairs of the squared distance to the nearest centroid of plain faiss."""
    total = 0.0
    for code in np.unique(codes):
        inside = codes == code
        paired = np.concatenate([queries[inside], documents[inside]], axis=1)
        points = np.concatenate([paired, np.roll(paired, WIDTH, axis=1)])
        kmeans = faiss.Kmeans(
            2 * WIDTH,
            -(-len(paired) // cluster_size),
            niter=NUM_ITERATIONS,
            nredo=NUM_ATTEMPTS,
            seed=0,
            min_points_per_centroid=1,
            max_points_per_centroid=len(points),
        )
        kmeans.train(points)
        total += float(kmeans.index.search(paired, 1)[0].sum())
    return total / len(codes)


def compute_spread(queries: np.ndarray, documents: np.ndarray, clusters: Clusters) -> float:
    """Return the same for our clusters."""
    paired = np.concatenate([queries, documents], axis=1)
    gaps = paired - clusters.centroids_KD[clusters.assignment_N]
    return float((gaps * gaps).sum(axis=1).mean())


def compute_plain_tour(centroids: np.ndarray, start: int) -> np.ndarray:
    """Return the greedy tour from scipy's full distance matrix."""
    apart = cdist(centroids, centroids, "sqeuclidean")
    order, left = [start], np.ones(len(centroids), dtype=bool)
    left[start] = False
    while left.any():
        order.append(int(np.where(left, apart[order[-1]], np.inf).argmin()))
        left[order[-1]] = False
    return np.array(order)


def difficulty(queries: np.ndarray, documents: np.ndarray, batches: np.ndarray) -> float:
    """Return the mean difficulty of all batches, as a run measures it."""
    return float(np.mean([compute_batch_difficulty(queries[rows] @ documents[rows].T) for rows in batches]))


def compute_plain_difficulty(queries: np.ndarray, documents: np.ndarray, batches: np.ndarray) -> float:
    """Return the same from scipy's cosine distances."""
    found = []
    for rows in batches:
        similar = 1 - cdist(queries[rows], documents[rows], "cosine")
        found.append((similar.sum() - np.trace(similar)) / (len(rows) * (len(rows) - 1)))
    return float(np.mean(found))


def main() -> None:
    """Time every step and its reference, and check that they agree."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("num-pairs", 100_000), ("num-domains", 8), ("cluster-size", 1024), ("batch-size", 512)):
        parser.add_argument(f"--{name}", type=int, default=value)
    asked = parser.parse_args()
    queries, documents, codes = draw_pairs(asked.num_pairs, asked.num_domains)
    size = asked.cluster_size
    print(
        f"{asked.num_pairs} pairs of 2 x {WIDTH} in {asked.num_domains} domains, {faiss.omp_get_max_threads()} threads"
    )
    clusters, _ = timed("clusters, ours", lambda: cluster_pairs(queries, documents, codes, cluster_size=size, seed=0))
    theirs, _ = timed("clusters, faiss.Kmeans", lambda: cluster_with_faiss(queries, documents, codes, size))
    print(
        f"  squared distance to the centroid: {compute_spread(queries, documents, clusters):.4f}, theirs {theirs:.4f}"
    )
    centroids = np.random.default_rng(1).normal(size=(min(8192, asked.num_pairs), WIDTH)).astype(np.float32)
    tour, _ = timed(f"tour of {len(centroids)} centroids, ours", lambda: greedy_tour(centroids, start=0))
    other, _ = timed("tour, scipy", lambda: compute_plain_tour(centroids, 0))
    print(f"  same order: {np.array_equal(tour, other)}")
    sampler = BatchSampler("cluster", codes, batch_size=asked.batch_size, seed=0, clusters=clusters, packing="greedy")
    batches, _ = timed("packing of an epoch, ours", lambda: sampler.epoch(0))
    own, _ = timed(f"difficulty of {len(batches)} batches, ours", lambda: difficulty(queries, documents, batches))
    plain, _ = timed("difficulty, scipy", lambda: compute_plain_difficulty(queries, documents, batches))
    print(f"  difficulty {own:.5f}, theirs {plain:.5f}")


if __name__ == "__main__":
    main()
