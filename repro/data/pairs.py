"""Training pairs on disk: a memory-mapped Arrow stream with id, query, document, domain, source and negatives."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repro.storage.arrays import iter_blocks, release_pages
from repro.storage.files import atomic_file, name_in_errors

ROWS_PER_BATCH = 65_536
MIN_SPARSE_DISTANCE = 512
"""If fewer than one row in this many is requested, read-ahead of the file is disabled."""
MAX_BATCH_CHARACTERS = 2**28
"""Limit of characters per batch. UTF-8 needs up to four bytes each, and a text column of Arrow holds 2 GiB."""
TEXT_COLUMNS = ("id", "query", "document", "domain", "source")

Side = Literal["query", "document"]
SIDES: tuple[Side, Side] = ("query", "document")
Indices = Sequence[int] | np.ndarray


class Row(NamedTuple):
    """One training pair. `id` is stable across runs and machines. Batches never mix domains."""

    id: str
    query: str
    document: str
    domain: str
    source: str
    negatives: tuple[str, ...] = ()


def make_id(corpus: str, number: int | str, domain: str, query: str, document: str) -> str:
    """Return the id of a pair: its corpus, the number of its row, and a digest of its text."""
    digest = hashlib.sha256(f"{domain}\0{query}\0{document}".encode()).hexdigest()[:16]
    return f"{corpus}:{number}:{digest}"


class Pairs:
    """Read-only view of training pairs. Texts are read from disk on request."""

    def __init__(self, table: pa.Table, rows: np.ndarray | None = None, mapped: mmap.mmap | None = None) -> None:
        """View `table`, or only its `rows` (int64 indices) in this order. `mapped` is the memory map of its file."""
        self._table = table
        self._rows = rows
        self._mapped = mapped
        # cache of `_encode_names` by column
        self._encoded: dict[str, tuple[np.ndarray, tuple[str, ...]]] = {}
        lengths = [len(chunk) for chunk in table.column("id").chunks]
        self._chunk_starts = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)

    def __len__(self) -> int:
        return self._table.num_rows if self._rows is None else len(self._rows)

    def texts(self, side: Side, indices: Indices) -> list[str]:
        """Return the queries or the documents of the pairs at `indices`, in this order."""
        return self._gather(side, indices)

    def blocks(self, side: Side, size: int = ROWS_PER_BATCH) -> Iterator[list[str]]:
        """Iterate over all texts of a side in order, block by block. Memory holds one block."""
        return TextColumn(self, side).blocks(size)

    def release_pages(self) -> None:
        """Release the memory-mapped pages that were read. Until then they count as memory of this process."""
        if self._mapped is not None:
            self._mapped.madvise(mmap.MADV_DONTNEED)
        release_pages(self._rows)

    def ids(self, indices: Indices | None = None) -> list[str]:
        """Return the stable ids of the pairs at `indices`, or of all pairs."""
        return self._gather("id", range(len(self)) if indices is None else indices)

    def negatives(self, indices: Indices) -> list[list[str]]:
        """Return the hard negatives of each pair, best first. Empty lists if the file has none."""
        if "negatives" not in self._table.column_names:
            return [[] for _ in indices]
        return self._gather("negatives", indices)

    def take(self, indices: Indices) -> Pairs:
        """Return a view of these pairs without copying."""
        return Pairs(self._table, self._to_rows(indices), self._mapped)

    @property
    def domain_names(self) -> tuple[str, ...]:
        """Sorted names of the domains of the whole file. A view keeps the codes of the file."""
        return self._encode_names("domain")[1]

    @property
    def domain_codes(self) -> np.ndarray:
        """The domain of each pair, int32 (N,), as an index into `domain_names`."""
        return self._encode_names("domain")[0]

    @property
    def source_names(self) -> tuple[str, ...]:
        """Sorted names of the sources of the whole file."""
        return self._encode_names("source")[1]

    @property
    def source_codes(self) -> np.ndarray:
        """The source of each pair, int32 (N,), as an index into `source_names`."""
        return self._encode_names("source")[0]

    def _encode_names(self, column: str) -> tuple[np.ndarray, tuple[str, ...]]:
        """Return the codes of these pairs, and the names of the whole file."""
        if column not in self._encoded:
            codes, names = _encode(self._table.column(column))
            self._encoded[column] = (codes if self._rows is None else codes[self._rows]), names
            self.release_pages()
        return self._encoded[column]

    def _to_rows(self, indices: Indices) -> np.ndarray:
        index = np.asarray(indices, dtype=np.int64)
        if index.size and (index.min() < 0 or index.max() >= len(self)):
            raise IndexError(f"pair {int(index.min())}…{int(index.max())} asked for; there are {len(self)}")
        return index if self._rows is None else self._rows[index]

    def _gather(self, column: str, indices: Indices) -> list:
        rows = self._to_rows(indices)
        with self._adapt_read_ahead(rows):
            return self._read_values(column, rows)

    @contextmanager
    def _adapt_read_ahead(self, rows: np.ndarray) -> Iterator[None]:
        """Disable read-ahead while rows far apart are read. Otherwise a few rows would load the whole file.

        Measured with 400,000 rows in 274 MiB: reading 400 of them loads 3 MiB instead of everything, in half the time.
        For 40,000 of them it would be 15 times slower.
        """
        is_dense = not len(rows) or int(rows.max()) - int(rows.min()) < MIN_SPARSE_DISTANCE * len(rows)
        if self._mapped is None or is_dense:
            yield
            return
        self._mapped.madvise(mmap.MADV_RANDOM)
        try:
            yield
        finally:
            self._mapped.madvise(mmap.MADV_NORMAL)

    def _read_values(self, column: str, rows: np.ndarray) -> list:
        # `take` on a chunked string column would copy the whole column first
        chunk_indices = np.searchsorted(self._chunk_starts, rows, side="right") - 1
        values: list = [None] * len(rows)
        # One `take` per chunk. The values return to the positions of the request.
        for chunk_index in np.unique(chunk_indices):
            positions = np.flatnonzero(chunk_indices == chunk_index)
            rows_in_chunk = pa.array(rows[positions] - self._chunk_starts[chunk_index])
            chunk_values = self._table.column(column).chunk(int(chunk_index)).take(rows_in_chunk).to_pylist()
            for position, value in zip(positions.tolist(), chunk_values, strict=True):
                values[position] = value
        return values


class TextColumn:
    """The queries or the documents of pairs as a column of texts, which are read from disk by row."""

    def __init__(self, pairs: Pairs, side: Side) -> None:
        self._pairs, self._side = pairs, side

    def __len__(self) -> int:
        return len(self._pairs)

    def texts(self, rows: Indices) -> list[str]:
        """Return the texts of these rows."""
        return self._pairs.texts(self._side, rows)

    def blocks(self, size: int = ROWS_PER_BATCH) -> Iterator[list[str]]:
        """Yield all texts in order, in blocks. Memory holds one block."""
        for block in iter_blocks(len(self), size):
            yield self.texts(np.arange(block.start, block.stop))
            self.release_pages()

    def release_pages(self) -> None:
        """Release the memory-mapped pages that were read."""
        self._pairs.release_pages()


def write_pairs(
    path: Path, rows: Iterable[Row], *, rows_per_batch: int = ROWS_PER_BATCH, with_negatives: bool = False
) -> int:
    """Write rows atomically as an Arrow stream, which `datasets.Dataset.from_file` can open. Return their number, also 0.

    Memory holds one batch: `rows_per_batch` rows, or fewer if they are long.
    """
    num_rows = 0
    schema = _make_schema(with_negatives)
    with atomic_file(path) as part, pa.OSFile(str(part), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in _iter_batches(schema, rows, rows_per_batch):
            writer.write_batch(batch)
            num_rows += len(batch)
    return num_rows


def join_pairs(path: Path, parts: Iterable[Path]) -> None:
    """Concatenate files of `write_pairs` with the same columns. Memory holds one batch."""
    with atomic_file(path) as part, pa.OSFile(str(part), "wb") as sink, ExitStack() as stack:
        writer = None
        for part_path in parts:
            with pa.OSFile(str(part_path)) as source:
                for batch in pa.ipc.open_stream(source):
                    writer = writer or stack.enter_context(pa.ipc.new_stream(sink, batch.schema))
                    writer.write_batch(batch)


def read_pairs(path: Path) -> Pairs:
    """Open a file of `write_pairs`, or any Arrow stream with its columns."""
    with name_in_errors(path), path.open("rb") as file:
        # Mapped by Python instead of by Arrow, because only this map allows giving back pages.
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        return Pairs(pa.ipc.open_stream(pa.py_buffer(mapped)).read_all(), mapped=mapped)


def _make_schema(with_negatives: bool) -> pa.Schema:
    fields = [pa.field(name, pa.string(), nullable=False) for name in TEXT_COLUMNS]
    if with_negatives:
        fields.append(pa.field("negatives", pa.list_(pa.string())))
    return pa.schema(fields)


def _iter_batches(schema: pa.Schema, rows: Iterable[Row], rows_per_batch: int) -> Iterator[pa.RecordBatch]:
    """Yield rows in record batches of equal length. A batch with long texts is shorter, but has at least one row."""
    batch: list[Row] = []
    num_characters = 0
    for row in rows:
        length = sum(map(len, row[: len(TEXT_COLUMNS)])) + sum(map(len, row.negatives))
        if len(batch) == rows_per_batch or (batch and num_characters + length > MAX_BATCH_CHARACTERS):
            yield _make_batch(schema, batch)
            batch, num_characters = [], 0
        batch.append(row)
        num_characters += length
    if batch:
        yield _make_batch(schema, batch)


def _make_batch(schema: pa.Schema, rows: Sequence[Row]) -> pa.RecordBatch:
    # The negatives are the last column, which the schema may lack.
    columns = zip(schema, zip(*rows, strict=True), strict=False)
    return pa.record_batch([pa.array(values, field.type) for field, values in columns], schema=schema)


def _encode(column: pa.ChunkedArray) -> tuple[np.ndarray, tuple[str, ...]]:
    names = pc.unique(column)
    # sorted as UTF-8 bytes, which is Python's order (`pa.array` of a sorted list would import pandas)
    sorted_names = names.take(pc.sort_indices(names))
    codes = np.empty(len(column), np.int32)
    start = 0
    # per chunk, because a call for the whole column needs memory for two copies of the codes
    for chunk in column.chunks:
        codes[start : start + len(chunk)] = pc.index_in(chunk, value_set=sorted_names)
        start += len(chunk)
    return codes, tuple(sorted_names.to_pylist())
