"""Our cluster sampler as a batch sampler of sentence-transformers' own trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from sentence_transformers.base.sampler import DefaultBatchSampler

from repro.batches.cluster import Clusters
from repro.batches.sampler import BatchSampler


class ClusterBatchSampler(DefaultBatchSampler):
    """Batches of `repro.batches.sampler`, drawn again in each epoch. Every batch is full.

    Raises ValueError if the rows of the dataset are not those of the clusters.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        drop_last: bool = True,
        seed: int = 0,
        *,
        domain_codes_N: np.ndarray,
        clusters: Clusters,
        packing: str,
        **_: Any,
    ) -> None:
        if len(dataset) != len(domain_codes_N):
            raise ValueError(f"{len(dataset)} rows, the clusters {len(domain_codes_N)}: evaluate with an `evaluator`")
        super().__init__(dataset, batch_size=batch_size, drop_last=True, seed=seed)
        self._batches = BatchSampler(
            "cluster", domain_codes_N, batch_size=batch_size, seed=seed, clusters=clusters, packing=packing
        )
        self._next_epoch = 0

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next pass."""
        self._next_epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        epoch = self._next_epoch
        # a loop that never calls `set_epoch` still gets new batches in each pass
        self._next_epoch = epoch + 1
        yield from self._batches.epoch(epoch).tolist()

    def __len__(self) -> int:
        return len(self._batches)


def make_cluster_batch_sampler(
    domain_codes_N: np.ndarray, clusters: Clusters, packing: str = "random"
) -> Callable[..., ClusterBatchSampler]:
    """Return a factory for `SentenceTransformerTrainingArguments(batch_sampler=…)`, which can be pickled.

    Row n of the trainer's dataset is pair n of the clusters. The trainer would also batch an `eval_dataset` with this
    sampler, by the clusters of the training pairs: evaluate with an `evaluator` instead.
    """
    return partial(ClusterBatchSampler, domain_codes_N=domain_codes_N, clusters=clusters, packing=packing)
