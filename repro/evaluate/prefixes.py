"""Prefixes of vectors, and how a view of a suite is called: a context, a width, or both ("wrong-width16").

Shapes: N vectors of W dimensions, of which the first M are a prefix.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import numpy as np

VIEW = re.compile(r"(?:([a-z]+)-)?width(\d+)")
OWN = "own"


def prefix(vectors_NW: np.ndarray, width: int) -> np.ndarray:
    """Return the first `width` dimensions, normalised anew, float32 (N, M); a prefix of zeros stays zeros."""
    prefix_NM = np.asarray(vectors_NW[:, :width], np.float32)
    norms_N1 = np.linalg.norm(prefix_NM, axis=1, keepdims=True)
    unit_NM: np.ndarray = prefix_NM / np.maximum(norms_N1, np.finfo(np.float32).tiny)
    return unit_NM


def views_of(contexts: Sequence[str], widths: Iterable[int]) -> list[str]:
    """Return every context, each followed by itself at each width."""
    known = sorted(set(widths))
    return [view for kind in contexts for view in (kind, *(view_named(kind, width) for width in known))]


def view_named(context: str, width: int) -> str:
    """Return how a context at a width is called."""
    return f"width{width}" if context == OWN else f"{context}-width{width}"


def parse_view(view: str) -> tuple[str, int | None]:
    """Return the context and the width of a view; None for whole vectors."""
    found = VIEW.fullmatch(view)
    return (found[1] or OWN, int(found[2])) if found else (view, None)
