"""Packing: the rows of one epoch, cut into equal batches that never mix domains (§4.1 and appendix "TSP Packing").

Steps, for every domain:
1. A few rows sit out so that the rest divides by the batch size; which ones rotates with the epoch.
2. Clusters are put in a row: in random order, or as a greedy tour that starts at a random cluster and always goes on to
   the nearest centroid not visited yet. Rows are shuffled inside their cluster.
3. The row is cut every `batch_size`: a cluster larger than a batch is split, small neighbours in the row are joined.
Last, the batches of all domains are shuffled together.

Shapes: N pairs, K clusters, D dimensions of a centroid, E batches an epoch, B rows a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from repro.batches.cluster import Clusters
from repro.batches.tour import greedy_tour
from repro.seeds import generator_for
from repro.storage.arrays import array_to_fill, give_back, iter_blocks

ROWS_AT_ONCE = 2**20
PACKINGS = ("random", "greedy")


@dataclass(frozen=True)
class Domains:
    """Rows grouped by domain: domain i owns `rows_N[starts[i]:starts[i + 1]]`, in an order fixed by the seed."""

    rows_N: np.ndarray
    starts: np.ndarray
    codes: np.ndarray

    def rows_in_epoch(self, place: int, *, batch_size: int, epoch: int) -> np.ndarray:
        """Return the rows of one domain that take part in this epoch: the most that fill whole batches.

        The rows that sit out are a window that moves through the domain epoch by epoch, so that no row sits out for the
        (n+1)-th time before every row has sat out n times.
        """
        rows = np.asarray(self.rows_N[self.starts[place] : self.starts[place + 1]])
        num_out = len(rows) % batch_size
        return np.roll(rows, -epoch * num_out % max(1, len(rows)))[num_out:]


@dataclass(frozen=True)
class Epoch:
    """The batches of an epoch as they were cut, and the order in which they come: batch n is `rows_EB[order_E[n]]`."""

    rows_EB: np.ndarray
    order_E: np.ndarray

    def at(self, place: int) -> np.ndarray:
        """Return one batch, int64 (B,)."""
        return np.asarray(self.rows_EB[self.order_E[place]], dtype=np.int64)

    def all(self) -> np.ndarray:
        """Return all batches in their order, int64 (E, B), in memory."""
        return self.rows_EB[self.order_E].astype(np.int64)


def group_by_domain(domain_codes_N: np.ndarray, seed: int, folder: Path | None = None) -> Domains:
    """Group the rows 0 … N − 1 by domain, shuffled inside each; many rows lie in a nameless file in `folder`."""
    num_rows = len(domain_codes_N)
    shuffled_N = np.arange(num_rows, dtype=_narrowest(num_rows))
    generator_for(seed, "rows inside domains").shuffle(shuffled_N)
    rows_N = array_to_fill((num_rows,), shuffled_N.dtype.str, folder)
    codes, number_N = _renumber_codes(domain_codes_N)
    starts = np.concatenate([[0], np.cumsum(np.bincount(number_N))])
    next_place = starts[:-1].copy()
    for part in iter_blocks(num_rows, ROWS_AT_ONCE):  # a sort of all rows would hold several numbers for each
        order = _compute_stable_order(number_N[shuffled_N[part]])
        rows, number = shuffled_N[part][order], number_N[shuffled_N[part][order]]
        counts = np.bincount(number, minlength=len(codes))
        rows_N[next_place[number] + np.arange(len(rows)) - (np.cumsum(counts) - counts)[number]] = rows
        next_place += counts
    give_back(rows_N)
    return Domains(rows_N, starts, codes)


def pack_epoch(
    domains: Domains,
    *,
    batch_size: int,
    seed: int,
    epoch: int,
    line_up: Callable[[np.ndarray, np.random.Generator], np.ndarray],
    folder: Path | None = None,
) -> Epoch:
    """Return the batches of one epoch; `line_up(rows, generator)` puts the rows of one domain in order.

    Memory holds the rows of one domain; those of a large epoch lie in a nameless file in `folder`.
    """
    rng, start = generator_for(seed, "batches", epoch), 0
    num_batches = int((np.diff(domains.starts) // batch_size).sum())
    rows_EB = array_to_fill((num_batches, batch_size), domains.rows_N.dtype.str, folder)
    for place in range(len(domains.codes)):
        rows = domains.rows_in_epoch(place, batch_size=batch_size, epoch=epoch)
        stop = start + len(rows) // batch_size
        rows_EB[start:stop] = line_up(rows, rng).reshape(-1, batch_size)
        give_back(rows_EB, domains.rows_N)
        start = stop
    return Epoch(rows_EB, rng.permutation(num_batches))


def _narrowest(num_rows: int) -> type[np.signedinteger]:
    return np.int32 if num_rows < 2**31 else np.int64


def line_up_at_random(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Shuffle the rows of a domain."""
    return rng.permutation(rows)


def line_up_clusters(clusters: Clusters, packing: str) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    """Return a `line_up` that keeps clusters together; ValueError for a packing that is not one of `PACKINGS`."""
    if packing not in PACKINGS:
        raise ValueError(f"unknown packing {packing!r}; choose one of {list(PACKINGS)}")

    def line_up(rows: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        shuffled = rng.permutation(rows)
        present, cluster_of_row = _renumber_codes(clusters.assignment_N[shuffled])
        order = order_clusters(clusters.centroids_KD[present], packing=packing, rng=rng)
        position_of_cluster = np.argsort(order)
        return shuffled[_compute_stable_order(position_of_cluster[cluster_of_row])]

    return line_up


def _renumber_codes(codes_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what `np.unique` with its inverse does; without a sort where the codes lie close together."""
    least, most = int(codes_n.min(initial=0)), int(codes_n.max(initial=0))
    if most - least > 4 * len(codes_n) + 2**16:
        return np.unique(codes_n, return_inverse=True)
    counts = np.bincount(codes_n - least)
    number_of = np.cumsum(counts > 0, dtype=np.int32) - 1
    return np.flatnonzero(counts) + least, number_of[codes_n - least]


def _compute_stable_order(numbers_n: np.ndarray) -> np.ndarray:
    """Return the stable order of small numbers from 0 on: numpy sorts 16 bits in one pass, more by comparing."""
    is_narrow = int(numbers_n.max(initial=0)) < 2**16
    return np.argsort(numbers_n.astype(np.uint16) if is_narrow else numbers_n, kind="stable")


def order_clusters(centroids_KD: np.ndarray, *, packing: str, rng: np.random.Generator) -> np.ndarray:
    """Return a permutation of the clusters 0 … K − 1 of one domain."""
    num_clusters = len(centroids_KD)
    if packing == "random" or num_clusters < 2:
        return rng.permutation(num_clusters)
    return greedy_tour(centroids_KD, start=int(rng.integers(num_clusters)))
