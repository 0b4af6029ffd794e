"""Arrays of stages, read with suspicion: a damaged or foreign file is one line that names it, never an IndexError."""

from __future__ import annotations

import tokenize
import zipfile
from pathlib import Path

import numpy as np

REMEDY = "remove its folder and it is built again"


def load_array(
    path: Path, *, kind: str, shape: tuple[int | None, ...], below: int | None = None, mapped: bool = False
) -> np.ndarray:
    """Return an array of a .npy file.

    `kind`: "i" for whole numbers, "f" for others. `shape`: sizes, None for any. `below`: every number is from 0 to it.
    ValueError naming the file for one that is missing, damaged or a pickle, of another kind or shape, or out of range.
    """
    try:
        array: np.ndarray = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, SyntaxError, tokenize.TokenError, MemoryError) as error:
        raise ValueError(f"{path} is missing or damaged ({error}): {REMEDY}") from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in {"i": "iu", "f": "f"}[kind]:
        raise ValueError(f"{path} holds {getattr(array, 'dtype', 'several arrays')}, not what is kept there: {REMEDY}")
    fits = len(array.shape) == len(shape) and all(
        want in (None, have) for want, have in zip(shape, array.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{path} has shape {array.shape}, expected {shape} (None: any): {REMEDY}")
    if below is not None and array.size and not (int(array.min()) >= 0 and int(array.max()) < below):
        raise ValueError(
            f"{path} holds numbers from {array.min()} to {array.max()}, expected 0 to {below - 1}: {REMEDY}"
        )
    return array
