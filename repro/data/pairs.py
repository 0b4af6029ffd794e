"""Training pairs on disk: a memory-mapped Arrow stream with id, query, document, domain, source and negatives."""

from __future__ import annotations

import hashlib
import itertools
import mmap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from repro.storage.arrays import iter_blocks, release_pages
from repro.storage.files import atomic_file

ROWS_PER_BATCH = 65_536
ROWS_PER_BLOCK = 4_096
MIN_SPARSE_DISTANCE = 512
"""If fewer than one row in this many is requested, read-ahead of the file is disabled."""
MAX_BATCH_CHARACTERS = 2**28
"""Limit of characters per batch. UTF-8 needs up to four bytes each, and a text column of Arrow holds 2 GiB."""
TEXT_COLUMNS = ("id", "query", "document", "domain", "source")

Side = Literal["query", "document"]
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
    path: Path, rows: Iterable[Row], *, rows_per_batch: int = ROWS_PER_BATCH, with_negatives: bool | None = None
) -> int:
    """Write rows atomically as an Arrow stream, which `datasets.Dataset.from_file` can open. Return their number.

    Memory holds one batch: `rows_per_batch` rows, or fewer if they are long.

    Args:
        path: Target file.
        rows: At least one row.
        rows_per_batch: Rows per record batch.
        with_negatives: Whether there is a column `negatives`. Default: if the first row has some.

    Raises:
        ValueError: if there are no rows.
    """
    iterator = iter(rows)
    first = next(iterator, None)
    if first is None:
        raise ValueError(f"no pairs to write to {path}: a training file needs at least one")
    schema = _make_schema(bool(first.negatives) if with_negatives is None else with_negatives)
    # The first row was read to choose the columns.
    all_rows = itertools.chain([first], iterator)
    # small blocks: rows become columns long before a batch of 65,536 rows is complete
    blocks = iter(lambda: list(itertools.islice(all_rows, min(rows_per_batch, ROWS_PER_BLOCK))), [])
    columns = ({name: [getattr(row, name) for row in block] for name in schema.names} for block in blocks)
    return _write(path, schema, columns, rows_per_batch)


def write_columns(path: Path, blocks: Iterable[Mapping[str, Sequence[Any]]]) -> int:
    """Write pairs with negatives from blocks of columns, as `write_pairs` from rows. Return their number, also 0."""
    return _write(path, _make_schema(with_negatives=True), blocks, ROWS_PER_BATCH)


def join_pairs(path: Path, parts: Iterable[Path]) -> int:
    """Concatenate files of `write_pairs` with the same columns. Return the number of rows. Memory holds one batch."""
    num_rows = 0
    with atomic_file(path) as part, pa.OSFile(str(part), "wb") as sink, ExitStack() as stack:
        writer = None
        for part_path in parts:
            with pa.OSFile(str(part_path)) as source:
                for batch in pa.ipc.open_stream(source):
                    writer = writer or stack.enter_context(pa.ipc.new_stream(sink, batch.schema))
                    writer.write_batch(batch)
                    num_rows += len(batch)
    return num_rows


def read_pairs(path: Path) -> Pairs:
    """Open a file of `write_pairs`, or any Arrow stream with its columns. ValueError for anything else."""
    if not path.is_file():
        raise ValueError(f"no training pairs at {path}: the file is made by `repro data`")
    try:
        with path.open("rb") as file:
            # Mapped by Python instead of by Arrow, because only this map allows giving back pages.
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        table = pa.ipc.open_stream(pa.py_buffer(mapped)).read_all()
    # raised by Arrow for invalid content, and by mmap for an empty file
    except ValueError as error:
        raise ValueError(f"{path} is not an Arrow stream of pairs ({error}): delete it and build it again") from error
    missing = [name for name in TEXT_COLUMNS if name not in table.column_names]
    if missing:
        raise ValueError(f"{path} has no columns {missing} of pairs, but {table.column_names}")
    return Pairs(table, mapped=mapped)


def _make_schema(with_negatives: bool) -> pa.Schema:
    fields = [pa.field(name, pa.string(), nullable=False) for name in TEXT_COLUMNS]
    if with_negatives:
        fields.append(pa.field("negatives", pa.list_(pa.string())))
    return pa.schema(fields)


def _write(path: Path, schema: pa.Schema, blocks: Iterable[Mapping[str, Sequence[Any]]], rows_per_batch: int) -> int:
    num_rows = 0
    with atomic_file(path) as part, pa.OSFile(str(part), "wb") as sink, pa.ipc.new_stream(sink, schema) as writer:
        for batch in _iter_batches(schema, blocks, rows_per_batch):
            writer.write_batch(batch)
            num_rows += len(batch)
    return num_rows


def _iter_batches(
    schema: pa.Schema, blocks: Iterable[Mapping[str, Sequence[Any]]], rows_per_batch: int
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of all blocks in record batches of equal length. The last one may be shorter.

    A batch with more than `MAX_BATCH_CHARACTERS` characters is shortened, but has at least one row.
    """
    buffer: dict[str, list] = {name: [] for name in schema.names}
    lengths: list[int] = []
    num_characters = 0

    def pop_batch(size: int) -> pa.RecordBatch:
        columns = [pa.array(buffer[field.name][:size], field.type) for field in schema]
        for values in (*buffer.values(), lengths):
            del values[:size]
        return pa.record_batch(columns, schema=schema)

    for block in blocks:
        for name, values in buffer.items():
            values += block[name]
        block_lengths = _count_characters(block)
        lengths += block_lengths
        num_characters += sum(block_lengths)
        while len(lengths) >= rows_per_batch or num_characters > MAX_BATCH_CHARACTERS:
            # At least one row: a single text beyond the limit is written on its own.
            num_characters_so_far = np.cumsum(lengths[:rows_per_batch])
            size = max(1, int(np.searchsorted(num_characters_so_far, MAX_BATCH_CHARACTERS, side="right")))
            num_characters -= sum(lengths[:size])
            yield pop_batch(size)
    if lengths:
        yield pop_batch(len(lengths))


def _count_characters(block: Mapping[str, Sequence[Any]]) -> list[int]:
    """Return the number of characters of each row, including its negatives."""
    lengths = sum(np.fromiter(map(len, block[name]), np.int64, len(block[name])) for name in TEXT_COLUMNS)
    negatives = block.get("negatives") or ()
    negative_lengths = [sum(map(len, texts or ())) for texts in negatives] or 0
    return np.add(lengths, negative_lengths).tolist()


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
