"""Sample each batch from one source, with probabilities that depend on the source size (GTE §3.4, eq. 4).

The sources of a run are the domains of its `domain_column`. GTE's are data sets: `domain_column="source"`.

1. Draw the source of each step with p_i = n_i^α / Σ n_j^α, where n_i is its number of pairs. With α = 1 the
   probabilities are proportional to the sizes. With α = 0 all sources are equally likely.
2. Use the next batch of that source. Each source is packed epoch by epoch on its own, so a frequent source may start
   its second epoch while another is still in its first.

Sources are drawn in blocks, each with its own generator. Any step is therefore a pure function of seed and step.

Shapes: N pairs, S sources, B pairs per batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from repro.batches.sampler import BatchSampler, DroppedPairs
from repro.seeds import derive, make_rng
from repro.storage.arrays import group_rows_by_code

DRAWS_PER_BLOCK = 4096


def compute_mixing_shares(counts_S: np.ndarray, alpha: float) -> np.ndarray:
    """Return the probability of each source, float64 (S,): n_i^α divided by the sum."""
    weights_S = np.asarray(counts_S, np.float64) ** alpha
    shares_S: np.ndarray = weights_S / weights_S.sum()
    return shares_S


class MixedSampler:
    """Sampler that mixes sources, with the interface of `repro.batches.sampler.BatchSampler`."""

    def __init__(
        self,
        codes_N: np.ndarray,
        *,
        alpha: float,
        batch_size: int,
        seed: int,
        names: Sequence[str] = (),
    ) -> None:
        """Create one sampler per source. Sources are the distinct codes, and `names` maps codes to names for messages.

        Raises ValueError if a source has fewer pairs than a batch.
        """
        codes, self._rows = group_rows_by_code(codes_N)
        counts_S = np.array([len(rows) for rows in self._rows])
        if num_small := np.count_nonzero(counts_S < batch_size):
            smallest = int(np.argmin(counts_S))
            name = names[codes[smallest]] if names else codes[smallest]
            raise ValueError(f"batch_size={batch_size}: {num_small} of {len(codes)} domains are smaller, as {name!r}")
        self.shares_S = compute_mixing_shares(counts_S, alpha)
        self.batch_size, self.seed = batch_size, seed
        self._sources = [
            BatchSampler(
                "random",
                np.zeros(len(rows), np.int32),
                batch_size=batch_size,
                seed=derive(seed, "source", int(code)),
            )
            for code, rows in zip(codes, self._rows, strict=True)
        ]
        self._draw_block = lru_cache(maxsize=2)(self._draw_sources)
        # the number of draws of each source before each block, for all blocks so far
        self._earlier_draws_BS = [np.zeros(len(codes), np.int64)]

    def __len__(self) -> int:
        """Return the number of batches that all pairs make. It replaces the epoch length, although sources repeat at
        different rates.
        """
        return sum(map(len, self._sources))

    @property
    def dropped_pairs(self) -> DroppedPairs:
        """Rows that one epoch of each source leaves out. No source is smaller than a batch."""
        return DroppedPairs(sum(source.dropped_pairs.num_in_tails for source in self._sources), 0)

    def at(self, step: int) -> np.ndarray:
        """Return the pair indices of a step, int64 (B,). Steps are counted from the start of the run."""
        source, source_step = self._draw(step)
        # The sampler of a source numbers its own rows from 0. Map them to rows of the whole data.
        batch_B: np.ndarray = self._rows[source][self._sources[source].at(source_step)].astype(np.int64)
        return batch_B

    def _draw(self, step: int) -> tuple[int, int]:
        """Return the source of a step and the number of earlier batches of that source."""
        block, offset = divmod(step, DRAWS_PER_BLOCK)
        for earlier in range(len(self._earlier_draws_BS) - 1, block):
            counts_S = np.bincount(self._draw_block(earlier), minlength=len(self._rows))
            self._earlier_draws_BS.append(self._earlier_draws_BS[-1] + counts_S)
        draws = self._draw_block(block)
        source = int(draws[offset])
        return source, int(self._earlier_draws_BS[block][source] + np.count_nonzero(draws[:offset] == source))

    def _draw_sources(self, block: int) -> np.ndarray:
        """Return the source of each step of a block."""
        generator = make_rng(self.seed, "mixing", block)
        return generator.choice(len(self._rows), DRAWS_PER_BLOCK, p=self.shares_S)
