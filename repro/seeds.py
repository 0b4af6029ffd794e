"""The only place that makes randomness: a generator is a pure function of a seed and of what it is for."""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed that depends on `seed` and on every word of `purpose`; no two texts share a stream."""
    text = "\x1f".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def generator_for(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return numpy's generator for one purpose, e.g. `generator_for(run.seed, "batches", epoch)`."""
    return np.random.default_rng(derive(seed, *purpose))
