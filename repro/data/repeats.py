"""A set of 64-bit keys with eight bytes per key. A Python set would need about ten times as much memory.

Keys are stored in sorted runs, each at least twice as long as the next. So a block is searched in a logarithmic number
of runs, and each key is merged a logarithmic number of times.
"""

from __future__ import annotations

import numpy as np


class SeenKeys:
    """A set of 64-bit keys that grows block by block."""

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def tell(self, keys_n: np.ndarray) -> np.ndarray:
        """Add a block of keys (uint64). Return which of them are new, bool (n,)."""
        is_first_n = np.zeros(len(keys_n), dtype=bool)
        is_first_n[np.unique(keys_n, return_index=True)[1]] = True
        for run in self._runs:
            places_n = np.minimum(np.searchsorted(run, keys_n), len(run) - 1)
            is_first_n &= run[places_n] != keys_n
        if is_first_n.any():
            self._runs.append(np.sort(keys_n[is_first_n]))
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            merged.sort(kind="stable")  # finds the two runs and merges them
            self._runs.append(merged)
        return is_first_n
