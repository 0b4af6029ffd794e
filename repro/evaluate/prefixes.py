"""Prefixes of vectors, and the names of views: a context, a width, or both ("wrong-width16").

A prefix of vectors that were rotated by an SVD first is a separate view ("svd16").

Shapes: N vectors of W dimensions, K other vectors, M dimensions of a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

from repro.evaluate.adaptation import normalize

VIEW = re.compile(r"(?:(?:([a-z]+)-)?width|(svd))(\d+)")
OWN, ROTATED = "own", "svd"
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


def list_views(contexts: Sequence[str], widths: Iterable[int]) -> list[str]:
    """Return each context, followed by the same context at each width."""
    sorted_widths = sorted(set(widths))
    return [view for kind in contexts for view in (kind, *(format_view_name(kind, width) for width in sorted_widths))]


def list_rotated_views(widths: Iterable[int]) -> list[str]:
    """Return the views of rotated vectors under the own context, one per width."""
    return [f"{ROTATED}{width}" for width in sorted(set(widths))]


def format_view_name(context: str, width: int) -> str:
    """Return the name of a context at a width."""
    return f"width{width}" if context == OWN else f"{context}-width{width}"


def parse_view(view: str) -> tuple[str, int | None, bool]:
    """Return the context of a view, its width (None for whole vectors), and whether its vectors are rotated first."""
    match = VIEW.fullmatch(view)
    if match is None:
        return view, None, False
    return match[1] or OWN, int(match[3]), match[2] == ROTATED
