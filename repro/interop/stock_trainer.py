"""Our cluster sampler as a batch sampler of sentence-transformers' own trainer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from sentence_transformers.base.sampler import DefaultBatchSampler

from repro.batches.cluster import Clusters
from repro.batches.sampler import BatchSampler


class ClusterBatchSampler(DefaultBatchSampler):
    """Batches of `repro.batches.sampler`, drawn again in each epoch. Every batch is full."""

    def __init__(self, dataset: Any, batches: BatchSampler) -> None:
        super().__init__(dataset, batch_size=batches.batch_size, drop_last=True, seed=batches.seed)
        self._batches = batches
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


@dataclass(frozen=True)
class _SamplerFactory:
    """Factory of samplers. A class, because the trainer pickles its arguments with each checkpoint and prints them."""

    domain_codes_N: np.ndarray = field(repr=False)
    clusters: Clusters = field(repr=False)
    packing: str

    def __call__(self, dataset: Any, batch_size: int, seed: int = 0, **_: Any) -> ClusterBatchSampler:
        """Return the sampler of a dataset. Raises ValueError if its rows are not those of the clusters."""
        if len(dataset) != len(self.domain_codes_N):
            raise ValueError(
                f"the trainer's dataset has {len(dataset)} rows, the clusters {len(self.domain_codes_N)}. If it is the "
                "eval_dataset, give the trainer an `evaluator` instead"
            )
        batches = BatchSampler(
            "cluster",
            self.domain_codes_N,
            batch_size=batch_size,
            seed=seed,
            clusters=self.clusters,
            packing=self.packing,
        )
        return ClusterBatchSampler(dataset, batches)


def make_cluster_batch_sampler(
    domain_codes_N: np.ndarray, clusters: Clusters, packing: str = "random"
) -> Callable[..., ClusterBatchSampler]:
    """Return a factory for `SentenceTransformerTrainingArguments(batch_sampler=…)`.

    Row n of the trainer's dataset is pair n of the clusters. Training raises ValueError if their numbers differ. The
    trainer would also batch an `eval_dataset` with this sampler, by the clusters of the training pairs: evaluate with an
    `evaluator` instead.
    """
    return _SamplerFactory(domain_codes_N, clusters, packing)
