"""Sample batches as a pure function of (seed, epoch, step).

1. `random` treats all pairs as one domain. `domain` draws each batch from one domain. `cluster` also groups the rows of
   a domain by cluster (§4.1).
2. Every epoch is packed again (`repro.batches.pack`). The number of batches E is the same for all epochs.
3. Step s uses batch s mod E of epoch s // E. There is no other state, so a resumed run sees the same batches.
4. Epochs can be packed once and stored for all processes of a run (`BatchSampler.save`, `StoredSampler`).

Shapes: N pairs, E batches per epoch, B pairs per batch.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from repro.batches.cluster import Clusters
from repro.batches.pack import Epoch, group_by_domain, make_cluster_order, pack_epoch, shuffle_rows
from repro.storage.arrays import load_array

KINDS = ("random", "domain", "cluster")


@dataclass(frozen=True)
class DroppedPairs:
    """Numbers of pairs that an epoch drops.

    The tail of a domain is what remains after its last full batch. Other pairs are in the tail in each epoch. Pairs of
    domains smaller than a batch are never used.
    """

    num_in_tails: int
    num_in_small_domains: int


class BatchSampler:
    """Sampler that returns the pair indices of any step."""

    def __init__(
        self,
        kind: str,
        domain_codes_N: np.ndarray,
        *,
        batch_size: int,
        seed: int,
        clusters: Clusters | None = None,
        packing: str = "random",
    ) -> None:
        """Group the rows by domain.

        Raises ValueError if the clusters are of other data, or if no domain fills a batch.
        """
        self._order_rows = _choose_order(kind, domain_codes_N, clusters, packing)
        self.batch_size, self.seed = batch_size, seed
        # Batches of all pairs are batches of a single domain.
        codes_N = np.zeros(len(domain_codes_N), np.int32) if kind == "random" else np.asarray(domain_codes_N)
        self._domains = group_by_domain(codes_N, seed)
        self._counts = np.diff(self._domains.starts)
        largest = int(self._counts.max(initial=0))
        if batch_size > largest:
            num_domains = len(self._counts)
            raise ValueError(
                f"batch_size is {batch_size}, and the largest of {num_domains} domains has {largest} pairs"
            )
        # Packed on demand, because some processes only need the length. The last epoch is kept.
        self._pack = lru_cache(maxsize=1)(self._make_epoch)

    def __len__(self) -> int:
        """Return the number of batches per epoch."""
        return int((self._counts // self.batch_size).sum())

    @property
    def dropped_pairs(self) -> DroppedPairs:
        """Rows that are not used in an epoch."""
        is_small = self._counts < self.batch_size
        num_in_tails = (self._counts[~is_small] % self.batch_size).sum()
        return DroppedPairs(int(num_in_tails), int(self._counts[is_small].sum()))

    def at(self, step: int) -> np.ndarray:
        """Return the pair indices of a step, int64 (B,). Steps are counted from the start of the run."""
        epoch, index = divmod(step, len(self))
        return self._pack(epoch).at(index)

    def epoch(self, epoch: int) -> np.ndarray:
        """Return all batches of an epoch in order, int64 (E, B), in memory."""
        return self._pack(epoch).all()

    def _make_epoch(self, epoch: int) -> Epoch:
        return pack_epoch(
            self._domains,
            batch_size=self.batch_size,
            seed=self.seed,
            epoch=epoch,
            order_rows=self._order_rows,
        )

    def save(self, folder: Path, num_epochs: int) -> None:
        """Write the batches of the first epochs, for `StoredSampler`."""
        np.save(folder / "counts.npy", self._counts)
        for epoch in range(num_epochs):
            packed = self._pack(epoch)
            np.save(folder / f"rows-{epoch}.npy", packed.rows_EB)
            np.save(folder / f"order-{epoch}.npy", packed.order_E)


class StoredSampler(BatchSampler):
    """The batches that `BatchSampler.save` wrote. They are memory-mapped."""

    def __init__(self, folder: Path, *, batch_size: int, seed: int) -> None:
        """Open the batches in `folder`, which were packed with this batch size and seed."""
        self.batch_size, self.seed = batch_size, seed
        self._counts = load_array(folder / "counts.npy", kind="i", shape=(None,))
        self._stored = folder
        self._pack = lru_cache(maxsize=1)(self._make_epoch)

    def _make_epoch(self, epoch: int) -> Epoch:
        shape = (len(self), self.batch_size)
        rows_EB = load_array(self._stored / f"rows-{epoch}.npy", kind="i", shape=shape, mapped=True)
        return Epoch(rows_EB, load_array(self._stored / f"order-{epoch}.npy", kind="i", shape=shape[:1], mapped=True))


def _choose_order(
    kind: str, domain_codes_N: np.ndarray, clusters: Clusters | None, packing: str
) -> Callable[[np.ndarray, np.random.Generator], np.ndarray]:
    assert kind in KINDS and (kind == "cluster") == (clusters is not None), "a Run has one of KINDS"
    if clusters is None:
        return shuffle_rows
    if len(clusters.assignment_N) != len(domain_codes_N):
        raise ValueError(f"the clusters are of {len(clusters.assignment_N)} pairs, the data has {len(domain_codes_N)}")
    # Clusters of other data with as many pairs would index without an error and mix domains silently.
    if not np.array_equal(clusters.domain_of_cluster_K[clusters.assignment_N], domain_codes_N):
        raise ValueError("the clusters were made for other domains than the data has: cluster the pairs again")
    return make_cluster_order(clusters, packing)
