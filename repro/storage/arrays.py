"""Arrays of stages: written in blocks, and read with suspicion: a damaged file is one line that names it.

No array has to fit into memory: what is larger than a block is written piece by piece, checked piece by piece, and the
pages of a map are given back after use, so that a process never holds more of a file than it looks at.
"""

from __future__ import annotations

import mmap
import tempfile
import tokenize
import zipfile
from collections.abc import Iterator
from math import prod
from pathlib import Path
from types import TracebackType

import numpy as np

from repro.storage.machine import take_room

REMEDY = "remove its folder and it is built again"
NUMBERS_PER_CHECK = 2**22
ROWS_PER_TAKE = 4096
MOST_BYTES_IN_MEMORY = 2**26
"""An array to fill that is larger than this lies in a file."""


class ArrayWriter:
    """Writes a .npy file of unknown length block by block; its bytes are those of `np.save` of the whole."""

    def __init__(self, path: Path, dtype: str, width: tuple[int, ...] = ()) -> None:
        """Open `path`; `width` is the shape of one entry."""
        self._dtype, self._width, self._length = np.dtype(dtype), width, 0
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("wb")
        self._write_header()

    def append(self, block: np.ndarray) -> None:
        """Add the entries of a block."""
        assert block.shape[1:] == self._width, f"entries of shape {block.shape[1:]}, expected {self._width}"
        self._file.write(np.ascontiguousarray(block, self._dtype).data)
        self._length += len(block)

    def __enter__(self) -> ArrayWriter:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        with self._file:
            if error is None:
                self._file.seek(0)
                self._write_header()

    def _write_header(self) -> None:
        # numpy pads its header so that the length can be filled in later without moving what follows
        shape = (self._length, *self._width)
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)


def append_all(writer: ArrayWriter, array: np.ndarray, plus: int = 0) -> None:
    """Add all entries of an array that may lie in a file, each increased by `plus`; a block in memory."""
    for part in iter_blocks(len(array), max(1, NUMBERS_PER_CHECK // max(1, prod(array.shape[1:])))):
        writer.append(array[part] + plus if plus else array[part])
        give_back(array)


def array_to_fill(shape: tuple[int, ...], dtype: str, folder: Path | None) -> np.ndarray:
    """Return an array of any content: in memory, or when it is large, in a nameless file that goes with the array.

    The file lies in `folder`; None: always in memory. OSError when the disk has no room for it.
    """
    num_bytes = prod(shape) * np.dtype(dtype).itemsize
    if folder is None or num_bytes <= MOST_BYTES_IN_MEMORY:
        return np.empty(shape, dtype)
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryFile(dir=folder) as file:
        take_room(file.fileno(), num_bytes)  # a full disk is an error here, and would kill a writer later
        return np.memmap(file, dtype=dtype, mode="r+", shape=shape)


def map_to_fill(path: Path, shape: tuple[int, ...], dtype: str) -> np.memmap:
    """Return a .npy file of this shape, mapped, to be filled in any order; OSError when the disk has no room for it."""
    array: np.memmap = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
    with path.open("r+b") as file:
        take_room(file.fileno(), path.stat().st_size)
    return array


def give_back(*arrays: np.ndarray | None) -> None:
    """Let go of the pages of mapped arrays; they are read again when they are looked at again. Others stay as they are.

    Pages of a file are counted as memory of the process that looked at them, until it says that it is done.
    """
    for mapped in map(_map_of, arrays):
        if mapped is not None:
            mapped.madvise(mmap.MADV_DONTNEED)


def read_here_and_there(*arrays: np.ndarray | None) -> None:
    """Say that rows of mapped arrays will be read in no order: of a file that memory does not hold, the system then
    reads their pages alone, and no longer what follows each, as far as the disk's read-ahead goes.
    """
    for mapped in map(_map_of, arrays):
        if mapped is not None:
            mapped.madvise(mmap.MADV_RANDOM)


def _map_of(array: np.ndarray | None) -> mmap.mmap | None:
    """Return the map that an array lies in; None for one in memory."""
    base = None if array is None else getattr(array, "base", None)
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def taken(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return these rows of an array that may lie in a file, a few at a time: each brings 64 KiB of the file with it."""
    found = np.empty((len(rows), *array.shape[1:]), array.dtype)
    for part in iter_blocks(len(rows), ROWS_PER_TAKE):
        found[part] = array[rows[part]]
        give_back(array)
    return found


def rows_by_code(codes_N: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the different codes, rising, and the rows of each, int64 and rising: one sort, however many codes."""
    codes, counts = np.unique(codes_N, return_counts=True)
    order_N = np.argsort(codes_N, kind="stable")
    return codes, np.split(order_N, np.cumsum(counts)[:-1]) if len(codes) else []


def iter_blocks(length: int, size: int) -> Iterator[slice]:
    """Return slices of at most `size` that cover `length`."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def is_rising(numbers: np.ndarray) -> bool:
    """Return whether no number is below the one before it; looked at in blocks."""
    for part in iter_blocks(max(0, len(numbers) - 1), NUMBERS_PER_CHECK):
        if (np.diff(numbers[part.start : part.stop + 1]) < 0).any():
            return False
        give_back(numbers)
    return True


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
    if below is not None and array.size:
        least, most = _get_dtype_range(array)
        if least < 0 or most >= below:
            raise ValueError(f"{path} holds numbers from {least} to {most}, expected 0 to {below - 1}: {REMEDY}")
    return array


def _get_dtype_range(array: np.ndarray) -> tuple[int, int]:
    flat, ends = array.reshape(-1), []
    for part in iter_blocks(len(flat), NUMBERS_PER_CHECK):
        ends += [int(flat[part].min()), int(flat[part].max())]
        give_back(array)
    return min(ends), max(ends)
