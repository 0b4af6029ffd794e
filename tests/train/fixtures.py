"""A small training set of random tokens with a sampler, and helpers to train it in one or two processes."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from repro.data.tokens import Tokens
from repro.model.contextual import Model
from repro.spec import Run
from repro.train.checkpoint import read_metrics
from repro.train.feed import Filtered, TrainData
from repro.train.setup import TrainSettings
from tests.model.samples import WORDS

NUM_PAIRS = 60


def draw_tokens(num_texts: int, seed: int) -> Tokens:
    """Return texts of 1 to 9 token ids."""
    rng = np.random.default_rng(seed)
    offsets = np.concatenate([[0], np.cumsum(rng.integers(1, 10, num_texts))]).astype(np.int64)
    return Tokens(rng.integers(1, WORDS, offsets[-1]).astype(np.int32), offsets)


class Shuffled:
    """Sampler of shuffled pairs, a pure function of the step."""

    def __init__(self, batch_size: int = 8, seed: int = 0) -> None:
        self.batch_size, self.seed = batch_size, seed

    def at(self, step: int) -> np.ndarray:
        epoch, index = divmod(step, NUM_PAIRS // self.batch_size)
        order = np.random.default_rng([self.seed, epoch]).permutation(NUM_PAIRS)
        return order[index * self.batch_size : (index + 1) * self.batch_size]

    def __len__(self) -> int:
        return NUM_PAIRS // self.batch_size


def mask_equal_remainders(pairs: np.ndarray, number: int) -> Filtered:
    """Mask documents whose pair number is equal modulo 3. Only defined without hard negatives."""
    return Filtered(pairs[:, None] % 3 == pairs[None] % 3, float(pairs.mean()))


def make_small_data(*, num_hard: int = 0, seed: int = 0) -> TrainData:
    """Return pairs of random tokens, with a filter or with hard negatives."""
    tokens = draw_tokens(NUM_PAIRS, 1), draw_tokens(NUM_PAIRS, 2)
    data = TrainData(*tokens, Shuffled(seed=seed), mask_equal_remainders)
    if num_hard:
        rows = np.random.default_rng(3).integers(0, NUM_PAIRS, (NUM_PAIRS, num_hard))
        data = replace(data, filter=None, negative_rows_NH=rows)
    return data


def make_filter_inputs(run: Run, surrogate: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> SimpleNamespace:
    """Return what `build_filter` reads: the vectors per side (N, D) of the surrogate and of another filter model."""
    return SimpleNamespace(
        run=run,
        document_keys=np.arange(len(surrogate["document"])),
        embeddings=lambda side, of_filter=False: (other if of_filter else surrogate)[side],
        document_embeddings=lambda of_filter=False: (other if of_filter else surrogate)["document"],
        **dict.fromkeys(("given_negatives", "negatives", "known_positives")),
    )


def make_settings(**changes: object) -> TrainSettings:
    """Return the settings of a training run of ten steps."""
    values: dict = {"run_id": "abc", "seed": 0, "num_steps": 10, "learning_rate": 1e-2, "num_warmup_steps": 2}
    return TrainSettings(**(values | changes))


def read_untimed_log(folder: Path) -> list[dict[str, Any]]:
    """Return the lines of a training log without speed, memory and empty fields."""
    timed = ("pairs_per_second", "memory_bytes")
    lines = read_metrics(folder)
    return [{name: value for name, value in line.items() if name not in timed and value is not None} for line in lines]


def assert_close_weights(
    actual: Mapping[str, torch.Tensor], expected: Mapping[str, torch.Tensor], *, rtol: float = 1e-6, atol: float = 1e-8
) -> None:
    """Assert that all expected tensors were found, equal within the tolerance."""
    for name, value in expected.items():
        torch.testing.assert_close(actual[name], value, rtol=rtol, atol=atol, msg=name)


def stop_after(num_steps: int) -> Callable[[], bool]:
    """Return a `should_stop` that is True from the given call on. Training calls it once per step."""
    calls = itertools.count(1)
    return lambda: next(calls) >= num_steps


def spoil_model(model: Model, what: str) -> None:
    """Make the next loss NaN, or the gradient of one weight infinite."""
    weight = list(model.parameters())[-1]  # a dense weight of the last layer
    if what == "gradient":
        weight.register_hook(lambda gradient: gradient * torch.inf)
    else:
        with torch.no_grad():
            weight.fill_(torch.nan)


@contextmanager
def join_group(number: int, folder: Path, file: str = "meet") -> Iterator[None]:
    """Join two gloo processes that meet in a file of the folder."""
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{folder}/{file}", rank=number, world_size=2)
    yield
    dist.destroy_process_group()


def run_two_processes(work: Callable[..., None], *args: object) -> None:
    """Call `work(rank, *args)` in two processes. Forking saves importing torch twice."""
    mp.start_processes(work, args, nprocs=2, start_method="fork")
