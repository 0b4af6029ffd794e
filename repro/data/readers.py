"""Read pairs from users' files: jsonl, csv, tsv, parquet and arrow by column name, BEIR folders, and archives.

Memory holds one line or one batch of rows, and for a BEIR folder its judged texts. Errors name the file, the line, the
wrong value and the accepted ones. A row without query or document is returned with a flaw. A file with mostly such rows
is rejected. Pickles are never read.
"""

from __future__ import annotations

import csv
import json
import lzma
import math
import re
import shutil
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from repro.data.beir import DOCUMENT, QUERY, read_qrels, read_texts
from repro.data.columns import SIDES, Columns, Layout, describe_columns, detect_layout, make_row_layout
from repro.data.folders import (
    ARCHIVES,
    ENDINGS,
    SPLITS_FILE,
    is_beir,
    list_entries,
    list_files_to_read,
    list_splits,
    match_ending,
)
from repro.data.lines import MAX_LINE_BYTES, iter_json_rows, iter_lines
from repro.text import shorten

ROWS_PER_READ = 8_192
MAX_LAYOUTS = 256
NEGATIONS = ("not", "non", "un", "contra")
WHOLE_NUMBER = re.compile(r"^([+-]?\d+)\.0+$")
WRITTEN_LIST = re.compile(r"""\s*\[\s*(?:['"].*['"]|\{.*\})\s*\]\s*""", re.DOTALL)
"""A cell with a list of texts or of passages as Python or JSON writes it. pandas writes such cells."""
ARROW_MAGIC = b"ARROW1"
"""First bytes of the file format of Arrow, as in Feather files."""
LOW_LABEL = "low_label"
"""Key of the count of rows whose label is below the threshold. They are not pairs."""
MAX_UNPACKED_BYTES = 64 * 2**30
"""Limit of one archive. The largest collection of BEIR has a quarter of it."""


class ForeignRow(NamedTuple):
    """One pair of a file. A row with a list of documents or of queries gives a pair for each of them.

    Attributes:
        query: The query, empty if the row has a flaw.
        document: The document.
        negatives: The hard negatives.
        domain: The domain, or "".
        location: File and line, for errors.
        flaw: Why the row is not a pair, or "".
        label: The label, or NaN if there is none.
        dropped: Key of the count of dropped rows to which this one belongs, or "".
        is_further: Whether it is a further pair of a row with several documents or queries.
        documents: All documents of the row, which are no negatives.
    """

    query: str
    document: str
    negatives: tuple[str, ...]
    domain: str
    location: str
    flaw: str = ""
    label: float = math.nan
    dropped: str = ""
    is_further: bool = False
    documents: tuple[str, ...] = ()


UsedColumns = dict[str, str]
"""Descriptions of the columns that were used, each with the location of its first use."""


def read_foreign_rows(
    source: Path, columns: Columns | None = None, used_columns: UsedColumns | None = None, *, skip_bad: bool = False
) -> Iterator[ForeignRow]:
    """Yield the pairs of a file, of a BEIR folder, or of all files of a folder in the order of their names.

    Args:
        source: A file, a folder of files or a BEIR folder.
        columns: The names of the columns.
        used_columns: Filled with the used columns, in at most `MAX_LAYOUTS` variants. A BEIR folder has none.
        skip_bad: Return malformed rows of jsonl, csv and tsv with a flaw, regardless of their number.
    """
    columns = columns or Columns()
    if is_beir(source):
        if options := [option for option in columns.options if option != "--threshold"]:
            raise ValueError(f"{', '.join(options)}: {source} is a BEIR folder, which has no columns to choose")
        yield from _read_beir(source, 1 if columns.threshold is None else columns.threshold)
        return
    if used_columns is None:
        used_columns = {}
    for path in list_pair_paths(source):
        yield from _READERS[match_ending(path)](path, columns, used_columns, skip_bad)


def list_pair_paths(source: Path) -> list[Path]:
    """Return the files of pairs at or in `source`. Raises ValueError if one cannot be read."""
    if not (files := list_files_to_read(source)):
        raise ValueError(f"{source} holds no file ending in {list(ENDINGS)}, and is no BEIR folder (corpus.jsonl)")
    for path in files:
        if not path.is_file():
            if not path.exists() and (path.parent / SPLITS_FILE).is_file():
                splits = [entry.name for entry in list_entries(path.parent) if entry.is_dir()]
                raise ValueError(
                    f"{path.parent} has the splits {splits}, and only `train` is read: name one of their folders"
                )
            kind = "a FIFO, socket or device, expected a file or a folder" if path.exists() else "not there"
            raise ValueError(f"{path} is {kind}")
        if not match_ending(path):
            raise ValueError(f"{path} ends in {path.suffix!r}; accepted are {list(ENDINGS)}, folders, {list(ARCHIVES)}")
    return files


def estimate_text_size(*sources: Path) -> int:
    """Estimate the number of bytes of the texts that `read_foreign_rows` would read. Damaged files count with their size."""
    return sum(_estimate_file_size(path) for source in sources for path in list_files_to_read(source))


def _estimate_file_size(path: Path) -> int:
    if match_ending(path) != ".parquet":
        return path.stat().st_size if path.is_file() else 0
    try:
        metadata = pq.read_metadata(path)
    except (OSError, pa.ArrowException):
        return path.stat().st_size
    # the size before compression
    return sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))


def unpack(archive: Path, folder: Path) -> Path:
    """Unpack a zip or tar into `folder`. Return it, or its only sub-folder.

    Raises:
        ValueError: if members are unsafe or too large, before anything is written, or if the archive is damaged or
            encrypted.
    """
    try:
        return _unpack(archive, folder)
    except (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError) as error:
        raise ValueError(f"{archive} is damaged ({error}): copy it again") from error
    except (NotImplementedError, RuntimeError) as error:
        raise ValueError(f"{archive} cannot be read ({error}): unpack it yourself and give the folder") from error


def _unpack(archive: Path, folder: Path) -> Path:
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as zip_file:
            for info in zip_file.infolist():
                # the upper 16 bits are the Unix mode
                _check_member(archive, info.filename, is_plain=not stat.S_ISLNK(info.external_attr >> 16))
            # Every member is checked before the first one is written.
            _check_size(archive, sum(info.file_size for info in zip_file.infolist()), folder)
            zip_file.extractall(folder)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as tar_file:
            for member in tar_file.getmembers():
                _check_member(archive, member.name, is_plain=member.isfile() or member.isdir())
            _check_size(archive, sum(member.size for member in tar_file.getmembers()), folder)
            tar_file.extractall(folder, filter="data")
    else:
        raise ValueError(f"{archive} is neither a zip nor a tar")
    entries = list_entries(folder)
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else folder


def _check_size(archive: Path, num_bytes: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    limit = min(MAX_UNPACKED_BYTES, shutil.disk_usage(folder).free)
    if num_bytes > limit:
        raise ValueError(f"{archive} holds {num_bytes} bytes unpacked, more than the {limit} that there is room for")


def _check_member(archive: Path, name: str, *, is_plain: bool) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0]) or not is_plain:
        raise ValueError(
            f"{archive} holds {shorten(repr(name))}, which is a link or lies outside of it: nothing was unpacked"
        )


def _note_used_columns(
    used_columns: UsedColumns, columns: Columns, names: Sequence[str], layout: Layout, location: str
) -> None:
    if not layout.flaw and len(used_columns) < MAX_LAYOUTS:
        used_columns.setdefault(describe_columns(columns, names, layout), location)


def _read_jsonl(path: Path, columns: Columns, used_columns: UsedColumns, skip_bad: bool) -> Iterator[ForeignRow]:
    layouts: dict[tuple[str, ...], Layout] = {}
    first_names: tuple[str, ...] = ()
    # A column that the user named must exist in at least one row. Rows may differ in their fields.
    missing = set(columns.needed) - set(SIDES)
    flaws = Flaws(path, refuses=not skip_bad)
    num_rows = 0
    for line, values, flaw in iter_json_rows(path):
        location = f"{path}, line {line}"
        if flaw:
            if not skip_bad:
                # the whole file has another encoding, for which the reason names the command
                hint = "" if flaw.startswith("not UTF-8") else ". Correct it, or leave such rows out with --skip-bad"
                raise ValueError(f"{location}: {flaw}{hint}")
            yield _make_flawed_row(location, flaw)
            continue
        num_rows += 1
        names = tuple(values)
        if names not in layouts:
            # bounds the memory for a file with different columns in every line
            if len(layouts) == MAX_LAYOUTS:
                layouts.clear()
            layouts[names] = layout = make_row_layout(columns, names)
            _note_used_columns(used_columns, columns, names, layout, location)
            missing -= layout.chosen.keys()
            first_names = first_names or names
        rows = _parse_row(values, layouts[names], location)
        if rows[0].flaw:
            flaws.note(rows[0], num_rows)
        yield from rows
    flaws.check(num_rows)
    if missing:
        raise ValueError(f"{path}: {columns.explain_missing(sorted(missing), first_names)}")


@dataclass
class Flaws:
    """Counter of the rows of a file that are not pairs. It keeps the first one for the error."""

    path: Path
    refuses: bool = True
    num: int = 0
    first: str = ""

    def note(self, row: ForeignRow, num_rows: int) -> None:
        """Count the last of `num_rows` rows. Raises ValueError if the first `ROWS_PER_READ` rows all have flaws."""
        self.num += 1
        self.first = self.first or f"{row.location.removeprefix(f'{self.path}, ')}: {row.flaw}"
        # fail early: a file of the wrong kind may have millions of rows
        if self.num == num_rows == ROWS_PER_READ:
            self.check(num_rows)

    def check(self, num_rows: int) -> None:
        """Raise ValueError if more than half of the rows are not pairs."""
        if self.refuses and 2 * self.num > num_rows:
            raise ValueError(f"{self.path}: {self.num} of {num_rows} rows are not pairs; the first is {self.first}")


class _Unquoted(csv.excel_tab):
    quoting = csv.QUOTE_NONE


class _Semicolons(csv.excel):
    delimiter = ";"


@dataclass
class _Quotes:
    """Detects a .tsv whose cells are quoted although its header is not. pandas and csv.writer write such files."""

    path: Path
    first_line: int = 0
    are_letters: bool = False

    def note(self, cells: Sequence[str], line: int) -> None:
        """Look at the quotes of a row."""
        for cell in cells:
            if '"' not in cell:
                continue
            inner = cell[1:-1].replace('""', "")
            if not (len(cell) > 2 and cell[0] == cell[-1] == '"') or '"' in inner:
                self.are_letters = True
            elif not self.first_line and '""' in cell[1:-1]:
                self.first_line = line

    def check(self) -> None:
        """Raise ValueError if quotes within cells are doubled, and if no quote is a letter."""
        if self.first_line and not self.are_letters:
            raise ValueError(
                f"{self.path}, line {self.first_line}: cells are quoted as in a csv, but in a .tsv whose header is not "
                "quoted, quotes are letters: quote all (`csv.QUOTE_ALL`), or save as .csv"
            )


def _detect_dialect(path: Path, header: str) -> type[csv.Dialect]:
    """Detect the dialect of a table by its header. A .csv without a comma in it may be separated by semicolons."""
    if match_ending(path) == ".csv":
        unquoted = re.sub(r'"[^"]*"', "", header)
        return _Semicolons if ";" in unquoted and "," not in unquoted else csv.excel
    # Quotes in a .tsv, such as the dumps of MS MARCO, are ordinary characters unless the header is quoted.
    return csv.excel_tab if header.startswith('"') else _Unquoted


def iter_table_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells by column of each row of a table that is not empty, in the dialect of an import.

    Raises:
        ValueError: with file and line, if a row has another number of cells than the header, if a column occurs twice,
            or if the file is malformed or not UTF-8.
    """
    rows = _iter_cells(path)
    _, header, _ = next(rows)
    if repeated := sorted({name for name in header if name.strip() and header.count(name) > 1}):
        raise ValueError(f"{path}, line 1: the column {shorten(repeated[0])} occurs twice: rename or remove one")
    for line, cells, _ in rows:
        yield line, dict(zip(header, cells, strict=True))


def _read_table(path: Path, columns: Columns, used_columns: UsedColumns, skip_bad: bool) -> Iterator[ForeignRow]:
    rows = _iter_cells(path, skip_bad=skip_bad)
    _, header, _ = next(rows)
    layout = detect_layout(columns, header, f"{path}, line 1")
    _note_used_columns(used_columns, columns, header, layout, f"{path}, line 1")
    # By index from here on, because a dictionary per row would take most of the time.
    layout = layout.by_index(header)
    lists = {part: _WrittenLists() for part in layout.chosen if part in (*SIDES, "negatives")}
    flaws = Flaws(path, refuses=not skip_bad)
    num_rows = 0
    for line, cells, flaw in rows:
        location = f"{path}, line {line}"
        if flaw:
            yield _make_flawed_row(location, flaw)
            continue
        num_rows += 1
        for part, counts in lists.items():
            counts.note(cells[layout.chosen[part]], location)
        pairs = _parse_row(cells, layout, location)
        if pairs[0].flaw:
            flaws.note(pairs[0], num_rows)
        yield from pairs
    for part, counts in lists.items():
        counts.check(part)
    flaws.check(num_rows)


class _WrittenLists:
    """Counts of the cells of a column that are a list written as a text. Empty cells do not count."""

    def __init__(self) -> None:
        self.num_cells = self.num_lists = 0
        self.first = ""

    def note(self, cell: str, location: str) -> None:
        """Count a cell."""
        self.num_cells += bool(cell)
        if WRITTEN_LIST.fullmatch(cell):
            self.num_lists += 1
            self.first = self.first or location

    def check(self, part: str) -> None:
        """Raise ValueError if most cells are lists. A few may be real texts."""
        if 2 * self.num_lists > self.num_cells:
            raise ValueError(
                f"{self.first}: {self.num_lists} of {self.num_cells} cells of the {part} are a list that was written as "
                "a text, such as ['a', 'b']: save as .jsonl or .parquet, which store lists"
            )


def _iter_cells(path: Path, *, skip_bad: bool = False) -> Iterator[tuple[int, list[str], str]]:
    """Yield line number, cells and flaw of the header, and of each row that is not empty.

    Raises:
        ValueError: if a row is malformed. With `skip_bad`, such a row is yielded with a flaw instead.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    # bytes that are not UTF-8 become surrogates, which identify the malformed row
    errors = "surrogateescape" if skip_bad else "strict"
    quotes = _Quotes(path)
    try:
        with path.open(encoding="utf-8-sig", newline="", errors=errors) as file:
            dialect = _detect_dialect(path, file.readline(MAX_LINE_BYTES))
            # The first line was read only to detect the dialect.
            file.seek(0)
            # strict: otherwise an unbalanced quote would silently join many rows to one.
            reader = csv.reader(file, dialect, strict=True)
            header = next(reader, [])
            yield 1, header, ""
            while True:
                try:
                    cells = next(reader, None)
                    if cells is None:
                        break
                    _check_cells(cells, header, is_unquoted=dialect is _Unquoted)
                except (csv.Error, ValueError) as error:
                    if not skip_bad:
                        raise
                    yield reader.line_num, [], f"malformed ({error})" if isinstance(error, csv.Error) else str(error)
                    continue
                if cells:
                    if dialect is _Unquoted:
                        quotes.note(cells, reader.line_num)
                    yield reader.line_num, cells, ""
    except csv.Error as error:
        raise ValueError(
            f"{path}, line {reader.line_num}: malformed ({error}); quotes within quotes are doubled in a csv, not escaped "
            "by a backslash"
        ) from error
    except UnicodeDecodeError:
        # The csv reader decodes blocks, so it does not know the line. Reading by lines raises an error that names it.
        deque(iter_lines(path), maxlen=0)
        raise
    except ValueError as error:
        raise ValueError(f"{path}, line {reader.line_num}: {error}") from error
    quotes.check()


def _check_cells(cells: Sequence[str], header: Sequence[str], *, is_unquoted: bool) -> None:
    """Raise ValueError if a row has another number of cells than the header, or is not UTF-8. Empty rows are valid."""
    if cells and len(cells) != len(header):
        hint = " (in a .tsv whose header is not quoted, quotes are letters: quote all, or save as .csv)" * is_unquoted
        raise ValueError(f"{len(cells)} cell{'s' * (len(cells) != 1)}, the header has {len(header)}{hint}")
    try:
        "".join(cells).encode()
    except UnicodeEncodeError as error:
        raise ValueError("not UTF-8") from error


def _read_arrow(path: Path, columns: Columns, used_columns: UsedColumns, skip_bad: bool) -> Iterator[ForeignRow]:
    """Yield the pairs of a parquet file, or of an arrow file: a stream, as `datasets` writes it, or the file format."""
    is_parquet = match_ending(path) == ".parquet"
    try:
        # with pre_buffer it would hold everything that it has read in memory
        file = pq.ParquetFile(path, pre_buffer=False) if is_parquet else _open_arrow(path)
        schema = file.schema_arrow if is_parquet else file.schema
        layout = detect_layout(columns, schema.names, str(path))
        _note_used_columns(used_columns, columns, schema.names, layout, str(path))
        if columns.threshold is None and "label" in layout.chosen:
            _check_classes(schema.metadata or {}, str(layout.chosen["label"]), path)
        flaws = Flaws(path, refuses=not skip_bad)
        num_rows = 0
        # Unused columns are not read from disk.
        used = [*layout.chosen.values(), *layout.numbered]
        if is_parquet:
            batches = file.iter_batches(batch_size=ROWS_PER_READ, columns=used)
        else:
            batches = (batch.select(used) for batch in _iter_batches(file))
        for batch in batches:
            # pyarrow checks offsets and UTF-8 of an arrow file only on request
            batch.validate(full=True)
            batch_layout = layout.by_index(batch.schema.names)
            for values in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                num_rows += 1
                rows = _parse_row(values, batch_layout, f"{path}, row {num_rows}")
                if rows[0].flaw:
                    flaws.note(rows[0], num_rows)
                yield from rows
        flaws.check(num_rows)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged or no {match_ending(path)[1:]} file ({error})") from error


_READERS = {
    ".jsonl": _read_jsonl,
    ".csv": _read_table,
    ".tsv": _read_table,
    ".parquet": _read_arrow,
    ".arrow": _read_arrow,
}


def _check_classes(metadata: Mapping[bytes, bytes], name: str, path: Path) -> None:
    """Raise ValueError if `datasets` stored a column of labels as classes whose numbers are no grades.

    These are more than two classes, or two of which the second is the negation, as in QNLI.
    """
    try:
        features = json.loads(metadata.get(b"huggingface", b"{}"))["info"]["features"]
        classes = list(features[name]["names"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return
    is_negation = len(classes) == 2 and str(classes[1]).casefold().startswith(NEGATIONS)
    if len(classes) > 2 or is_negation:
        raise ValueError(
            f"{path}: the numbers in {shorten(repr(name))} are those of the classes {shorten(repr(classes))}, not grades: "
            "use --threshold X if rows from X on are pairs, or keep the rows that are pairs and use --no-labels"
        )


def _open_arrow(path: Path) -> pa.RecordBatchStreamReader | pa.RecordBatchFileReader:
    mapped = pa.memory_map(str(path))
    is_file_format = mapped.read(len(ARROW_MAGIC)) == ARROW_MAGIC
    mapped.seek(0)
    return pa.ipc.open_file(mapped) if is_file_format else pa.ipc.open_stream(mapped)


def _iter_batches(file: pa.RecordBatchStreamReader | pa.RecordBatchFileReader) -> Iterator[pa.RecordBatch]:
    if isinstance(file, pa.RecordBatchFileReader):
        return map(file.get_batch, range(file.num_record_batches))
    return iter(file)


def _read_beir(folder: Path, threshold: float) -> Iterator[ForeignRow]:
    splits, path = list_splits(folder), folder / "qrels" / "train.tsv"
    if not splits:
        raise ValueError(f"{folder / 'qrels'} holds no split: a BEIR folder to train on has qrels/train.tsv")
    if "train" not in splits:
        raise ValueError(f"{folder / 'qrels'} has {splits} and no train.tsv: only `train` is imported to train on")
    judgements = list(read_qrels(path))
    # Judgements below the threshold are not pairs, but they count as rows that were read.
    for line, (_, _, grade) in judgements:
        if grade < threshold:
            yield ForeignRow("", "", (), "", f"{path}, line {line}", dropped=LOW_LABEL)
    positives = [
        (line, query_id, document_id) for line, (query_id, document_id, grade) in judgements if grade >= threshold
    ]
    # Memory holds the texts of pairs only. A corpus may have millions of others.
    documents = read_texts(folder / "corpus.jsonl", DOCUMENT, {document_id for _, _, document_id in positives})
    queries = read_texts(folder / "queries.jsonl", QUERY, {query_id for _, query_id, _ in positives})
    for line, query_id, document_id in positives:
        if query_id not in queries or document_id not in documents:
            raise ValueError(f"{path}, line {line}: {query_id!r} or {document_id!r} is not in the folder")
        yield ForeignRow(queries[query_id], documents[document_id], (), "", f"{path}, line {line}")


def _make_flawed_row(location: str, reason: str) -> ForeignRow:
    return ForeignRow("", "", (), "", location, flaw=reason)


def _parse_row(values: Any, layout: Layout, location: str) -> list[ForeignRow]:
    """Return the pairs of a row, which is a mapping or a sequence as in the layout: at least one, which may have a flaw."""
    chosen, numbered, flaw = layout
    if flaw:
        return [_make_flawed_row(location, flaw)]
    try:
        negatives = _to_texts(values[chosen["negatives"]]) if "negatives" in chosen else []
        for key in numbered:
            negatives += _to_texts(values[key])
        queries, documents = _get_side_texts(values[chosen["query"]]), _get_side_texts(values[chosen["document"]])
        if len(queries) > 1 and len(documents) > 1:
            raise ValueError(
                f"{len(queries)} queries and {len(documents)} documents: it is not clear which belong together, so write a "
                "row for each pair"
            )
        domain = get_domain_name(values[chosen["domain"]]) if "domain" in chosen else ""
        label = parse_label(values[chosen["label"]]) if "label" in chosen else math.nan
    except ValueError as error:
        return [_make_flawed_row(location, str(error))]
    pairs = [
        ForeignRow(query, document, tuple(negatives), domain, location, label=label, documents=tuple(documents))
        for query in queries
        for document in documents
    ]
    return pairs[:1] + [pair._replace(is_further=True) for pair in pairs[1:]]


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
    if isinstance(value, bool) or not isinstance(value, str | int | float) or value in (math.inf, -math.inf):
        raise ValueError(f"the domain is {shorten(repr(value))}, expected a text or a number")
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def parse_label(value: Any) -> float:
    """Convert a label to a number. A missing one is NaN. Raises ValueError unless it is a number, true or false."""
    if value is None or value == "":
        return math.nan
    text = value.strip().casefold() if isinstance(value, str) else value
    try:
        # Python accepts "1_0" as a number, other programs do not
        if isinstance(text, str) and "_" in text:
            raise ValueError("an underscore")
        if text in ("true", "false"):
            return float(text == "true")
        label = float(text)
        if math.isinf(label):
            raise ValueError("infinite")
        return label
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"the label is {shorten(repr(value))}, expected a number, true or false: "
            + (
                "write a row for each document with its label"
                if isinstance(value, list)
                else "name another column with --label COLUMN, replace words by numbers, or keep only the rows that are "
                "pairs and use --no-labels"
            )
        ) from error


def _get_side_texts(value: Any) -> list[str]:
    """Return the text, or those of several that are not empty. [""] if there is none."""
    return [value] if type(value) is str else [*filter(None, _to_texts(value))] or [""]


def _to_texts(value: Any) -> list[str]:
    """Return one text or a list of texts as a list. A missing value gives an empty list, and "" within a list."""
    # Only NaN differs from itself.
    if value is None or value == "" or value != value:
        return []
    items = value if isinstance(value, list) else [value]
    texts = ["" if item is None or item != item else item for item in items]
    if not all(isinstance(text, str) for text in texts):
        raise ValueError(f"expected a text or a list of texts, found {shorten(repr(value))}")
    return texts
