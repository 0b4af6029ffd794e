"""The sampler: which pairs meet in a batch, as a pure function of (seed, epoch, step).

Steps:
1. `random` treats all pairs as one domain, `domain` takes each batch from one domain, `cluster` also keeps the clusters
   of a domain together (§4.1).
2. Every epoch is packed anew (see `pack.py`); its number of batches is the same each time, known before the first.
3. Step s is batch s modulo that number, of epoch s divided by it. Nothing else is remembered, so a run that is resumed
   sees the batches it would have seen.
4. An epoch of many pairs lies in a nameless file, and so do the rows of the domains: memory holds one domain at a time.

Shapes: N pairs, E batches an epoch, B pairs a batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from repro.batches.cluster import Clusters
from repro.batches.pack import ROWS_AT_ONCE, Epoch, group_by_domain, line_up_at_random, line_up_clusters, pack_epoch
from repro.storage.arrays import give_back, iter_blocks

KINDS = ("random", "domain", "cluster")


class SamplerState(NamedTuple):
    """Where a run stands: enough to go on with the same batches."""

    seed: int
    epoch: int
    step: int  # batches of this epoch already taken


@dataclass(frozen=True)
class LeftOut:
    """Rows that are in no batch of an epoch: tails take turns, rows of domains smaller than a batch never get in."""

    num_in_tails: int
    num_in_small_domains: int
    num_small_domains: int


class BatchSampler:
    """Gives the pair indices of any step."""

    def __init__(
        self,
        kind: str,
        domain_codes_N: np.ndarray,
        *,
        batch_size: int,
        seed: int,
        clusters: Clusters | None = None,
        packing: str = "random",
        folder: Path | None = None,
    ) -> None:
        """Pack in memory, or what is large, in nameless files in `folder`.

        ValueError for an unknown word, for clusters missing, unwanted or of other data, for a batch never filled.
        """
        self._line_up = _line_up(kind, domain_codes_N, clusters, packing)
        self.batch_size, self.seed = batch_size, seed
        codes_N = np.zeros(len(domain_codes_N), np.int32) if kind == "random" else np.asarray(domain_codes_N)
        self._folder = folder
        self._domains = group_by_domain(codes_N, seed, folder)
        self._counts = np.diff(self._domains.starts)
        _check_batch_size(batch_size, self._counts)
        self._epoch, self._packed = -1, Epoch(np.empty((0, batch_size), np.int64), np.empty(0, np.int64))

    def __len__(self) -> int:
        """Batches an epoch, the same for every epoch."""
        return int((self._counts // self.batch_size).sum())

    @property
    def left_out(self) -> LeftOut:
        """Count the rows that an epoch leaves out."""
        is_small = self._counts < self.batch_size
        in_tails = (self._counts[~is_small] % self.batch_size).sum()
        return LeftOut(int(in_tails), int(self._counts[is_small].sum()), int(is_small.sum()))

    def at(self, step: int) -> np.ndarray:
        """Return the batch of a step counted from the start of the run: pair indices, int64 (B,)."""
        epoch, place = divmod(step, len(self))
        return self._pack(epoch).at(place)

    def epoch(self, epoch: int) -> np.ndarray:
        """Return all batches of an epoch in their order, int64 (E, B), in memory."""
        return self._pack(epoch).all()

    def _pack(self, epoch: int) -> Epoch:
        """Return an epoch; the last one asked for is kept."""
        if epoch != self._epoch:
            self._packed = pack_epoch(
                self._domains,
                batch_size=self.batch_size,
                seed=self.seed,
                epoch=epoch,
                line_up=self._line_up,
                folder=self._folder,
            )
            self._epoch = epoch
        return self._packed

    def state_at(self, step: int) -> SamplerState:
        """Return what a checkpoint keeps after `step` batches."""
        return SamplerState(self.seed, *divmod(step, len(self)))


def _line_up(
    kind: str, domain_codes_N: np.ndarray, clusters: Clusters | None, packing: str
) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    if kind not in KINDS:
        raise ValueError(f"unknown sampler {kind!r}; choose one of {list(KINDS)}")
    if (kind == "cluster") != (clusters is not None):
        raise ValueError(f"sampler {kind!r} {'needs' if kind == 'cluster' else 'takes no'} clusters")
    if clusters is None:
        return line_up_at_random
    if len(clusters.assignment_N) != len(domain_codes_N):
        raise ValueError(f"the clusters are of {len(clusters.assignment_N)} pairs, the data has {len(domain_codes_N)}")
    for part in iter_blocks(len(domain_codes_N), ROWS_AT_ONCE):
        if not np.array_equal(clusters.domain_of_cluster_K[clusters.assignment_N[part]], domain_codes_N[part]):
            raise ValueError("the clusters were made for other domains than the data has: cluster the pairs again")
    give_back(clusters.assignment_N)
    return line_up_clusters(clusters, packing)


def _check_batch_size(batch_size: int, counts: np.ndarray) -> None:
    if batch_size < 1:
        raise ValueError(f"batch_size is {batch_size}: it is at least 1")
    largest = int(counts.max(initial=0))
    if batch_size > largest:
        raise ValueError(
            f"batch_size is {batch_size}, and the largest of {len(counts)} domains has {largest} pairs: "
            "choose at most that many"
        )
