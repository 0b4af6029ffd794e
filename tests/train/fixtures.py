"""A small training set of random tokens, and a sampler that shuffles it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from repro.data.tokens import Tokens
from repro.train.feed import Filtered, TrainData
from repro.train.loop import TrainSettings
from tests.model.samples import WORDS

NUM_PAIRS = 60


def random_tokens(num_texts: int, seed: int, longest: int = 9) -> Tokens:
    """Tokens of 1 … `longest` ids a text."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, longest + 1, num_texts))]).astype(np.int64)
    return Tokens(rng.integers(1, WORDS, offsets[-1]).astype(np.int32), offsets)


class Shuffled:
    """Batches of shuffled pairs, a pure function of the step."""

    def __init__(self, batch_size: int = 8, seed: int = 0) -> None:
        self.batch_size, self.seed = batch_size, seed

    def at(self, step: int) -> np.ndarray:
        epoch, place = divmod(step, NUM_PAIRS // self.batch_size)
        order = np.random.default_rng([self.seed, epoch]).permutation(NUM_PAIRS)
        return order[place * self.batch_size : (place + 1) * self.batch_size]

    def state_at(self, step: int) -> tuple[int, int, int]:
        return (self.seed, *divmod(step, NUM_PAIRS // self.batch_size))


def same_parity(pairs: np.ndarray) -> Filtered:
    """Mask documents whose pair has the same number modulo 3; only defined without hard negatives."""
    return Filtered(pairs[:, None] % 3 == pairs[None] % 3, float(pairs.mean()))


def small_data(*, num_hard: int = 0, seed: int = 0) -> TrainData:
    """Pairs of random tokens, with a filter, or with hard negatives."""
    data = TrainData(random_tokens(NUM_PAIRS, 1), random_tokens(NUM_PAIRS, 2), Shuffled(seed=seed), same_parity)
    if num_hard:
        rows = np.random.default_rng(3).integers(0, NUM_PAIRS, (NUM_PAIRS, num_hard))
        data = replace(data, filter=None, negative_rows_NH=rows)
    return data


def settings(**changes: object) -> TrainSettings:
    """Ten steps."""
    values: dict = {"run_id": "abc", "seed": 0, "num_steps": 10, "learning_rate": 1e-2, "num_warmup_steps": 2}
    return TrainSettings(**(values | changes))
