"""Prefixes of vectors.

Shapes: N vectors of W dimensions, K other vectors, M dimensions of a prefix.
"""

from __future__ import annotations

import numpy as np

from repro.evaluate.adaptation import normalize

BLOCK = 1024
"""Vectors that are compared at a time, which bounds the memory of the scores."""


def take_prefix(vectors_NW: np.ndarray, width: int) -> np.ndarray:
    """Return the first `width` dimensions, normalised again, float32 (N, M). A zero prefix stays zero."""
    return normalize(np.asarray(vectors_NW[:, :width], np.float32))


def find_nearest(
    vectors_NW: np.ndarray, others_KW: np.ndarray, width: int, excluded_N: np.ndarray | None = None
) -> np.ndarray:
    """Return the row of the most similar other vector by the prefix of one width, int64 (N,). Ties go to the smaller row.

    `excluded_N` is a row that each vector must not find, or −1.
    """
    vectors_NM, others_KM = take_prefix(vectors_NW, width), take_prefix(others_KW, width)
    nearest = []
    for start in range(0, len(vectors_NM), BLOCK):
        scores_BK = vectors_NM[start : start + BLOCK] @ others_KM.T
        if excluded_N is not None:
            excluded_B = excluded_N[start : start + BLOCK]
            rows = np.flatnonzero(excluded_B >= 0)
            scores_BK[rows, excluded_B[rows]] = -np.inf
        nearest.append(scores_BK.argmax(axis=1))
    return np.concatenate(nearest)
