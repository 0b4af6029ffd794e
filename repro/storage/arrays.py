"""Read and write the arrays of stages in blocks, with errors that name a damaged file.

Arrays may be larger than memory. They are written and checked block by block, and the pages of a memory map are
released after use. The resident memory of a process therefore stays near the size of one block.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from math import prod
from pathlib import Path
from types import TracebackType

import numpy as np

from repro.storage.platform_info import reserve_space

REMEDY = "remove its folder and it is built again"
NUMBERS_PER_CHECK = 2**22
ROWS_PER_TAKE = 4096
MIN_REQUESTED_BYTES = 2**30


class ArrayWriter:
    """Write a .npy file of unknown length block by block. Its bytes equal those of `np.save` for the whole array."""

    def __init__(self, path: Path, dtype: str, width: tuple[int, ...] = ()) -> None:
        """Open `path`. `width` is the shape of one entry."""
        self._dtype = np.dtype(dtype)
        self._width = width
        self._length = 0
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
                # Only a complete array gets its length. After an error, the header says zero entries.
                self._file.seek(0)
                self._write_header()

    def _write_header(self) -> None:
        # numpy pads the header, so the final length fits without moving the data
        shape = (self._length, *self._width)
        header = {"descr": self._dtype.str, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)


def append_all(writer: ArrayWriter, array: np.ndarray, plus: int = 0) -> None:
    """Append all entries of an array, each increased by `plus`. A memory-mapped array is read block by block."""
    numbers_per_entry = max(1, prod(array.shape[1:]))
    for block in iter_blocks(len(array), max(1, NUMBERS_PER_CHECK // numbers_per_entry)):
        writer.append(array[block] + plus if plus else array[block])
        release_pages(array)


def map_to_fill(path: Path, shape: tuple[int, ...], dtype: str) -> np.memmap:
    """Return a writable memory map of a new .npy file with this shape. Raises OSError if the disk is full."""
    array: np.memmap = np.lib.format.open_memmap(path, mode="w+", dtype=np.dtype(dtype), shape=shape)
    with path.open("r+b") as file:
        reserve_space(file.fileno(), path.stat().st_size)
    return array


class JoinedRows:
    """Two arrays whose rows are indexed as those of one: rows from len(first) on belong to the second."""

    def __init__(self, first: np.ndarray, second: np.ndarray) -> None:
        """Join two arrays that have the same shape except for their length."""
        self.parts = (first, second)

    def __len__(self) -> int:
        return sum(map(len, self.parts))

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        """Return copies of these rows, given as an array of int64."""
        first, second = self.parts
        in_second = rows >= len(first)
        result = np.empty((len(rows), *first.shape[1:]), first.dtype)
        result[~in_second] = first[rows[~in_second]]
        result[in_second] = second[rows[in_second] - len(first)]
        return result


def release_pages(*arrays: np.ndarray | JoinedRows | None) -> None:
    """Release the pages of memory-mapped arrays. They are read again on the next access.

    Accessed pages count as memory of the process until they are released. Arrays in memory are ignored.
    """
    for mapped in _find_maps(arrays):
        mapped.madvise(mmap.MADV_DONTNEED)


def advise_random_access(*arrays: np.ndarray | JoinedRows | None) -> None:
    """Advise the system that rows of memory-mapped arrays are read in random order.

    It then reads single pages and skips the read-ahead, which would be wasted.
    """
    for mapped in _find_maps(arrays):
        mapped.madvise(mmap.MADV_RANDOM)


def request_rows(array: np.ndarray | JoinedRows | None, rows: np.ndarray) -> None:
    """Ask the system to read these rows of a large memory-mapped array, all at once.

    Without it, they are read one page after the other. Measured with 2048 rows of 1.5 KiB on a disk: 0.13 s instead of
    0.55 s. Smaller files stay in the page cache.
    """
    if isinstance(array, JoinedRows):
        first, second = array.parts
        in_second = rows >= len(first)
        request_rows(first, rows[~in_second])
        request_rows(second, rows[in_second] - len(first))
        return
    mapped = _find_map(array)
    if array is None or mapped is None or len(mapped) < MIN_REQUESTED_BYTES:
        return
    first_byte = array.ctypes.data - np.frombuffer(mapped, np.uint8).ctypes.data
    for row in np.unique(rows).tolist():
        start = first_byte + row * array.strides[0]
        page = start - start % mmap.PAGESIZE
        mapped.madvise(mmap.MADV_WILLNEED, page, start + array.strides[0] - page)


def _find_maps(arrays: Iterable[np.ndarray | JoinedRows | None]) -> list[mmap.mmap]:
    parts = [part for array in arrays for part in (array.parts if isinstance(array, JoinedRows) else (array,))]
    return [mapped for mapped in map(_find_map, parts) if mapped is not None]


def _find_map(array: np.ndarray | None) -> mmap.mmap | None:
    """Return the memory map of an array, or None for an array in memory."""
    base = None if array is None else getattr(array, "base", None)
    # A slice of a view refers to the view, so follow the chain to the map.
    while isinstance(base, np.ndarray):
        base = base.base
    return base if isinstance(base, mmap.mmap) else None


def take_rows(array: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return these rows of an array. A memory map is read in blocks, because each row loads 64 KiB of the file."""
    result = np.empty((len(rows), *array.shape[1:]), array.dtype)
    for block in iter_blocks(len(rows), ROWS_PER_TAKE):
        result[block] = array[rows[block]]
        release_pages(array)
    return result


def group_rows_by_code(codes_N: np.ndarray) -> tuple[np.ndarray, list[np.ndarray]]:
    """Return the distinct codes in increasing order, and the increasing rows (int64) of each. It sorts once."""
    codes, counts = np.unique(codes_N, return_counts=True)
    # a stable sort leaves the rows of equal codes in increasing order
    order_N = np.argsort(codes_N, kind="stable")
    return codes, np.split(order_N, np.cumsum(counts)[:-1]) if len(codes) else []


def sample_evenly(length: int, count: int) -> np.ndarray:
    """Return at most `count` evenly spaced indices of `length` entries, including both ends, int64."""
    return np.unique(np.linspace(0, length - 1, min(count, length)).astype(np.int64))


def iter_blocks(length: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` entries that cover `length`."""
    return (slice(start, min(start + size, length)) for start in range(0, length, size))


def load_array(path: Path, *, kind: str, shape: tuple[int | None, ...], mapped: bool = False) -> np.ndarray:
    """Return an array of a .npy file. Its content is guaranteed by the digests of its stage.

    Args:
        path: the file.
        kind: "i" for integers, "f" for floats.
        shape: the expected sizes, None for any size.
        mapped: whether to return a memory map instead of an array in memory.

    Raises:
        ValueError: if the file is damaged or a pickle, or if its kind or shape differ.
    """
    array: np.ndarray = np.load(path, mmap_mode="r" if mapped else None, allow_pickle=False)
    is_expected = len(array.shape) == len(shape) and all(
        expected in (None, actual) for expected, actual in zip(shape, array.shape, strict=True)
    )
    if not is_expected or array.dtype.kind not in {"i": "iu", "f": "f"}[kind]:
        raise ValueError(f"{path} holds {array.dtype} of shape {array.shape}, expected {kind!r} of {shape}: {REMEDY}")
    return array
