"""Cluster the training pairs with K-means, separately for each domain (§4.1 and §5).

Algorithm, for a domain of n pairs:
1. Use K = ceil(n / cluster_size) centroids, at least one.
2. Build 2n points: query ⊕ document for each pair, then document ⊕ query for each pair. Both halves have length 1, so
   the Euclidean distance is equivalent to the paper's sum of two inner products.
3. Run FAISS K-means with 100 iterations and three attempts. Select the attempt with the lowest objective.
4. Assign each pair to the centroid nearest to its query ⊕ document. Remove empty clusters.

K-means uses all pairs of a domain unless the domain is too large. It then fits a random sample, and the stage and the
record state its size. Every pair is assigned, because assignment needs only one block of pairs in memory.

Shapes: N pairs, D embedding dimensions, P = 2n points of width W = 2D, K clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from repro.seeds import derive, make_rng
from repro.storage.arrays import group_rows_by_code, iter_blocks, load_array, take_rows
from repro.storage.files import atomic_file

if TYPE_CHECKING:
    import faiss

NUM_ITERATIONS = 100
NUM_ATTEMPTS = 3
MAX_EXACT_PAIRS = 2**19
"""Largest domain that is fitted without sampling: 2^20 points, which take 1 GiB at 128 dimensions and 6 GiB at 768."""
PAIRS_PER_CENTROID = 64
"""Minimum sample size in pairs per centroid. This is 128 points. FAISS recommends 39 and samples 256."""
ITERATIONS_PER_CALL = 10
ROWS_PER_SEARCH = 65_536
LARGE_DOMAIN = 100_000


@dataclass(frozen=True)
class Clusters:
    """Cluster assignment and centroids of all pairs.

    `assignment_N` (int32) numbers the clusters over all domains. `centroids_KD` is float32. `domain_of_cluster_K` is
    the domain code of each cluster.
    """

    assignment_N: np.ndarray
    centroids_KD: np.ndarray
    domain_of_cluster_K: np.ndarray

    def save(self, folder: Path) -> None:
        """Write the three arrays to `folder`. Each file is replaced atomically."""
        for name, array in vars(self).items():
            with atomic_file(folder / f"{name}.npy") as part, part.open("wb") as file:
                np.save(file, array)


def load_clusters(folder: Path, num_pairs: int | None = None) -> Clusters:
    """Load the clusters that `Clusters.save` wrote. The arrays are memory-mapped.

    Raises ValueError if a file is missing or damaged, or if the number of pairs differs from `num_pairs`.
    """
    names = ("assignment_N", "centroids_KD", "domain_of_cluster_K")
    missing = [name for name in names if not (folder / f"{name}.npy").is_file()]
    if missing:
        raise ValueError(f"no clusters in {folder}: {missing} missing")
    centroids_KD = load_array(folder / "centroids_KD.npy", kind="f", shape=(None, None), mapped=True)
    num_clusters = len(centroids_KD)
    assignment_N = load_array(folder / "assignment_N.npy", kind="i", shape=(num_pairs,), mapped=True)
    domains_K = load_array(folder / "domain_of_cluster_K.npy", kind="i", shape=(num_clusters,), mapped=True)
    return Clusters(assignment_N, centroids_KD, domains_K)


def count_clusters(num_pairs: int, cluster_size: int) -> int:
    """Return the number of clusters for a domain of `num_pairs` pairs."""
    # Ceiling division of integers: a float quotient would be off by one for large counts.
    return -(-num_pairs // cluster_size)


def count_fitted_pairs(num_pairs: int, cluster_size: int) -> int:
    """Return the number of pairs that K-means fits: all pairs, or the sample size for a large domain."""
    return min(num_pairs, max(MAX_EXACT_PAIRS, PAIRS_PER_CENTROID * count_clusters(num_pairs, cluster_size)))


def list_sampled_domains(domain_codes_N: np.ndarray, cluster_size: int) -> dict[int, tuple[int, int]]:
    """Return the domains that are fitted on a sample, as {domain code: (sample size, number of pairs)}."""
    codes, counts = np.unique(domain_codes_N, return_counts=True)
    sampled: dict[int, tuple[int, int]] = {}
    for code, num_pairs in zip(codes.tolist(), counts.tolist(), strict=True):
        num_fitted = count_fitted_pairs(num_pairs, cluster_size)
        if num_fitted < num_pairs:
            sampled[code] = (num_fitted, num_pairs)
    return sampled


def cluster_pairs(
    query_embeddings_ND: np.ndarray,
    document_embeddings_ND: np.ndarray,
    domain_codes_N: np.ndarray,
    *,
    cluster_size: int,
    seed: int,
) -> Clusters:
    """Cluster the pairs of each domain separately.

    A domain smaller than `cluster_size` becomes one cluster. On a CPU the result does not depend on the number of
    threads. On a GPU, K-means of large domains is not repeatable, so the result is stored.

    Raises ValueError if `cluster_size` exceeds the size of every domain.
    """
    domains, rows_of_domain = group_rows_by_code(domain_codes_N)
    counts = np.array([len(rows) for rows in rows_of_domain])
    _check_cluster_size(cluster_size, counts)
    vectors = _Vectors(query_embeddings_ND, document_embeddings_ND)
    assignment_N = np.empty(len(domain_codes_N), dtype=np.int32)

    def cluster(index: int) -> np.ndarray:
        rows = rows_of_domain[index]
        domain_seed = derive(seed, "clusters", int(domains[index]))
        # Threads write to disjoint rows, so they need no lock.
        centroids_KW, assignment_N[rows] = _cluster_domain(vectors, rows, cluster_size, domain_seed)
        return centroids_KW

    # Domains run in any order, since each has its own seed.
    centroids = _run_for_domains(cluster, counts)
    num_clusters = np.array([len(centroids_KW) for centroids_KW in centroids])
    # So far, clusters are numbered per domain. Shift the numbers so that they are unique over all domains.
    for rows, first in zip(rows_of_domain, np.cumsum(num_clusters) - num_clusters, strict=True):
        assignment_N[rows] += first
    return Clusters(assignment_N, np.concatenate(centroids), np.repeat(domains, num_clusters).astype(np.int32))


@dataclass(frozen=True)
class _Vectors:
    """Stored embeddings of all pairs, (N, D) each, which are read by row."""

    queries_ND: np.ndarray
    documents_ND: np.ndarray

    def read_paired_texts(self, rows: np.ndarray) -> np.ndarray:
        """Return query ⊕ document of these rows, float32 (n, W)."""
        # FAISS reads contiguous float32. Embeddings are stored in float16.
        sides = [take_rows(self.queries_ND, rows), take_rows(self.documents_ND, rows)]
        return np.ascontiguousarray(np.concatenate(sides, axis=1), dtype=np.float32)

    def read_points(self, rows: np.ndarray) -> np.ndarray:
        """Return both concatenations of these rows, float32 (2n, W): query ⊕ document, then document ⊕ query."""
        width = self.queries_ND.shape[1]
        # Filled in place: concatenating the halves would hold the largest array of the stage twice.
        points_PW = np.empty((2 * len(rows), 2 * width), dtype=np.float32)
        for part in iter_blocks(len(rows), ROWS_PER_SEARCH):
            swapped = slice(len(rows) + part.start, len(rows) + part.stop)
            # Both orders of a pair are points, which makes the clustering symmetric in queries and documents (§4.1).
            points_PW[part, :width] = points_PW[swapped, width:] = take_rows(self.queries_ND, rows[part])
            points_PW[part, width:] = points_PW[swapped, :width] = take_rows(self.documents_ND, rows[part])
        return points_PW


def _check_cluster_size(cluster_size: int, counts: np.ndarray) -> None:
    if cluster_size < 1:
        raise ValueError(f"cluster_size is {cluster_size}, but must be at least 1")
    if not len(counts):
        raise ValueError("there are no pairs to cluster")
    if cluster_size > counts.max():
        raise ValueError(
            f"cluster_size is {cluster_size}, and the largest domain has {counts.max()} pairs: choose at most that many"
        )


def _run_for_domains(cluster: Callable[[int], np.ndarray], counts: np.ndarray) -> list[np.ndarray]:
    """Run `cluster` for every domain and return the centroids per domain.

    Small domains run in parallel with one thread each. Large domains run one after another, with all threads or on the
    GPUs. More threads inside a small domain would cost more than they save, most of all on a busy machine. On a GPU,
    memory allocation would dominate: FAISS allocates memory for each of up to thirty calls.
    """
    import faiss

    centroids: dict[int, np.ndarray] = {}
    is_large = counts >= LARGE_DOMAIN
    with ThreadPoolExecutor(faiss.omp_get_max_threads(), initializer=lambda: faiss.omp_set_num_threads(1)) as pool:
        small = np.flatnonzero(~is_large).tolist()
        centroids |= zip(small, pool.map(cluster, small), strict=True)
    # FAISS allocates its own GPU memory, so the blocks that torch has cached must be released first.
    if is_large.any() and _has_gpus():
        import torch

        torch.cuda.empty_cache()
    for index in np.flatnonzero(is_large).tolist():
        centroids[index] = cluster(index)
    return [centroids[index] for index in range(len(counts))]


def _cluster_domain(
    vectors: _Vectors, rows_n: np.ndarray, cluster_size: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the centroids of a domain, (K, W), and the cluster of each pair, int32 (n,)."""
    num_clusters = count_clusters(len(rows_n), cluster_size)
    if num_clusters == 1:
        paired_nW = vectors.read_paired_texts(rows_n)
        # One cluster needs no K-means: its centroid is the mean of both concatenations.
        # Rolling a row by half its width turns query ⊕ document into document ⊕ query.
        width = paired_nW.shape[1] // 2
        centroid_W = (paired_nW.mean(axis=0) + np.roll(paired_nW, width, axis=1).mean(axis=0)) / 2
        return centroid_W[None], np.zeros(len(rows_n), dtype=np.int32)
    fitted_rows = rows_n
    num_fitted = count_fitted_pairs(len(rows_n), cluster_size)
    if num_fitted < len(rows_n):
        sample = make_rng(seed, "sample").choice(len(rows_n), num_fitted, replace=False, shuffle=False)
        # In ascending order, the sample is read from the memory map in one pass.
        fitted_rows = rows_n[np.sort(sample)]
    on_gpus = len(rows_n) >= LARGE_DOMAIN and _has_gpus()
    centroids_KW = best_attempt(vectors.read_points(fitted_rows), num_clusters, seed, on_gpus=on_gpus)
    # A pair is assigned by query ⊕ document only. It is one point here, while K-means saw it in both orders.
    nearest_n = _assign_nearest(vectors, rows_n, _build_index(centroids_KW, on_gpus=on_gpus))
    # Number the clusters consecutively, because empty clusters are removed.
    used = np.flatnonzero(np.bincount(nearest_n))
    return centroids_KW[used], np.searchsorted(used, nearest_n).astype(np.int32)


def _assign_nearest(vectors: _Vectors, rows_n: np.ndarray, index: faiss.Index) -> np.ndarray:
    """Return the nearest centroid of each pair, int32 (n,). Memory holds one block of pairs."""
    nearest_n = np.empty(len(rows_n), dtype=np.int32)
    for part in iter_blocks(len(rows_n), ROWS_PER_SEARCH):
        nearest_n[part] = index.search(vectors.read_paired_texts(rows_n[part]), 1)[1][:, 0]
    return nearest_n


def _build_index(centroids_KW: np.ndarray, *, on_gpus: bool) -> faiss.Index:
    """Return an exact index of the centroids, on all GPUs or on the CPU, where K-means ran."""
    import faiss

    index: faiss.Index = faiss.IndexFlatL2(centroids_KW.shape[1])
    if on_gpus:
        # Every GPU gets a copy of the centroids and searches a share of the pairs.
        index = faiss.index_cpu_to_all_gpus(index)
    index.add(centroids_KW)
    return index


def _has_gpus() -> bool:
    import faiss

    return bool(faiss.get_num_gpus() > 0)


def best_attempt(points_PW: np.ndarray, num_clusters: int, seed: int, *, on_gpus: bool = False) -> np.ndarray:
    """Run K-means several times and return the centroids (K, W) with the lowest objective."""
    seeds = [derive(seed, attempt) for attempt in range(NUM_ATTEMPTS)]
    attempts = [_run_attempt(points_PW, num_clusters, attempt_seed, on_gpus=on_gpus) for attempt_seed in seeds]
    return min(attempts, key=lambda attempt: attempt[0])[1]


def _run_attempt(
    points_PW: np.ndarray, num_clusters: int, seed: int, *, on_gpus: bool = False
) -> tuple[float, np.ndarray]:
    """Run K-means once and return its objective and centroids.

    The iterations run in groups of ten. If ten further iterations change no centroid, K-means has converged.
    """
    import faiss

    start_KW = None
    for _ in range(NUM_ITERATIONS // ITERATIONS_PER_CALL):
        kmeans = faiss.Kmeans(
            points_PW.shape[1],
            num_clusters,
            niter=ITERATIONS_PER_CALL,
            # FAISS seeds are 32-bit signed integers.
            seed=seed % 2**31,
            gpu=on_gpus,
            # By default FAISS samples 256 points per centroid. Only the constructor can disable this.
            min_points_per_centroid=1,
            max_points_per_centroid=len(points_PW),
        )
        # Continue from the centroids of the previous call. Only the first call draws them from the seed.
        objective = kmeans.train(points_PW, init_centroids=start_KW)
        assert kmeans.centroids is not None, "train() sets them"
        if start_KW is not None and np.array_equal(start_KW, kmeans.centroids):
            break
        start_KW = kmeans.centroids.copy()
    assert start_KW is not None, "there is at least one call"
    return float(objective), start_KW
