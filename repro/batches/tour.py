"""The greedy tour: from a start always on to the nearest centroid not visited yet (appendix "TSP Packing").

Steps:
1. Up to `SMALL` centroids the tour is exact: all distances at once, then one minimum a stop; a tie goes to the lower
   index.
2. More are first sorted into about √K cells by K-means. A stop looks only into the `NUM_PROBES` nearest cells that
   still hold an unvisited centroid, so a tour costs K·√K distances instead of K². It misses the nearest centroid only
   when that lies in none of these cells; the tour comes out a little longer than the exact one.

Shapes: K centroids, D dimensions, C cells, M members of a few cells.
"""

from __future__ import annotations

import numpy as np

SMALL = 4096
NUM_PROBES = 8


def greedy_tour(centroids_KD: np.ndarray, start: int, *, small: int = SMALL) -> np.ndarray:
    """Return the order of visits, int64 (K,), beginning with `start`; ValueError when there is no such centroid."""
    num_centroids = len(centroids_KD)
    if not 0 <= start < num_centroids:
        raise ValueError(f"start is {start}: there are {num_centroids} centroids")
    centroids_KD = np.ascontiguousarray(centroids_KD, dtype=np.float32)
    if num_centroids <= small:
        return _tour_by_matrix(centroids_KD, start)
    return _tour_by_cells(centroids_KD, start)


def _tour_by_matrix(centroids_KD: np.ndarray, start: int) -> np.ndarray:
    norms_K = np.einsum("kd,kd->k", centroids_KD, centroids_KD)
    # Without the norm of the row, which is the same for all of its candidates.
    distances_KK = norms_K[None, :] - 2 * (centroids_KD @ centroids_KD.T)
    tour = np.empty(len(centroids_KD), dtype=np.int64)
    here = start
    for stop in range(len(tour)):
        tour[stop] = here
        distances_KK[:, here] = np.inf
        here = int(distances_KK[here].argmin())
    return tour


def _tour_by_cells(centroids_KD: np.ndarray, start: int) -> np.ndarray:
    cells = _Cells(centroids_KD, round(len(centroids_KD) ** 0.5))
    tour = np.empty(len(centroids_KD), dtype=np.int64)
    here = start
    for stop in range(len(tour)):
        tour[stop] = here
        cells.remove(here)
        if stop + 1 < len(tour):
            here = cells.nearest(centroids_KD[here])
    return tour


class _Cells:
    """Unvisited points by cell: cell c holds `members[starts[c] : starts[c] + sizes[c]]`; vectors lie the same way."""

    def __init__(self, points_KD: np.ndarray, num_cells: int) -> None:
        import faiss

        kmeans = faiss.Kmeans(points_KD.shape[1], num_cells, niter=10, seed=0, min_points_per_centroid=1)
        kmeans.train(points_KD)
        assert kmeans.centroids is not None, "train() sets them"
        self._cell_of_point = kmeans.index.search(points_KD, 1)[1][:, 0]
        self._centres_CD = kmeans.centroids
        self._norms_C = np.einsum("cd,cd->c", self._centres_CD, self._centres_CD)
        self._sizes = np.bincount(self._cell_of_point, minlength=num_cells)
        self._starts = np.cumsum(self._sizes) - self._sizes
        self._members = np.argsort(self._cell_of_point, kind="stable")
        self._place_of_point = np.argsort(self._members)
        self._vectors = points_KD[self._members]
        self._norms = np.einsum("kd,kd->k", self._vectors, self._vectors)
        self._norms_C[self._sizes == 0] = np.inf

    def remove(self, point: int) -> None:
        """Take a visited point out of its cell; the last of the cell moves into its place."""
        cell, place = self._cell_of_point[point], self._place_of_point[point]
        self._sizes[cell] -= 1
        last = self._starts[cell] + self._sizes[cell]
        for array in (self._members, self._vectors, self._norms):
            array[place] = array[last]
        self._place_of_point[self._members[place]] = place
        if self._sizes[cell] == 0:
            self._norms_C[cell] = np.inf

    def nearest(self, from_D: np.ndarray) -> int:
        """Return the nearest unvisited point of the nearest cells that hold one."""
        distances_C = self._norms_C - 2 * (self._centres_CD @ from_D)
        probes = np.argsort(distances_C)[:NUM_PROBES]
        probes = probes[np.isfinite(distances_C[probes])]
        best, best_distance = -1, np.inf
        for first, size in zip(self._starts[probes], self._sizes[probes], strict=True):
            here = slice(first, first + size)
            distances_M = self._norms[here] - 2 * (self._vectors[here] @ from_D)
            place = int(distances_M.argmin())
            if distances_M[place] < best_distance:
                best, best_distance = int(self._members[first + place]), float(distances_M[place])
        return best
