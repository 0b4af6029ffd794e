"""Mixing of sources: each batch of one source, drawn anew at every step, large sources as often as an exponent says.

Steps (GTE §3.4, eq. 4):
1. The source of a step is drawn with p_i = n_i^α / Σ n_j^α, n_i being its pairs: α = 1 keeps the proportions, α = 0
   makes all sources alike, whatever their size.
2. The batch is the next one of that source, which is packed epoch by epoch on its own: a source that is drawn often
   begins its second epoch while another is still in its first.
Draws come in blocks, each of its own generator, so that any step is a pure function of seed and step.

Shapes: N pairs, S sources, B pairs a batch.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from repro.batches.sampler import BatchSampler, LeftOut, SamplerState
from repro.seeds import derive, generator_for
from repro.storage.arrays import rows_by_code

BLOCK = 4096  # draws that are made together


def compute_mixing_shares(counts_S: np.ndarray, alpha: float) -> np.ndarray:
    """Return the probability of each source, float64 (S,): its number of pairs to the power α, over their sum."""
    weights_S = np.asarray(counts_S, np.float64) ** alpha
    shares_S: np.ndarray = weights_S / weights_S.sum()
    return shares_S


class MixedSampler:
    """Gives the pair indices of any step, as `repro.batches.sampler.BatchSampler` does."""

    def __init__(
        self,
        codes_N: np.ndarray,
        *,
        alpha: float,
        batch_size: int,
        seed: int,
        names: Sequence[str] = (),
        folder: Path | None = None,
    ) -> None:
        """Sources are the different codes; `names` are those of the codes.

        ValueError for α outside [0, 1], and for a source that cannot fill a batch.
        """
        if not 0 <= alpha <= 1:
            raise ValueError(f"mixing_alpha={alpha}: must be at least 0 (every source alike) and at most 1 (by size)")
        codes, self._rows = rows_by_code(codes_N)
        counts_S = np.array([len(rows) for rows in self._rows])
        _check_sizes(codes, counts_S, batch_size, names)
        self.shares_S = compute_mixing_shares(counts_S, alpha)
        self.batch_size, self.seed = batch_size, seed
        self._sources = [
            BatchSampler(
                "random",
                np.zeros(len(rows), np.int32),
                batch_size=batch_size,
                seed=derive(seed, "source", int(code)),
                folder=folder,
            )
            for code, rows in zip(codes, self._rows, strict=True)
        ]
        self._block, self._draw_or_explain = -1, np.empty(0, np.int64)
        self._before_S = np.zeros(len(codes), np.int64)

    def __len__(self) -> int:
        """Batches that all pairs make: what stands for an epoch, though a source may be seen more often or less."""
        return sum(map(len, self._sources))

    @property
    def left_out(self) -> LeftOut:
        """Count the rows that an epoch of each source leaves out; no source is smaller than a batch."""
        return LeftOut(sum(source.left_out.num_in_tails for source in self._sources), 0, 0)

    def at(self, step: int) -> np.ndarray:
        """Return the batch of a step counted from the start of the run: pair indices, int64 (B,)."""
        source, number = self._draw(step)
        batch_B: np.ndarray = self._rows[source][self._sources[source].at(number)].astype(np.int64)
        return batch_B

    def state_at(self, step: int) -> SamplerState:
        """Return what a checkpoint keeps after `step` batches."""
        return SamplerState(self.seed, *divmod(step, len(self)))

    def _draw(self, step: int) -> tuple[int, int]:
        """Return a step's source, and how many batches of that source came before."""
        block, place = divmod(step, BLOCK)
        self._go_to(block)
        source = int(self._draw_or_explain[place])
        return source, int(self._before_S[source] + np.count_nonzero(self._draw_or_explain[:place] == source))

    def _go_to(self, block: int) -> None:
        """Make the draws of a block current; earlier blocks are drawn again and counted."""
        if block < self._block:
            self._block, self._before_S = -1, np.zeros_like(self._before_S)
            self._draw_or_explain = np.empty(0, np.int64)
        while self._block < block:
            self._before_S = self._before_S + np.bincount(self._draw_or_explain, minlength=len(self._rows))
            self._block += 1
            generator = generator_for(self.seed, "mixing", self._block)
            self._draw_or_explain = generator.choice(len(self._rows), BLOCK, p=self.shares_S)


def _check_sizes(codes: np.ndarray, counts_S: np.ndarray, batch_size: int, names: Sequence[str]) -> None:
    if not len(codes):
        raise ValueError("there are no pairs to draw batches from")
    small = np.flatnonzero(counts_S < batch_size)
    if len(small):
        first = small[np.argmin(counts_S[small])]
        name = names[codes[first]] if names else codes[first]
        raise ValueError(
            f"batch_size={batch_size} with mixing_alpha: {len(small)} of {len(codes)} sources cannot fill a batch, the "
            f"smallest, {name!r}, has {counts_S[first]} pairs: choose a smaller batch, or leave those sources out"
        )
