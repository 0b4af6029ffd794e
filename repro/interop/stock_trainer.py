"""Our cluster sampler inside the stock trainer of sentence-transformers: it says which rows meet in a batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from sentence_transformers.base.sampler import DefaultBatchSampler

from repro.batches.cluster import Clusters
from repro.batches.sampler import BatchSampler


class ClusterBatchSampler(DefaultBatchSampler):
    """Batches of `repro.batches.sampler`, anew in each epoch; every batch is full."""

    def __init__(self, dataset: Any, batches: BatchSampler) -> None:
        super().__init__(dataset, batch_size=batches.batch_size, drop_last=True, seed=batches.seed)
        self._batches = batches
        self._next_epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch the next pass is."""
        self._next_epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        epoch = self._next_epoch
        # a loop that never says its epoch still gets new batches each time
        self._next_epoch = epoch + 1
        yield from self._batches.epoch(epoch).tolist()

    def __len__(self) -> int:
        return len(self._batches)


def cluster_batch_sampler(
    domain_codes_N: np.ndarray, clusters: Clusters, packing: str = "random"
) -> Callable[..., ClusterBatchSampler]:
    """Return what `SentenceTransformerTrainingArguments(batch_sampler=…)` takes.

    Row n of the trainer's dataset is pair n of the clusters. ValueError when training starts with more or fewer.
    """

    def build(dataset: Any, batch_size: int, seed: int = 0, **_: Any) -> ClusterBatchSampler:
        if len(dataset) != len(domain_codes_N):
            raise ValueError(f"the trainer's dataset has {len(dataset)} rows, the clusters {len(domain_codes_N)}")
        batches = BatchSampler(
            "cluster", domain_codes_N, batch_size=batch_size, seed=seed, clusters=clusters, packing=packing
        )
        return ClusterBatchSampler(dataset, batches)

    return build
