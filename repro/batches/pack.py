"""Pack the rows of an epoch into batches that never mix domains (§4.1 and appendix "TSP Packing").

Algorithm, for each domain:
1. Leave out a few rows so that the rest is a multiple of the batch size. The selection rotates with the epoch.
2. Order the clusters randomly or by a greedy tour. The tour starts at a random cluster and moves to the nearest
   unvisited centroid. Rows are shuffled inside each cluster.
3. Cut the ordered rows every `batch_size` rows. This splits large clusters and merges small neighbouring ones.
Finally, the batches of all domains are shuffled together.

Greedy tour: up to `SMALL` centroids, the tour uses the full distance matrix. Ties go to the lower index. Larger sets
are divided into about √K cells by K-means. Each step searches only the `NUM_PROBES` nearest cells with an unvisited
centroid. This costs K·√K distances instead of K². It misses the nearest centroid only if that lies in none of these
cells, so the tour is slightly longer than the exact one.

Shapes: N pairs, K clusters, D centroid dimensions, E batches per epoch, B rows per batch, C cells, M members of a few
cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from repro.batches.cluster import Clusters
from repro.seeds import make_rng

PACKINGS = ("random", "greedy")
SMALL = 4096
NUM_PROBES = 8


@dataclass(frozen=True)
class Domains:
    """Rows grouped by domain, in an order that the seed determines.

    Domain i owns `rows_N[starts[i]:starts[i + 1]]`.
    """

    rows_N: np.ndarray
    starts: np.ndarray

    def select_rows(self, domain: int, *, batch_size: int, epoch: int) -> np.ndarray:
        """Return the rows of a domain that take part in this epoch. Their number is a multiple of `batch_size`.

        The omitted rows form a window that moves through the domain from epoch to epoch. No row is omitted for the
        (n+1)-th time before every row has been omitted n times.
        """
        rows = np.asarray(self.rows_N[self.starts[domain] : self.starts[domain + 1]])
        num_omitted = len(rows) % batch_size
        # Rolling moves this epoch's window to the front, where it is cut off. The window starts where the previous
        # epoch's window ended, and wraps around at the end of the domain.
        return np.roll(rows, -epoch * num_omitted % max(1, len(rows)))[num_omitted:]


@dataclass(frozen=True)
class Epoch:
    """Batches of one epoch. Batch i is `rows_EB[order_E[i]]`."""

    rows_EB: np.ndarray
    order_E: np.ndarray

    def at(self, index: int) -> np.ndarray:
        """Return one batch, int64 (B,)."""
        return np.asarray(self.rows_EB[self.order_E[index]], dtype=np.int64)

    def all(self) -> np.ndarray:
        """Return all batches in order, int64 (E, B), in memory."""
        return self.rows_EB[self.order_E].astype(np.int64)


def group_by_domain(domain_codes_N: np.ndarray, seed: int) -> Domains:
    """Group the rows 0 … N − 1 by domain and shuffle them inside each domain."""
    num_rows = len(domain_codes_N)
    rows_N = np.arange(num_rows, dtype=np.int32 if num_rows < 2**31 else np.int64)
    make_rng(seed, "rows inside domains").shuffle(rows_N)
    _, domain_N = _renumber_codes(domain_codes_N)
    starts = np.concatenate([[0], np.cumsum(np.bincount(domain_N))])
    return Domains(rows_N[_compute_stable_order(domain_N[rows_N])], starts)


def pack_epoch(
    domains: Domains,
    *,
    batch_size: int,
    seed: int,
    epoch: int,
    order_rows: Callable[[np.ndarray, np.random.Generator], np.ndarray],
) -> Epoch:
    """Return the batches of one epoch. `order_rows(rows, generator)` orders the rows of one domain."""
    # All domains draw from one generator, so their order affects the batches.
    rng = make_rng(seed, "batches", epoch)
    num_batches = int((np.diff(domains.starts) // batch_size).sum())
    rows_EB = np.empty((num_batches, batch_size), domains.rows_N.dtype)
    start = 0
    for domain in range(len(domains.starts) - 1):
        rows = domains.select_rows(domain, batch_size=batch_size, epoch=epoch)
        stop = start + len(rows) // batch_size
        # cut the ordered rows every `batch_size` rows, across the borders of clusters
        rows_EB[start:stop] = order_rows(rows, rng).reshape(-1, batch_size)
        start = stop
    return Epoch(rows_EB, rng.permutation(num_batches))


def shuffle_rows(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shuffle the rows of a domain."""
    return rng.permutation(rows)


def make_cluster_order(clusters: Clusters, packing: str) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Return a function that orders the rows of a domain cluster by cluster. `packing` is one of `PACKINGS`."""
    assert packing in PACKINGS, f"packing {packing!r} is none of {PACKINGS}"

    def order_rows(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        # Shuffle first: the stable sort by cluster then keeps a random order inside each cluster.
        shuffled = rng.permutation(rows)
        present, cluster_of_row = _renumber_codes(clusters.assignment_N[shuffled])
        order = order_clusters(clusters.centroids_KD[present], packing=packing, rng=rng)
        # The argsort of a permutation is its inverse: from a cluster to its position in the tour.
        position_of_cluster = np.argsort(order)
        return shuffled[_compute_stable_order(position_of_cluster[cluster_of_row])]

    return order_rows


def _renumber_codes(codes_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return `np.unique(codes_n, return_inverse=True)`. If the codes lie close together, this needs no sort."""
    minimum, maximum = (int(codes_n.min()), int(codes_n.max())) if len(codes_n) else (0, 0)
    # Below this range, a table with one entry per possible code is smaller and faster than a sort.
    if maximum - minimum > 4 * len(codes_n) + 2**16:
        return np.unique(codes_n, return_inverse=True)
    counts = np.bincount(codes_n - minimum)
    new_codes = np.cumsum(counts > 0, dtype=np.int32) - 1
    return np.flatnonzero(counts) + minimum, new_codes[codes_n - minimum]


def _compute_stable_order(keys_n: np.ndarray) -> np.ndarray:
    """Return the stable sort order of non-negative integers."""
    # For 16-bit integers, numpy uses a radix sort, which is faster than a comparison sort.
    if int(keys_n.max(initial=0)) < 2**16:
        keys_n = keys_n.astype(np.uint16)
    return np.argsort(keys_n, kind="stable")


def order_clusters(centroids_KD: np.ndarray, *, packing: str, rng: np.random.Generator) -> np.ndarray:
    """Return a permutation of the clusters 0 … K − 1 of one domain."""
    num_clusters = len(centroids_KD)
    if packing == "random" or num_clusters < 2:
        return rng.permutation(num_clusters)
    return greedy_tour(centroids_KD, start=int(rng.integers(num_clusters)))


def greedy_tour(centroids_KD: np.ndarray, start: int, *, small: int = SMALL) -> np.ndarray:
    """Return the order of visits, int64 (K,), which begins with `start`."""
    centroids_KD = np.ascontiguousarray(centroids_KD, dtype=np.float32)
    find_tour = _tour_by_matrix if len(centroids_KD) <= small else _tour_by_cells
    return find_tour(centroids_KD, start)


def _tour_by_matrix(centroids_KD: np.ndarray, start: int) -> np.ndarray:
    norms_K = np.einsum("kd,kd->k", centroids_KD, centroids_KD)
    # Squared distance, up to a constant that is equal for all candidates of a row: the row's own norm.
    distances_KK = norms_K[None, :] - 2 * (centroids_KD @ centroids_KD.T)
    tour = np.empty(len(centroids_KD), dtype=np.int64)
    current = start
    for step in range(len(tour)):
        tour[step] = current
        # a visited cluster is infinitely far from all others
        distances_KK[:, current] = np.inf
        current = int(distances_KK[current].argmin())
    return tour


def _tour_by_cells(centroids_KD: np.ndarray, start: int) -> np.ndarray:
    cells = _Cells(centroids_KD, round(len(centroids_KD) ** 0.5))
    tour = np.empty(len(centroids_KD), dtype=np.int64)
    current = start
    for step in range(len(tour)):
        tour[step] = current
        cells.remove(current)
        if step + 1 < len(tour):
            current = cells.find_nearest(centroids_KD[current])
    return tour


class _Cells:
    """Unvisited points grouped by cell.

    Cell c holds `members[starts[c] : starts[c] + sizes[c]]`. The vectors have the same order.
    """

    def __init__(self, points_KD: np.ndarray, num_cells: int) -> None:
        import faiss

        # The seed is fixed: cells only speed up the search, so they do not depend on the run's seed.
        kmeans = faiss.Kmeans(points_KD.shape[1], num_cells, niter=10, seed=0, min_points_per_centroid=1)
        kmeans.train(points_KD)
        assert kmeans.centroids is not None, "train() sets them"
        self._cell_of_point = kmeans.index.search(points_KD, 1)[1][:, 0]
        self._centres_CD = kmeans.centroids
        self._norms_C = np.einsum("cd,cd->c", self._centres_CD, self._centres_CD)
        self._sizes = np.bincount(self._cell_of_point, minlength=num_cells)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._members = np.argsort(self._cell_of_point, kind="stable")
        # the inverse permutation: where each point is stored
        self._position_of_point = np.argsort(self._members)
        self._vectors = points_KD[self._members]
        self._norms = np.einsum("kd,kd->k", self._vectors, self._vectors)
        # empty cells are infinitely far away
        self._norms_C[self._sizes == 0] = np.inf

    def remove(self, point: int) -> None:
        """Remove a visited point in constant time: the last point of its cell moves to its position."""
        cell, position = self._cell_of_point[point], self._position_of_point[point]
        self._sizes[cell] -= 1
        # After the decrement, this is the position of the cell's last unvisited point.
        last = self._starts[cell] + self._sizes[cell]
        for array in (self._members, self._vectors, self._norms):
            array[position] = array[last]
        # If the removed point was itself the last one, this entry is stale but never read again.
        self._position_of_point[self._members[position]] = position
        if self._sizes[cell] == 0:
            self._norms_C[cell] = np.inf

    def find_nearest(self, query_D: np.ndarray) -> int:
        """Return the nearest unvisited point of the nearest non-empty cells."""
        # squared distances up to the norm of `query_D`, which is the same for all cells
        distances_C = self._norms_C - 2 * (self._centres_CD @ query_D)
        probes = np.argsort(distances_C)[:NUM_PROBES]
        # Towards the end of the tour, fewer than `NUM_PROBES` cells have unvisited points.
        probes = probes[np.isfinite(distances_C[probes])]
        nearest = -1
        smallest_distance = np.inf
        for first, size in zip(self._starts[probes], self._sizes[probes], strict=True):
            members = slice(first, first + size)
            distances_M = self._norms[members] - 2 * (self._vectors[members] @ query_D)
            offset = int(distances_M.argmin())
            if distances_M[offset] < smallest_distance:
                nearest, smallest_distance = int(self._members[first + offset]), float(distances_M[offset])
        return nearest
