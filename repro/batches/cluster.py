"""Paired clusters: K-means over the two vectors of every pair, domain by domain (§4.1 and §5), kept as a stored stage.

Steps, for every domain with n pairs:
1. K = ceil(n / cluster_size) centroids, at least one.
2. The points are 2n rows: query ⊕ document for all pairs, then document ⊕ query for all pairs (Euclidean distance; both
   halves have length 1, so this is the paper's sum of the two inner products).
3. FAISS K-means on all of them, 100 iterations, best of 3 attempts by the objective. FAISS would sub-sample 256 points
   a centroid; that is switched off in its constructor, where alone it works. Only a domain that is too large for it is
   fitted on a sample, which `repro/batches/fit.py` declares; stage and record say on how many pairs.
4. Every pair belongs to the nearest returned centroid of its query ⊕ document; centroids of no pair go away.

Shapes: N pairs, D dimensions of an embedding, P = 2n points of W = 2D dimensions, K clusters. Memory: the points that
one domain is fitted on (several small ones side by side), and a block of the rest.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from repro.batches.fit import NUM_ATTEMPTS, NUM_ITERATIONS, count_clusters, count_fitted_pairs
from repro.seeds import derive, generator_for
from repro.storage.arrays import iter_blocks, load_array, rows_by_code, taken
from repro.storage.atomic import whole_file

if TYPE_CHECKING:
    import faiss

ITERATIONS_PER_CALL = 10
ROWS_PER_SEARCH = 65_536
LARGE_DOMAIN = 100_000


@dataclass(frozen=True)
class Clusters:
    """The cluster of each pair (int32, counted over all domains), the centroids (float32), each cluster's domain."""

    assignment_N: np.ndarray
    centroids_KD: np.ndarray
    domain_of_cluster_K: np.ndarray

    def save(self, folder: Path) -> None:
        """Write the three arrays into `folder`, each by rename."""
        for name, array in vars(self).items():
            with whole_file(folder / f"{name}.npy") as part, part.open("wb") as sink:
                np.save(sink, array)


def load_clusters(folder: Path, num_pairs: int | None = None) -> Clusters:
    """Read what `Clusters.save` wrote, of so many pairs; the assignment stays on disk.

    ValueError when there is nothing, or when a file is not what is kept there.
    """
    names = ("assignment_N", "centroids_KD", "domain_of_cluster_K")
    missing = [name for name in names if not (folder / f"{name}.npy").is_file()]
    if missing:
        raise ValueError(f"no clusters in {folder}: {missing} missing")
    centroids_KD = load_array(folder / "centroids_KD.npy", kind="f", shape=(None, None), mapped=True)
    num_clusters = len(centroids_KD)
    assignment_N = load_array(
        folder / "assignment_N.npy", kind="i", shape=(num_pairs,), below=num_clusters, mapped=True
    )
    domains_K = load_array(folder / "domain_of_cluster_K.npy", kind="i", shape=(num_clusters,), mapped=True)
    return Clusters(assignment_N, centroids_KD, domains_K)


def cluster_pairs(
    query_embeddings_ND: np.ndarray,
    document_embeddings_ND: np.ndarray,
    domain_codes_N: np.ndarray,
    *,
    cluster_size: int,
    seed: int,
) -> Clusters:
    """Cluster the pairs of every domain by themselves; ValueError when `cluster_size` is above every domain.

    A domain smaller than `cluster_size` becomes one cluster. On a CPU the result does not depend on the number of
    threads; K-means of large domains on a GPU is not repeatable, which is one reason why the result is stored.
    """
    domains, rows_of_domain = rows_by_code(domain_codes_N)
    counts = np.array([len(rows) for rows in rows_of_domain])
    _check(cluster_size, counts)
    vectors = _Vectors(query_embeddings_ND, document_embeddings_ND)
    assignment_N = np.empty(len(domain_codes_N), dtype=np.int32)

    def cluster(place: int) -> np.ndarray:
        rows, seed_of_domain = rows_of_domain[place], derive(seed, "clusters", int(domains[place]))
        centroids_KW, assignment_N[rows] = _cluster_domain(vectors, rows, cluster_size, seed_of_domain)
        return centroids_KW

    found = _run_for_domains(cluster, counts)
    num_clusters = np.array([len(centroids_KW) for centroids_KW in found])
    for rows, first in zip(rows_of_domain, np.cumsum(num_clusters) - num_clusters, strict=True):
        assignment_N[rows] += first
    return Clusters(assignment_N, np.concatenate(found), np.repeat(domains, num_clusters).astype(np.int32))


@dataclass(frozen=True)
class _Vectors:
    """The stored vectors of all pairs, (N, D) each, read by rows."""

    queries_ND: np.ndarray
    documents_ND: np.ndarray

    def paired(self, rows: np.ndarray) -> np.ndarray:
        """Return query ⊕ document of these rows, float32 (n, W)."""
        sides = [taken(self.queries_ND, rows), taken(self.documents_ND, rows)]
        return np.ascontiguousarray(np.concatenate(sides, axis=1), dtype=np.float32)

    def points(self, rows: np.ndarray) -> np.ndarray:
        """Return query ⊕ document of these rows, then document ⊕ query of them, float32 (2n, W)."""
        width = self.queries_ND.shape[1]
        points_PW = np.empty((2 * len(rows), 2 * width), dtype=np.float32)
        for part in iter_blocks(len(rows), ROWS_PER_SEARCH):
            swapped = slice(len(rows) + part.start, len(rows) + part.stop)
            points_PW[part, :width] = points_PW[swapped, width:] = taken(self.queries_ND, rows[part])
            points_PW[part, width:] = points_PW[swapped, :width] = taken(self.documents_ND, rows[part])
        return points_PW


def _check(cluster_size: int, counts: np.ndarray) -> None:
    if cluster_size < 1:
        raise ValueError(f"cluster_size is {cluster_size}: it is at least 1")
    if not len(counts):
        raise ValueError("there are no pairs to cluster")
    if cluster_size > counts.max():
        raise ValueError(
            f"cluster_size is {cluster_size}, and the largest domain has {counts.max()} pairs: choose at most that many"
        )


def _run_for_domains(cluster: Callable[[int], np.ndarray], counts: np.ndarray) -> list[np.ndarray]:
    """Run `cluster` for every domain: small domains side by side with one thread each, large ones with all threads, or
    on the GPUs.

    Threads inside a small domain would cost many times more than they save, most of all on a machine that is busy; on
    a GPU, where FAISS takes its memory anew for each call, of which there are up to thirty, so would taking that.
    """
    import faiss

    found: dict[int, np.ndarray] = {}
    is_large = counts >= LARGE_DOMAIN
    with ThreadPoolExecutor(faiss.omp_get_max_threads(), initializer=lambda: faiss.omp_set_num_threads(1)) as pool:
        small = np.flatnonzero(~is_large).tolist()
        found |= zip(small, pool.map(cluster, small), strict=True)
    if is_large.any() and _has_gpus():  # FAISS takes its own memory, of which torch keeps what was used before
        import torch

        torch.cuda.empty_cache()
    for place in np.flatnonzero(is_large).tolist():
        found[place] = cluster(place)
    return [found[place] for place in range(len(counts))]


def _cluster_domain(
    vectors: _Vectors, rows_n: np.ndarray, cluster_size: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the centroids of a domain (K, W), and the one of each of its pairs, int32 (n,)."""
    num_clusters, on_gpus = count_clusters(len(rows_n), cluster_size), len(rows_n) >= LARGE_DOMAIN and _has_gpus()
    if num_clusters == 1:
        paired_nW = vectors.paired(rows_n)
        width = paired_nW.shape[1] // 2
        centroid_W = (paired_nW.mean(axis=0) + np.roll(paired_nW, width, axis=1).mean(axis=0)) / 2
        return centroid_W[None], np.zeros(len(rows_n), dtype=np.int32)
    fitted, num_fitted = rows_n, count_fitted_pairs(len(rows_n), cluster_size)
    if num_fitted < len(rows_n):
        places = generator_for(seed, "sample").choice(len(rows_n), num_fitted, replace=False, shuffle=False)
        fitted = rows_n[np.sort(places)]
    centroids_KW = best_attempt(vectors.points(fitted), num_clusters, seed, on_gpus=on_gpus)
    nearest_n = _nearest_of_all(vectors, rows_n, _index_of(centroids_KW, on_gpus=on_gpus))
    used = np.flatnonzero(np.bincount(nearest_n))
    return centroids_KW[used], np.searchsorted(used, nearest_n).astype(np.int32)


def _nearest_of_all(vectors: _Vectors, rows_n: np.ndarray, index: faiss.Index) -> np.ndarray:
    """Return the nearest centroid of an index of them to each pair, int32 (n,); a block of pairs in memory."""
    nearest_n = np.empty(len(rows_n), dtype=np.int32)
    for part in iter_blocks(len(rows_n), ROWS_PER_SEARCH):
        nearest_n[part] = index.search(vectors.paired(rows_n[part]), 1)[1][:, 0]
    return nearest_n


def _index_of(centroids_KW: np.ndarray, *, on_gpus: bool) -> faiss.Index:
    """Return an index of the centroids by exact distance: where K-means was, on all GPUs or on the CPU."""
    import faiss

    index: faiss.Index = faiss.IndexFlatL2(centroids_KW.shape[1])
    if on_gpus:
        index = faiss.index_cpu_to_all_gpus(index)  # a copy on each, which share the pairs of a search
    index.add(centroids_KW)
    return index


def _has_gpus() -> bool:
    import faiss

    return bool(faiss.get_num_gpus() > 0)


def best_attempt(points_PW: np.ndarray, num_clusters: int, seed: int, *, on_gpus: bool = False) -> np.ndarray:
    """Return the centroids (K, W) of the points, of several attempts at K-means those with the lowest objective."""
    seeds = [derive(seed, attempt) for attempt in range(NUM_ATTEMPTS)]
    attempts = [_one_attempt(points_PW, num_clusters, one, on_gpus=on_gpus) for one in seeds]
    return min(attempts, key=lambda attempt: attempt[0])[1]


def _one_attempt(
    points_PW: np.ndarray, num_clusters: int, seed: int, *, on_gpus: bool = False
) -> tuple[float, np.ndarray]:
    """Run K-means ten iterations at a time and stop when ten more change no centroid: then none ever would."""
    import faiss

    start_KW = None
    for _ in range(NUM_ITERATIONS // ITERATIONS_PER_CALL):
        kmeans = faiss.Kmeans(
            points_PW.shape[1],
            num_clusters,
            niter=ITERATIONS_PER_CALL,
            seed=seed % 2**31,
            gpu=on_gpus,
            min_points_per_centroid=1,
            max_points_per_centroid=len(points_PW),
        )
        objective = kmeans.train(points_PW, init_centroids=start_KW)
        assert kmeans.centroids is not None, "train() sets them"
        if start_KW is not None and np.array_equal(start_KW, kmeans.centroids):
            break
        start_KW = kmeans.centroids.copy()
    assert start_KW is not None, "there is at least one call"
    return float(objective), start_KW
