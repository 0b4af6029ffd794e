"""Prefixes of vectors, and how a view of a suite is called: a context, a width, or both ("wrong-width16").

A prefix of vectors that were turned before, by an SVD, is a view of its own ("svd16").

Shapes: N vectors of W dimensions, of which the first M are a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

VIEW = re.compile(r"(?:(?:([a-z]+)-)?width|(svd))(\d+)")
OWN, TURNED = "own", "svd"


def prefix(vectors_NW: np.ndarray, width: int, *, keeps_lengths: bool = False) -> np.ndarray:
    """Return the first `width` dimensions, normalised anew, float32 (N, M); a prefix of zeros stays zeros.

    `keeps_lengths`: as they are, where lengths count.
    """
    prefix_NM = np.asarray(vectors_NW[:, :width], np.float32)
    if keeps_lengths:
        return prefix_NM
    norms_N1 = np.linalg.norm(prefix_NM, axis=1, keepdims=True)
    unit_NM: np.ndarray = prefix_NM / np.maximum(norms_N1, np.finfo(np.float32).tiny)
    return unit_NM


def list_views(contexts: Sequence[str], widths: Iterable[int]) -> list[str]:
    """Return every context, each followed by itself at each width."""
    known = sorted(set(widths))
    return [view for kind in contexts for view in (kind, *(format_view_name(kind, width) for width in known))]


def list_rotated_views(widths: Iterable[int]) -> list[str]:
    """Return the views of turned vectors, which are those under their own context, at each width."""
    return [f"{TURNED}{width}" for width in sorted(set(widths))]


def format_view_name(context: str, width: int) -> str:
    """Return how a context at a width is called."""
    return f"width{width}" if context == OWN else f"{context}-width{width}"


def parse_view(view: str) -> tuple[str, int | None, bool]:
    """Return the context and the width of a view, None for whole vectors, and whether they are turned before."""
    found = VIEW.fullmatch(view)
    return (found[1] or OWN, int(found[3]), found[2] == TURNED) if found else (view, None, False)
