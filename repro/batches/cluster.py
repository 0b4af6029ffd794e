"""Cluster the training pairs with K-means, separately for each domain (§4.1 and §5).

Algorithm, for a domain of n pairs:
1. Use K = ceil(n / cluster_size) centroids, at least one.
2. If the embeddings are wider than `num_dimensions`, project them on the first principal directions of the queries, as
   in the official code, which then normalises them again. We do not.
3. Build 2n points: query ⊕ document for each pair, then document ⊕ query for each pair. Unless they are projected, both
   halves have length 1, so the Euclidean distance is equivalent to the paper's sum of two inner products.
4. Run FAISS K-means with 100 iterations and three attempts. Select the attempt with the lowest objective.
5. Assign each pair to the centroid nearest to its query ⊕ document. Remove empty clusters.

K-means uses all pairs of a domain unless the domain is too large. It then fits a random sample, and the stage and the
record state its size. Every pair is assigned, because assignment needs only one block of pairs in memory.

A large domain stores its centroids every ten iterations, and resumes from them after a kill. Domains are independent, so
groups of them can be clustered by different processes (`cluster_part`, `join_clusters`).

Shapes: N pairs, D embedding dimensions, P = 2n points of width W = 2D, K clusters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from repro.seeds import derive, make_rng
from repro.storage.arrays import group_rows_by_code, iter_blocks, load_array, take_rows
from repro.storage.files import atomic_file
from repro.storage.stages import WHOLE, Part

if TYPE_CHECKING:
    import faiss

NUM_ITERATIONS = 100
NUM_ATTEMPTS = 3
MAX_EXACT_PAIRS = 2**19
"""Largest domain that is fitted without sampling: 2^20 points, which take 1 GiB at 128 dimensions and 6 GiB at 768."""
PAIRS_PER_CENTROID = 64
"""Minimum sample size in pairs per centroid. This is 128 points. FAISS recommends 39 and samples 256."""
NUM_PROJECTED_QUERIES = 100_000
"""Number of queries from which the principal directions of a domain are computed, as in the official code."""
ITERATIONS_PER_CALL = 10
ROWS_PER_SEARCH = 65_536
LARGE_DOMAIN = 100_000

Result = tuple[np.ndarray, np.ndarray]
"""Centroids of a domain, (K, W), and the cluster of each of its pairs, int32 (n,)."""


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

    Raises ValueError if a file is damaged, or if the number of pairs differs from `num_pairs`.
    """
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
    num_dimensions: int | None = None,
    progress_folder: Path | None = None,
) -> Clusters:
    """Cluster the pairs of each domain separately.

    A domain smaller than `cluster_size` becomes one cluster. On a CPU the result does not depend on the number of
    threads. On a GPU, K-means of large domains is not repeatable, so the result is stored.

    Args:
        query_embeddings_ND: Vectors of the queries.
        document_embeddings_ND: Vectors of the documents.
        domain_codes_N: Domain of each pair.
        cluster_size: Mean number of pairs per cluster.
        seed: Decides the samples and the first centroids.
        num_dimensions: Width to which each half of a point is projected. None: its own width.
        progress_folder: Where large domains store their centroids, to resume after a kill.

    Raises:
        ValueError: `cluster_size` exceeds the size of every domain.
    """
    settings = _Settings(cluster_size, seed, num_dimensions, progress_folder)
    vectors = _Vectors(query_embeddings_ND, document_embeddings_ND)
    return _join(domain_codes_N, _cluster_domains(vectors, domain_codes_N, WHOLE, settings))


def cluster_part(
    folder: Path,
    part: Part,
    query_embeddings_ND: np.ndarray,
    document_embeddings_ND: np.ndarray,
    domain_codes_N: np.ndarray,
    **settings: Any,
) -> None:
    """Cluster the domains of one part, and write their centroids and assignments to `folder`.

    The settings are those of `cluster_pairs`.
    """
    vectors = _Vectors(query_embeddings_ND, document_embeddings_ND)
    results = _cluster_domains(vectors, domain_codes_N, part, _Settings(**settings))
    for domain, (centroids_KW, nearest_n) in results.items():
        np.save(folder / f"centroids-{domain}.npy", centroids_KW)
        np.save(folder / f"nearest-{domain}.npy", nearest_n)


def join_clusters(parts: Sequence[Path], domain_codes_N: np.ndarray) -> Clusters:
    """Return the clusters of all parts, which are those of `cluster_pairs` for all domains."""
    results = {}
    for centroids in (path for part in parts for path in part.glob("centroids-*.npy")):
        nearest = centroids.with_name(centroids.name.replace("centroids", "nearest"))
        domain = int(centroids.stem.partition("-")[2])
        results[domain] = np.load(centroids, mmap_mode="r"), np.load(nearest, mmap_mode="r")
    return _join(domain_codes_N, results)


def _choose_domains(counts: np.ndarray, part: Part) -> list[int]:
    """Return the domains of one part. The time of a domain grows with the square of its size."""
    loads = [0] * part.of
    chosen = []
    for index in np.argsort(-counts, kind="stable").tolist():
        # the part with the least work so far takes the next largest domain
        lightest = loads.index(min(loads))
        loads[lightest] += int(counts[index]) ** 2
        if lightest == part.number - 1:
            chosen.append(index)
    return chosen


def _join(domain_codes_N: np.ndarray, results: Mapping[int, Result]) -> Clusters:
    """Join the centroids and assignments of all domains. Clusters are numbered per domain, and then over all domains."""
    domains, rows_of_domain = group_rows_by_code(domain_codes_N)
    assignment_N = np.empty(len(domain_codes_N), dtype=np.int32)
    ordered = [results[domain] for domain in domains.tolist()]
    num_clusters = np.array([len(centroids_KW) for centroids_KW, _ in ordered])
    firsts = np.cumsum(num_clusters) - num_clusters
    for rows, (_, nearest_n), first in zip(rows_of_domain, ordered, firsts, strict=True):
        assignment_N[rows] = nearest_n + first
    centroids_KW = np.concatenate([centroids_KW for centroids_KW, _ in ordered])
    return Clusters(assignment_N, centroids_KW, np.repeat(domains, num_clusters).astype(np.int32))


@dataclass(frozen=True)
class _Settings:
    """The settings of K-means for all domains, as in `cluster_pairs`."""

    cluster_size: int
    seed: int
    num_dimensions: int | None = None
    progress_folder: Path | None = None


@dataclass(frozen=True)
class _Vectors:
    """Stored embeddings of all pairs, (N, D) each, which are read by row, and projected if there are directions."""

    queries_ND: np.ndarray
    documents_ND: np.ndarray
    directions_DE: np.ndarray | None = None

    def project(self, rows: np.ndarray, num_dimensions: int | None, seed: int) -> _Vectors:
        """Return the vectors on the principal directions of a sample of these queries, as truncated SVD gives them."""
        if num_dimensions is None or num_dimensions >= self.queries_ND.shape[1]:
            return self
        sample = make_rng(seed, "directions").permutation(rows)[:NUM_PROJECTED_QUERIES]
        sample_nD = take_rows(self.queries_ND, np.sort(sample)).astype(np.float64)
        # `eigh` returns rising eigenvalues, so the principal directions are the last ones.
        directions_DE = np.linalg.eigh(sample_nD.T @ sample_nD).eigenvectors[:, ::-1][:, :num_dimensions]
        # Their signs differ between processors. A resumed K-means needs those of its centroids.
        largest_E = directions_DE[np.abs(directions_DE).argmax(axis=0), np.arange(num_dimensions)]
        return replace(self, directions_DE=(directions_DE * np.sign(largest_E)).astype(np.float32))

    def _take(self, array_ND: np.ndarray, rows: np.ndarray) -> np.ndarray:
        vectors_nD = take_rows(array_ND, rows)
        return vectors_nD if self.directions_DE is None else vectors_nD.astype(np.float32) @ self.directions_DE

    def read_paired_texts(self, rows: np.ndarray) -> np.ndarray:
        """Return query ⊕ document of these rows, float32 (n, W)."""
        # FAISS reads contiguous float32. Embeddings are stored in float16.
        sides = [self._take(self.queries_ND, rows), self._take(self.documents_ND, rows)]
        return np.ascontiguousarray(np.concatenate(sides, axis=1), dtype=np.float32)

    def read_points(self, rows: np.ndarray) -> np.ndarray:
        """Return both concatenations of these rows, float32 (2n, W): query ⊕ document, then document ⊕ query."""
        width = (self.queries_ND if self.directions_DE is None else self.directions_DE).shape[1]
        # Filled in place: concatenating the halves would hold the largest array of the stage twice.
        points_PW = np.empty((2 * len(rows), 2 * width), dtype=np.float32)
        for part in iter_blocks(len(rows), ROWS_PER_SEARCH):
            swapped = slice(len(rows) + part.start, len(rows) + part.stop)
            # Both orders of a pair are points, which makes the clustering symmetric in queries and documents (§4.1).
            points_PW[part, :width] = points_PW[swapped, width:] = self._take(self.queries_ND, rows[part])
            points_PW[part, width:] = points_PW[swapped, :width] = self._take(self.documents_ND, rows[part])
        return points_PW


def _cluster_domains(
    vectors: _Vectors, domain_codes_N: np.ndarray, part: Part, settings: _Settings
) -> dict[int, Result]:
    """Return the centroids and assignment of each domain of a part. Each has its own seed, so they run in any order.

    Small domains run in parallel with one thread each. Large domains run one after another, with all threads or on the
    GPUs. More threads inside a small domain would cost more than they save, most of all on a busy machine. On a GPU,
    memory allocation would dominate: FAISS allocates memory for each of up to thirty calls.
    """
    import faiss

    domains, rows_of_domain = group_rows_by_code(domain_codes_N)
    counts = np.array([len(rows) for rows in rows_of_domain])
    if settings.cluster_size > counts.max():
        raise ValueError(f"cluster_size is {settings.cluster_size}, and the largest domain has {counts.max()} pairs")

    def cluster(index: int) -> Result:
        code, rows_n = int(domains[index]), rows_of_domain[index]
        domain_seed = derive(settings.seed, "clusters", code)
        domain_vectors = vectors.project(rows_n, settings.num_dimensions, domain_seed)
        is_large = len(rows_n) >= LARGE_DOMAIN
        folder = settings.progress_folder if is_large else None
        progress = None if folder is None else folder / f"domain-{code}.npz"
        on_gpus = is_large and _has_gpus()
        return _cluster_domain(domain_vectors, rows_n, settings.cluster_size, domain_seed, on_gpus, progress)

    chosen = _choose_domains(counts, part)
    small = [index for index in chosen if counts[index] < LARGE_DOMAIN]
    large = [index for index in chosen if counts[index] >= LARGE_DOMAIN]
    with ThreadPoolExecutor(faiss.omp_get_max_threads(), initializer=lambda: faiss.omp_set_num_threads(1)) as pool:
        results = dict(zip(domains[small].tolist(), pool.map(cluster, small), strict=True))
    # FAISS allocates its own GPU memory, so the blocks that torch has cached must be released first.
    if large and _has_gpus():
        import torch

        torch.cuda.empty_cache()
    return results | {int(domains[index]): cluster(index) for index in large}


def _cluster_domain(
    vectors: _Vectors,
    rows_n: np.ndarray,
    cluster_size: int,
    seed: int,
    on_gpus: bool,
    progress: Path | None = None,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the centroids of a domain, (K, W), and the cluster of each pair, int32 (n,).

    `progress` is the file of unfinished centroids.
    """
    num_clusters = count_clusters(len(rows_n), cluster_size)
    if num_clusters == 1:
        # One cluster needs no K-means: its centroid is the mean of both concatenations.
        mean_D = vectors.read_paired_texts(rows_n).mean(axis=0).reshape(2, -1).mean(axis=0)
        return np.tile(mean_D, 2)[None], np.zeros(len(rows_n), dtype=np.int32)
    fitted_rows = rows_n
    num_fitted = count_fitted_pairs(len(rows_n), cluster_size)
    if num_fitted < len(rows_n):
        sample = make_rng(seed, "sample").choice(len(rows_n), num_fitted, replace=False, shuffle=False)
        # In ascending order, the sample is read from the memory map in one pass.
        fitted_rows = rows_n[np.sort(sample)]
    centroids_KW = best_attempt(
        vectors.read_points(fitted_rows), num_clusters, seed, on_gpus=on_gpus, progress=progress
    )
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


def best_attempt(
    points_PW: np.ndarray, num_clusters: int, seed: int, *, on_gpus: bool = False, progress: Path | None = None
) -> np.ndarray:
    """Run K-means several times and return the centroids (K, W) with the lowest objective.

    The iterations run in groups of ten. If ten further iterations change no centroid, K-means has converged. The state
    after each group is stored in the file `progress`. If it exists, K-means resumes from it.
    """
    import faiss

    state = _Progress.load(progress)
    while state.attempt < NUM_ATTEMPTS:
        kmeans = faiss.Kmeans(
            points_PW.shape[1],
            num_clusters,
            niter=ITERATIONS_PER_CALL,
            # FAISS seeds are 32-bit signed integers.
            seed=derive(seed, state.attempt) % 2**31,
            # True: all GPUs, each with a copy of the centroids and a share of the points
            gpu=on_gpus,
            # By default FAISS samples 256 points per centroid. Only the constructor can disable this.
            min_points_per_centroid=1,
            max_points_per_centroid=len(points_PW),
        )
        # Continue from the centroids of the previous call. Only the first call draws them from the seed.
        objective = float(kmeans.train(points_PW, init_centroids=state.current_KW if state.num_calls else None))
        assert kmeans.centroids is not None, "train() sets them"
        state = state.advance(objective, kmeans.centroids.copy())
        state.save(progress)
    return state.best_KW


@dataclass(frozen=True)
class _Progress:
    """State of K-means after a group of iterations."""

    attempt: int = 0
    num_calls: int = 0  # of this attempt
    current_KW: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))
    best_objective: float = np.inf
    best_KW: np.ndarray = field(default_factory=lambda: np.empty((0, 0), np.float32))

    def advance(self, objective: float, centroids_KW: np.ndarray) -> _Progress:
        """Return the state after further iterations of the current attempt."""
        is_converged = self.num_calls > 0 and np.array_equal(self.current_KW, centroids_KW)
        if not is_converged and self.num_calls + 1 < NUM_ITERATIONS // ITERATIONS_PER_CALL:
            return replace(self, num_calls=self.num_calls + 1, current_KW=centroids_KW)
        is_better = objective < self.best_objective
        best = (objective, centroids_KW) if is_better else (self.best_objective, self.best_KW)
        return _Progress(self.attempt + 1, 0, best_objective=best[0], best_KW=best[1])

    def save(self, path: Path | None) -> None:
        """Replace the file of this state atomically. Do nothing without a path."""
        if path is not None:
            with atomic_file(path) as part, part.open("wb") as file:
                np.savez(file, **vars(self))

    @staticmethod
    def load(path: Path | None) -> _Progress:
        """Return the stored state, or the first one."""
        if path is None or not path.is_file():
            return _Progress()
        with np.load(path) as stored:
            values = {name: stored[name] for name in stored.files}
        return _Progress(**{name: value if value.ndim else value.item() for name, value in values.items()})
