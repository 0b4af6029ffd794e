"""Derive random generators. Each is a pure function of a seed and a purpose, and no other module creates randomness."""

from __future__ import annotations

import hashlib

import numpy as np


def derive(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed that depends on `seed` and on every word of `purpose`.

    The words are joined by a separator, so ("a", "bc") and ("ab", "c") give different seeds.
    """
    text = "\x1f".join([str(seed), *map(str, purpose)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def make_rng(seed: int, *purpose: str | int) -> np.random.Generator:
    """Return a numpy generator for one purpose, for example `make_rng(run.seed, "batches", epoch)`."""
    return np.random.default_rng(derive(seed, *purpose))
