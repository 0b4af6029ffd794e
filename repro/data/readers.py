"""Read pairs from users' files: jsonl, csv, tsv and parquet by column name, saved datasets, and BEIR folders.

Memory holds one row or one batch of rows. A row that is not a pair of texts is an error that names file, line and value.
Only a missing or empty text is no error, and gives a pair with an empty side. Pickles are never read.
"""

from __future__ import annotations

import csv
import io
import re
import sys
import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from repro.data.beir import DOCUMENT, QUERY, read_qrels, read_texts
from repro.data.columns import Chosen, Columns
from repro.data.folders import FORMATS, get_format, list_entries
from repro.data.lines import list_json_rows, open_decompressed
from repro.text import shorten

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_PER_READ = 8_192
MAX_EXACT_FLOAT = 2**53
WHOLE_NUMBER = re.compile(r"^([+-]?\d+)\.0+$")

WRITTEN_LIST = re.compile(r"""\[\s*(["']).*\1\s*\]""", re.DOTALL)
"""A list of texts as csv files of pandas contain it. Read as one text, it would be a useless one."""


class ForeignRow(NamedTuple):
    """One pair of a file. A row with a list of documents or of queries gives a pair for each of them.

    Attributes:
        query: The query, which may be empty.
        document: The document, which may be empty.
        negatives: The hard negatives.
        domain: The domain, or "".
        path: The file.
        line: Line or row, for errors.
        label: The label as it is stored, or None if there is none.
        is_further: Whether it is a further pair of a row with several documents or queries.
        documents: All documents of the row, which are no negatives.
        is_low: Whether the label is not that of a pair. Set by `repro.data.labels`.
    """

    query: str
    document: str
    negatives: tuple[str, ...]
    domain: str
    path: Path
    line: str
    label: Any = None
    is_further: bool = False
    documents: tuple[str, ...] = ()
    is_low: bool = False


Select = Callable[[Sequence[str]], list[str]]
UsedColumns = dict[str, dict[str, None]]
"""The columns that were used for each part, and those that were not read under "", in order."""


def read_foreign_rows(
    path: Path, columns: Columns | None = None, used: UsedColumns | None = None
) -> Iterator[ForeignRow]:
    """Yield the pairs of a file or of a saved dataset.

    Args:
        path: The file, or the folder that `datasets.save_to_disk` wrote.
        columns: The names of the columns.
        used: Filled with the used columns.

    Raises:
        ValueError: if a row is no pair of texts, a column is missing, or two rows have different columns for one part.
    """
    columns, used = columns or Columns(), {} if used is None else used
    in_file: dict[str, tuple[str, ...]] = {}
    chosen: Chosen = {}
    last_names: tuple[str, ...] | None = None

    def select(names: Sequence[str]) -> list[str]:
        read = [name for found in columns.choose(names).values() for name in found]
        used.setdefault("", {}).update(dict.fromkeys(name for name in names if name not in read))
        return read

    for line, row in iter_rows(path, select):
        try:
            if (names := tuple(row)) != last_names:
                chosen, last_names = columns.choose(names), names
                _note_columns(chosen, in_file, used)
                select(names)
            yield from _make_pairs(row, chosen, path, line)
        except ValueError as error:
            raise ValueError(f"{path}, {line}: {error}") from error
    # a named column must exist in some row
    if last_names and (missing := [part for part in columns.names if part not in in_file]):
        raise ValueError(f"{path}: {columns.explain_missing(missing, last_names)}")


def _note_columns(chosen: Chosen, in_file: dict[str, tuple[str, ...]], used: UsedColumns) -> None:
    """Note the columns of a row. Raises ValueError if an earlier row of the file has another one for a part."""
    for part, found in chosen.items():
        first = in_file.setdefault(part, found)
        # rows of JSON may have different numbers of negatives
        if found != first and part != "negatives":
            raise ValueError(f"the {part} is in {found[0]!r} here and in {first[0]!r} before: name one with --{part}")
        used.setdefault(part, {}).update(dict.fromkeys(found))


def iter_rows(path: Path, select: Select | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield place and values by column of each row of a file or saved dataset. Classes have their names as values.

    Args:
        path: The file or folder.
        select: Chooses the columns to read of parquet files and saved datasets. Default: all.
    """
    if not path.exists():
        raise ValueError(f"{path} is not there")
    match get_format(path):
        case ".jsonl":
            yield from ((f"line {number}", row) for number, row in list_json_rows(path))
        case ".csv" | ".tsv":
            yield from ((f"line {number}", row) for number, row in iter_table_rows(path))
        case ".parquet" | ".arrow":
            yield from _iter_arrow_rows(path, select)
        case _:
            raise ValueError(f"{path} ends in {path.suffix!r}: accepted are {FORMATS}, with .gz or .zst, and folders")


def iter_table_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells by column of each row of a table that is not empty.

    A .csv without a comma in its header may be separated by semicolons. In a .tsv, quotes are letters.

    Raises:
        ValueError: with file and line, if a row has another number of cells than the header, if a column occurs twice,
            or if the file is malformed or not UTF-8.
    """
    csv.field_size_limit(sys.maxsize)
    # without a reader, an error is one of the first line
    line = 1
    try:
        with io.TextIOWrapper(open_decompressed(path), encoding="utf-8-sig", newline="") as file:
            if get_format(path) == ".tsv":
                reader = csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE, strict=True)
            else:
                first = file.readline()
                unquoted = re.sub(r'"[^"]*"', "", first)
                delimiter = ";" if ";" in unquoted and "," not in unquoted else ","
                # strict: otherwise an unbalanced quote would silently join many rows to one
                reader = csv.reader(chain([first], file), delimiter=delimiter, strict=True)
            header = next(reader, [])
            if len({*header}) < len(header):
                raise ValueError(f"a column of {shorten(header)} occurs twice: rename or remove one")
            for cells in reader:
                line = reader.line_num
                if cells and len(cells) != len(header):
                    raise ValueError(f"{len(cells)} cells, the header has {len(header)}")
                if cells:
                    yield line, dict(zip(header, cells, strict=True))
    except (csv.Error, OSError, ValueError) as error:
        raise ValueError(f"{path}, at or after line {line}: {error}") from error


def _iter_arrow_rows(path: Path, select: Select | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a parquet file or a saved dataset."""
    import pyarrow as pa

    try:
        schema, batches = _open_arrow(path, select or list)
        if len({*schema.names}) < len(schema.names):
            raise ValueError(f"a column of {shorten(schema.names)} occurs twice: rename or remove one")
        classes = _find_classes(schema)
        number = 0
        for batch in batches:
            # damaged offsets would be read as other text, or end the process
            batch.validate(full=True)
            columns = zip(batch.schema.names, batch.columns, strict=True)
            values = {name: _name_classes(_list_values(column), classes.get(name)) for name, column in columns}
            for row in zip(*values.values(), strict=True):
                number += 1
                yield f"row {number}", dict(zip(values, row, strict=True))
    # `datasets` raises the last three for damaged metadata
    except (pa.ArrowException, OSError, ValueError, OverflowError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"{path}: {error}") from error


def _list_values(column: pa.Array) -> list[Any]:
    """Return the values of a column. A float32 is the shortest decimal that identifies it: 0.7, not 0.699999988."""
    values: list[Any] = column.to_pylist()
    narrow = {"halffloat": np.float16, "float": np.float32}.get(str(column.type))
    return values if narrow is None else [None if value is None else float(str(narrow(value))) for value in values]


def _open_arrow(path: Path, select: Select) -> tuple[pa.Schema, Iterator[Any]]:
    """Return schema and batches of a parquet file or a saved dataset. Of a dataset with splits, only `train` is read."""
    if not path.is_dir():
        import pyarrow.parquet as pq

        # with pre_buffer it would hold everything that it has read in memory
        file = pq.ParquetFile(path, pre_buffer=False)
        return file.schema_arrow, file.iter_batches(ROWS_PER_READ, columns=select(file.schema_arrow.names))
    from datasets import DatasetDict, load_from_disk

    opened = load_from_disk(str(path))
    if isinstance(opened, DatasetDict):
        if "train" not in opened:
            raise ValueError(f"it has the splits {[*opened]}, and only `train` is read: name one of their folders")
        opened = opened["train"]
    schema = opened.features.arrow_schema
    return schema, opened.select_columns(select(schema.names)).with_format("arrow").iter(ROWS_PER_READ)


def _find_classes(schema: pa.Schema) -> dict[str, list[str]]:
    """Return the names of the classes of each column that `datasets` stored as numbers of classes."""
    if b"huggingface" not in (schema.metadata or {}):
        return {}
    from datasets import ClassLabel, Features

    features = Features.from_arrow_schema(schema)
    return {name: feature.names for name, feature in features.items() if isinstance(feature, ClassLabel)}


def _name_classes(values: list[Any], names: Sequence[str] | None) -> list[Any]:
    """Replace numbers of classes by their names. `datasets` stores -1 if a row has no class."""
    if names is None:
        return values
    if invalid := [value for value in values if value is not None and not -1 <= value < len(names)]:
        raise ValueError(f"a class has the number {invalid[0]}, and there are {len(names)} names of classes")
    return [None if value is None or value < 0 else names[value] for value in values]


def read_beir_pairs(folder: Path, threshold: int) -> Iterator[ForeignRow]:
    """Yield the training pairs of a BEIR folder. Judgements below the threshold have no texts and are low."""
    path = folder / "qrels" / "train.tsv"
    judgements = list(read_qrels(path))
    is_pair = [grade >= threshold for _, (_, _, grade) in judgements]
    pairs = [row for row, is_kept in zip(judgements, is_pair, strict=True) if is_kept]
    for line, _ in (row for row, is_kept in zip(judgements, is_pair, strict=True) if not is_kept):
        yield ForeignRow("", "", (), "", path, f"line {line}", is_low=True)
    # Memory holds the texts of pairs only. A corpus may have millions of others.
    documents = read_texts(folder / "corpus.jsonl", DOCUMENT, {document_id for _, (_, document_id, _) in pairs})
    queries = read_texts(folder / "queries.jsonl", QUERY, {query_id for _, (query_id, _, _) in pairs})
    for line, (query_id, document_id, _) in pairs:
        if query_id not in queries or document_id not in documents:
            raise ValueError(f"{path}, line {line}: {query_id!r} or {document_id!r} is not in the folder")
        yield ForeignRow(queries[query_id], documents[document_id], (), "", path, f"line {line}")


def _make_pairs(row: Mapping[str, Any], chosen: Chosen, path: Path, line: str) -> Iterator[ForeignRow]:
    """Yield the pairs of a row. Raises ValueError if a value is neither a text nor a list of texts."""
    queries, documents = (_to_texts(row[chosen[side][0]]) or [""] for side in ("query", "document"))
    if len(queries) > 1 and len(documents) > 1:
        raise ValueError(f"{len(queries)} queries and {len(documents)} documents: write a row for each pair")
    negatives = tuple(text for name in chosen.get("negatives", ()) for text in _to_texts(row[name]))
    texts = (*queries, *documents, *negatives) if get_format(path) in (".csv", ".tsv") else ()
    if lists := [text for text in texts if WRITTEN_LIST.fullmatch(text)]:
        raise ValueError(f"a list is written as text, use jsonl or parquet: {shorten(lists[0])}")
    domain = get_domain_name(row[chosen["domain"][0]]) if "domain" in chosen else ""
    label = row[chosen["label"][0]] if "label" in chosen else None
    is_further = False
    for query in queries:
        for document in documents:
            yield ForeignRow(query, document, negatives, domain, path, line, label, is_further, tuple(documents))
            is_further = True


def get_domain_name(value: Any) -> str:
    """Return the name of a domain. The numbers and texts 1, 1.0, "1" and "1.0" are the same domain "1".

    Tables with missing values store whole numbers as floats, so the form of a number must not matter. A missing value
    or NaN gives "".
    """
    # Only NaN differs from itself.
    if value is None or value != value:
        return ""
    if isinstance(value, str):
        text = unicodedata.normalize("NFC", " ".join(value.split()))
        return WHOLE_NUMBER.sub(r"\1", text)
    # bool is a subclass of int, and a domain "True" is a mistake.
    # A float of this size has lost the last digits of a whole number, so two domains could become one.
    is_exact = isinstance(value, int) or (isinstance(value, float) and abs(value) < MAX_EXACT_FLOAT)
    if isinstance(value, bool) or not is_exact:
        raise ValueError(f"the domain is {shorten(repr(value))}, expected a text or a number")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def _to_texts(value: Any) -> list[str]:
    """Return one text or a list of texts as a list, without missing and empty ones."""
    items = value if isinstance(value, list) else [value]
    # Only NaN differs from itself.
    texts = [item for item in items if item is not None and item == item and item != ""]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"expected a text or a list of texts, found {shorten(repr(value))}")
    return texts


def explain_unread(source: Path, files: Sequence[Path]) -> list[str]:
    """Return a line about the files and folders in a folder of pairs that are not read. Empty if there are none."""
    entries = list_entries(source) if source.is_dir() and source not in files else []
    unread = [entry.name for entry in entries if entry not in files]
    return [f"not read: {shorten(', '.join(unread), 200)}"] if unread else []
