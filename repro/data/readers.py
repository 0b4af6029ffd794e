"""Read pairs from users' files: jsonl, csv, tsv and parquet by column name, BEIR folders, and archives.

Memory holds one line or one batch of rows, and for a BEIR folder its judged texts. Errors name the file, the line, the
wrong value and the accepted ones. A row without query or document is returned with a flaw. A file with mostly such rows
is rejected. Pickles are never read.
"""

from __future__ import annotations

import csv
import lzma
import math
import re
import shlex
import shutil
import stat
import tarfile
import unicodedata
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from repro.data.beir import DOCUMENT, QUERY, read_qrels, read_texts
from repro.data.columns import SIDES, Columns, Layout, describe_columns, detect_layout, layout_of_row
from repro.data.folders import ARCHIVES, ENDINGS, is_beir, list_entries, list_files_to_read, list_splits, match_ending
from repro.data.lines import MAX_LINE_BYTES, convert_hint, list_json_rows
from repro.text import short

ROWS_PER_READ = 8_192
MAX_LAYOUTS = 256
WHOLE_NUMBER = re.compile(r"^([+-]?\d+)\.0+$")
LOW_LABEL = "low_label"
"""Key of the count of rows whose label is below the threshold. They are not pairs."""
MAX_UNPACKED_BYTES = 64 * 2**30
"""Limit of one archive. The largest collection of BEIR has a quarter of it."""


class Found(NamedTuple):
    """One row of a file.

    Attributes:
        query: The query, empty if the row has a flaw.
        document: The document, the first one if there are several positives.
        negatives: The hard negatives.
        domain: The domain, or "".
        place: File and line, for errors.
        num_more_positives: Number of further positives, which are not used.
        num_more_queries: Number of further queries, which are not used.
        flaw: Why the row is not a pair, or "".
        label: The label, or NaN if there is none.
        dropped: Key of the count of dropped rows to which this one belongs, or "".
    """

    query: str
    document: str
    negatives: tuple[str, ...]
    domain: str
    place: str
    num_more_positives: int = 0
    flaw: str = ""
    label: float = math.nan
    dropped: str = ""
    num_more_queries: int = 0


Taken = dict[str, str]
"""Descriptions of the columns that were used, each with the first place of its use."""


def read_foreign(
    source: Path, columns: Columns | None = None, taken: Taken | None = None, *, skip_bad: bool = False
) -> Iterator[Found]:
    """Yield the pairs of a file, of a BEIR folder, or of all files of a folder in the order of their names.

    Args:
        source: A file, a folder of files or a BEIR folder.
        columns: The names of the columns.
        taken: Filled with the used columns, in at most `MAX_LAYOUTS` variants. A BEIR folder has none.
        skip_bad: Return malformed rows of jsonl, csv and tsv with a flaw, regardless of their number.
    """
    columns, taken = columns or Columns(), {} if taken is None else taken
    if is_beir(source):
        yield from _read_beir(source)
        return
    for path in list_pair_paths(source):
        yield from _READERS[match_ending(path)](path, columns, taken, skip_bad)


def list_pair_paths(source: Path) -> list[Path]:
    """Return the files of pairs at or in `source`. Raises ValueError if one cannot be read."""
    if not (files := list_files_to_read(source)):
        raise ValueError(f"{source} holds no file ending in {list(ENDINGS)}, and is no BEIR folder (corpus.jsonl)")
    for path in files:
        if not path.is_file():
            kind = "a FIFO, socket or device, expected a file or a folder" if path.exists() else "not there"
            raise ValueError(f"{path} is {kind}")
        if not match_ending(path):
            raise ValueError(f"{path} ends in {path.suffix!r}; accepted are {list(ENDINGS)}, folders, {list(ARCHIVES)}")
    return files


def estimate_text_size(*sources: Path) -> int:
    """Estimate the number of bytes of the texts that `read_foreign` would read. Damaged files count with their size."""
    return sum(_size(path) for source in sources for path in list_files_to_read(source))


def _size(source: Path) -> int:
    if match_ending(source) != ".parquet":
        return source.stat().st_size if source.is_file() else 0
    try:
        found = pq.read_metadata(source)
    except (OSError, pa.ArrowException):
        return source.stat().st_size
    return sum(found.row_group(number).total_byte_size for number in range(found.num_row_groups))


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
        with zipfile.ZipFile(archive) as opened:
            for info in opened.infolist():
                # the upper 16 bits are the Unix mode
                _check_member(archive, info.filename, is_plain=not stat.S_ISLNK(info.external_attr >> 16))
            # Every member is checked before the first one is written.
            _check_size(archive, sum(info.file_size for info in opened.infolist()), folder)
            opened.extractall(folder)
    elif tarfile.is_tarfile(archive):
        with tarfile.open(archive) as members:
            for member in members.getmembers():
                _check_member(archive, member.name, is_plain=member.isfile() or member.isdir())
            _check_size(archive, sum(member.size for member in members.getmembers()), folder)
            members.extractall(folder, filter="data")
    else:
        raise ValueError(f"{archive} is neither a zip nor a tar")
    inside = list_entries(folder)
    return inside[0] if len(inside) == 1 and inside[0].is_dir() else folder


def _check_size(archive: Path, num_bytes: int, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    most = min(MAX_UNPACKED_BYTES, shutil.disk_usage(folder).free)
    if num_bytes > most:
        raise ValueError(f"{archive} holds {num_bytes} bytes unpacked, more than the {most} that there is room for")


def _check_member(archive: Path, name: str, *, is_plain: bool) -> None:
    path = PurePosixPath(name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and ":" in path.parts[0]) or not is_plain:
        raise ValueError(
            f"{archive} holds {short(repr(name))}, which is a link or lies outside of it: nothing was unpacked"
        )


def _note_taken(taken: Taken, columns: Columns, names: Sequence[str], layout: Layout, where: str) -> None:
    if not layout.flaw and len(taken) < MAX_LAYOUTS:
        taken.setdefault(describe_columns(columns, names, layout), where)


def _is_nested(value: Any) -> bool:
    """Return whether a value is an object or a list of objects, so that it cannot be a text."""
    return isinstance(value, dict) or (isinstance(value, list) and any(isinstance(one, dict | list) for one in value))


def _read_jsonl(path: Path, columns: Columns, taken: Taken, skip_bad: bool = False) -> Iterator[Found]:
    layouts: dict[tuple[str, ...], Layout] = {}
    first: tuple[str, ...] = ()
    # A column that the user named must exist in at least one row. Rows may differ in their fields.
    unseen, flaws, count = set(columns.needed) - set(SIDES), Flaws(path, refuses=not skip_bad), 0
    bad: list[Found] = []

    def skip(number: int, why: str) -> None:
        if not skip_bad:
            # the whole file has another encoding, for which the reason names the command
            hint = "" if why.startswith("not UTF-8") else ". Correct it, or leave such rows out with --skip-bad"
            raise ValueError(f"{path}, line {number}: {why}{hint}")
        bad.append(Found("", "", (), "", f"{path}, line {number}", flaw=why))

    for count, (number, row) in enumerate(list_json_rows(path, skip), 1):
        yield from bad
        bad.clear()
        where = f"{path}, line {number}"
        names = tuple(row)
        if names not in layouts:
            # bounds the memory for a file with different columns in every line
            if len(layouts) == MAX_LAYOUTS:
                layouts.clear()
            layouts[names] = layout = layout_of_row(columns, names, [name for name in names if _is_nested(row[name])])
            _note_taken(taken, columns, names, layout, where)
            unseen -= layout.chosen.keys()
            first = first or names
        found = _parse_row(row, layouts[names], where)
        if found.flaw:
            flaws.note(found, count)
        yield found
    yield from bad
    flaws.check(count)
    if unseen:
        raise ValueError(f"{path}: {columns.complaint(sorted(unseen), first)}")


@dataclass
class Flaws:
    """Counter of the rows of a file that are not pairs. It keeps the first one for the error."""

    path: Path
    refuses: bool = True
    num: int = 0
    first: str = ""

    def note(self, found: Found, num_rows: int) -> None:
        """Count the last of `num_rows` rows. Raises ValueError if the first `ROWS_PER_READ` rows all have flaws."""
        self.num += 1
        self.first = self.first or f"{found.place.removeprefix(f'{self.path}, ')}: {found.flaw}"
        # fail early: a file of the wrong kind may have millions of rows
        if self.num == num_rows == ROWS_PER_READ:
            self.check(num_rows)

    def check(self, num_rows: int) -> None:
        """Raise ValueError if more than half of the rows are not pairs."""
        if self.refuses and 2 * self.num > num_rows:
            raise ValueError(f"{self.path}: {self.num} of {num_rows} rows are not pairs; the first is {self.first}")


class _Bare(csv.excel_tab):
    quoting = csv.QUOTE_NONE


class _Semicolons(csv.excel):
    delimiter = ";"


def _dialect(path: Path, header: str) -> type[csv.Dialect]:
    """Detect the dialect of a table by its header. A .csv without a comma in it may be separated by semicolons."""
    if match_ending(path) == ".csv":
        bare = re.sub(r'"[^"]*"', "", header)
        return _Semicolons if ";" in bare and "," not in bare else csv.excel
    # Quotes in a .tsv, such as the dumps of MS MARCO, are ordinary characters unless the header is quoted.
    return csv.excel_tab if header.startswith('"') else _Bare


def iter_table_rows(path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line number and cells by column of each row of a table that is not empty, in the dialect of an import.

    Raises:
        ValueError: with file and line, if a row has another number of cells than the header, if a column occurs twice,
            or if the file is malformed or not UTF-8.
    """
    csv.field_size_limit(MAX_LINE_BYTES)
    number = 1
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            dialect = _dialect(path, file.readline(MAX_LINE_BYTES))
            file.seek(0)
            reader = csv.reader(file, dialect, strict=True)
            header = next(reader, [])
            if twice := sorted({name for name in header if name.strip() and header.count(name) > 1}):
                raise ValueError(f"the column {short(twice[0])} occurs twice: rename or remove one")
            for cells in reader:
                number = reader.line_num
                _check_cells(cells, header, is_bare=dialect is _Bare)
                if cells:
                    yield number, dict(zip(header, cells, strict=True))
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {_csv_reason(path, error)}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {_format_first_bad_line(path)}: not UTF-8; {convert_hint(path)}") from error
    except ValueError as error:
        raise ValueError(f"{path}, line {number}: {error}") from error


def _read_table(path: Path, columns: Columns, taken: Taken, skip_bad: bool = False) -> Iterator[Found]:
    csv.field_size_limit(MAX_LINE_BYTES)
    # bytes that are not UTF-8 become surrogates, which identify the malformed row
    errors = "surrogateescape" if skip_bad else "strict"
    try:
        with path.open(encoding="utf-8-sig", newline="", errors=errors) as file:
            dialect = _dialect(path, file.readline(MAX_LINE_BYTES))
            # The first line was read only to detect the dialect.
            file.seek(0)
            # strict: otherwise an unbalanced quote would silently join many rows to one.
            reader = csv.reader(file, dialect, strict=True)
            header = next(reader, [])
            named = detect_layout(columns, header, f"{path}, line 1")
            _note_taken(taken, columns, header, named, f"{path}, line 1")
            # By index from here on, because a dictionary per row would take most of the time.
            layout = named.by_place(header)
            while True:
                try:
                    cells = next(reader, None)
                    if cells is None:
                        break
                    _check_cells(cells, header, is_bare=dialect is _Bare)
                except (csv.Error, ValueError) as error:
                    why = _csv_reason(path, error) if isinstance(error, csv.Error) else str(error)
                    if not skip_bad:
                        raise ValueError(f"{path}, line {reader.line_num}: {why}") from error
                    yield Found("", "", (), "", f"{path}, line {reader.line_num}", flaw=why)
                    continue
                if cells:
                    yield _parse_row(cells, layout, f"{path}, line {reader.line_num}")
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: {_csv_reason(path, error)}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}, line {_format_first_bad_line(path)}: not UTF-8; {convert_hint(path)}") from error


def _check_cells(cells: Sequence[str], header: Sequence[str], *, is_bare: bool) -> None:
    """Raise ValueError if a row has another number of cells than the header, or is not UTF-8. Empty rows are valid."""
    if cells and len(cells) != len(header):
        hint = " (in a .tsv whose header is not quoted, quotes are letters: quote all, or save as .csv)" * is_bare
        raise ValueError(f"{len(cells)} cell{'s' * (len(cells) != 1)}, the header has {len(header)}{hint}")
    if any(not cell.isascii() and any("\ud800" <= letter <= "\udfff" for letter in cell) for cell in cells):
        raise ValueError("not UTF-8")


def _csv_reason(path: Path, error: csv.Error) -> str:
    """Return why a csv is malformed. If its quotes are escaped by backslashes, add the command that converts it."""
    with path.open("rb") as file:
        escapes = any(b'\\"' in line for line in iter(lambda: file.readline(MAX_LINE_BYTES), b""))
    if not escapes:
        return f"malformed ({error})"
    read = "csv.reader(sys.stdin, doublequote=False, escapechar=chr(92))"
    program = f"import csv, sys; csv.writer(sys.stdout).writerows({read})"
    name, made = shlex.quote(path.name), shlex.quote(f"doubled-{path.name}")
    return (
        f"malformed ({error}); quotes within quotes are doubled in a csv, here some are escaped by a backslash: "
        f'python -c "{program}" < {name} > {made}'
    )


def _format_first_bad_line(path: Path) -> int:
    """Return the number of the first line that is not UTF-8. The csv reader decodes blocks, so it does not know it."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return number
    return 1


def _read_parquet(path: Path, columns: Columns, taken: Taken, skip_bad: bool = False) -> Iterator[Found]:
    try:
        # with pre_buffer it would hold everything that it has read in memory
        file = pq.ParquetFile(path, pre_buffer=False)
        schema = file.schema_arrow
        nested = [one.name for one in schema if _holds_objects(one.type)]
        layout = detect_layout(columns, schema.names, str(path), nested)
        _note_taken(taken, columns, schema.names, layout, str(path))
        # Unused columns of a parquet file are not read from disk.
        wanted = [*layout.chosen.values(), *layout.numbered]
        num_before, words, flaws = 0, f"{path}, row ", Flaws(path, refuses=not skip_bad)
        for batch in file.iter_batches(batch_size=ROWS_PER_READ, columns=wanted):
            by_place = layout.by_place(batch.schema.names)
            columns_of_batch = [column.to_pylist() for column in batch.columns]
            for number, values in enumerate(zip(*columns_of_batch, strict=True), num_before + 1):
                found = _parse_row(values, by_place, f"{words}{number}")
                if found.flaw:
                    flaws.note(found, number)
                yield found
            num_before += batch.num_rows
        flaws.check(num_before)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is damaged or no parquet file ({error})") from error


def _holds_objects(kind: pa.DataType) -> bool:
    while pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    return pa.types.is_struct(kind) or pa.types.is_map(kind)


_READERS = {".jsonl": _read_jsonl, ".csv": _read_table, ".tsv": _read_table, ".parquet": _read_parquet}


def _read_beir(folder: Path) -> Iterator[Found]:
    splits, path = list_splits(folder), folder / "qrels" / "train.tsv"
    if not splits:
        raise ValueError(f"{folder / 'qrels'} holds no split: a BEIR folder to train on has qrels/train.tsv")
    if "train" not in splits:
        raise ValueError(f"{folder / 'qrels'} has {splits} and no train.tsv: only `train` is imported to train on")
    judged, dropped = list[tuple[int, tuple[str, str, int]]](), list[int]()
    for number, row in read_qrels(path):
        if row[2] > 0:
            judged.append((number, row))
        else:
            dropped.append(number)
    # Judgements without relevance are not pairs, but they count as rows that were read.
    for number in dropped:
        yield Found("", "", (), "", f"{path}, line {number}", dropped=LOW_LABEL)
    # Only judged texts are stored. A corpus may have millions of others.
    documents = read_texts(folder / "corpus.jsonl", DOCUMENT, {row[1] for _, row in judged})
    queries = read_texts(folder / "queries.jsonl", QUERY, {row[0] for _, row in judged})
    for number, (query, document, _) in judged:
        if query not in queries or document not in documents:
            raise ValueError(f"{path}, line {number}: {query!r} or {document!r} is not in the folder")
        yield Found(queries[query], documents[document], (), "", f"{path}, line {number}")


def _parse_row(row: Any, layout: Layout, where: str) -> Found:
    """Return the pair of a row, which is a mapping or a sequence as in the layout. It may have a flaw."""
    chosen, numbered, flaw = layout
    if flaw:
        return Found("", "", (), "", where, flaw=flaw)
    try:
        negatives = _texts(row[chosen["negatives"]]) if "negatives" in chosen else []
        for key in numbered:
            negatives += _texts(row[key])
        query, document = _first(row[chosen["query"]]), _first(row[chosen["document"]])
        domain = get_domain_name(row[chosen["domain"]]) if "domain" in chosen else ""
        label = parse_label(row[chosen["label"]]) if "label" in chosen else math.nan
    except ValueError as error:
        return Found("", "", (), "", where, flaw=str(error))
    more_queries, more_positives = (_count_more(row[chosen[side]]) for side in SIDES)
    return Found(
        query, document, tuple(negatives), domain, where, more_positives, label=label, num_more_queries=more_queries
    )


def _count_more(value: Any) -> int:
    """Return the number of texts of a list after the first one that is not empty."""
    return max(0, sum(map(bool, value)) - 1) if isinstance(value, list) else 0


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
        raise ValueError(f"the domain is {short(repr(value))}, expected a text or a number")
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
        found = {"true": 1.0, "false": 0.0}.get(text) if isinstance(text, str) else None
        label = float(text if found is None else found)
        if math.isinf(label):
            raise ValueError("infinite")
        return label
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"the label is {short(repr(value))}, expected a number, true or false: name another column with --label "
            "COLUMN, or use every row as a pair with --no-labels"
        ) from error


def _first(value: Any) -> str:
    """Return the text, or the first of several that is not empty. "" if there is none."""
    return value if type(value) is str else next(filter(None, _texts(value)), "")


def _texts(value: Any) -> list[str]:
    """Return one text or a list of texts as a list. A missing value gives an empty list, and "" within a list."""
    if value is None or value == "" or value != value:
        return []
    values = ["" if one is None or one != one else one for one in value] if isinstance(value, list) else [value]
    if not all(isinstance(text, str) for text in values):
        raise ValueError(f"expected a text or a list of texts, found {short(repr(value))}")
    return values
