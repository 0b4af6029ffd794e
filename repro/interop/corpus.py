"""Documents of a corpus that is searched or adapted to: a BEIR folder, a file, an imported corpus, or a suite by name.

Imports no torch, so that a wrong name is refused before torch is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from repro.data.beir import (
    DOCUMENT,
    SuiteDataset,
    find_collections,
    get_legal_name,
    load_dataset,
    load_known_collection,
    load_suite,
    read_texts,
)
from repro.data.columns import ACCEPTED, match_names
from repro.data.paper.quirks import Quirks, find_quirks
from repro.data.wording import normalize_text
from repro.storage.digests import get_cached_digests, get_digests_note, hash_json
from repro.storage.files import json_object
from repro.storage.paths import CORPUS_FILE, get_corpora_folder, is_imported
from repro.text import shorten

ID_COLUMNS = ("_id", "id", "doc_id", "docid")
TEXT_COLUMNS = tuple(dict.fromkeys(("text", *ACCEPTED["document"], "contents", "content", "body")))
"""Columns of the document, the first choice first. A corpus in the format of BEIR has its documents in "text"."""
FILE_ENDINGS = (".jsonl", ".csv", ".tsv", ".parquet", ".txt")


@dataclass(frozen=True)
class Corpus:
    """A corpus: its name, its kind ("imported", "beir", "file", "suite" or "folder" of a suite), and where it is."""

    name: str
    kind: str
    path: Path

    @property
    def key(self) -> tuple[str, str, str]:
        """Everything that decides the documents, their prompt and the draws from them: kind, name and digest.

        The name decides the draws. Two suites of one stage have the same digest, and so have a .txt and a .csv file with
        the same bytes.
        """
        return self.kind, self.name, self.digest

    @property
    def document_role(self) -> str:
        """The role whose prompt documents have, as in `evaluate`: "query" if they are questions, as in Quora.

        Documents of several collections have the role "document".
        """
        if self.kind == "imported":
            from repro.data.own.imported import GIVEN_FOLDER, find_imported

            if not find_imported(self.name).only_evaluates:
                return "document"
            quirks = [dataset.quirks or Quirks() for dataset in load_suite(self.path / GIVEN_FOLDER).datasets]
            return quirks[0].document_role if len({each.document_role for each in quirks}) == 1 else "document"
        if not self._list_role_files():
            return "document"
        # The name is not enough: the content must match, too.
        return load_known_collection(self.path, self.name, find_quirks(self.name))[1].document_role

    @property
    def digest(self) -> str:
        """A digest of its content. That of a file is computed once and noted."""
        if self.kind == "imported":
            from repro.data.own.imported import IMPORT_FOLDER
            from repro.data.own.importing import DOCUMENTS_FILE

            digest = str(json_object(self.path / CORPUS_FILE).get("digest"))
            # If collections for evaluation were given, this digest does not cover documents without a pair.
            documents = self.path / IMPORT_FOLDER / DOCUMENTS_FILE
            if not documents.is_file():
                return digest
            return hash_json([digest, get_cached_digests(self.path, [documents], get_digests_note(self.path))])
        if self.kind == "suite":
            return self.path.name
        digests = get_cached_digests(self.path.parent, self._list_files(), get_digests_note(self.path))
        return digests[self.path.name] if self.kind == "file" else hash_json(digests)

    def _list_files(self) -> list[Path]:
        """Return the files that decide its documents and their prompt."""
        if self.kind == "file":
            return [self.path]
        if self.kind == "beir":
            return [self.path / "corpus.jsonl", *self._list_role_files()]
        # Collections may be links, which `rglob` would not follow.
        suite = self.path / "suite.json"
        has_suite = suite.is_file()
        datasets = load_suite(self.path).datasets if has_suite else find_collections(self.path)
        return [suite] * has_suite + [dataset.path / "corpus.jsonl" for dataset in datasets]

    def _list_role_files(self) -> list[Path]:
        """Return queries and judgements of a collection with the name of one of questions. Empty if it has none."""
        quirks = find_quirks(self.name)
        files = [self.path / "queries.jsonl", self.path / "qrels" / f"{quirks.split}.tsv"]
        has_role = self.kind == "beir" and quirks.asks_on_both_sides and all(map(Path.is_file, files))
        return files if has_role else []

    def read(self, progress: Callable[[str], None] = print) -> tuple[dict[str, str], int]:
        """Return the text of each document by its id, and the number of collections that they come from.

        Equal texts of an imported corpus are one document. `progress` is called with each message.

        Raises:
            ValueError: if a file is malformed or has no column of documents. The message names file and line.
        """
        if self.kind == "beir":
            return read_texts(self.path / "corpus.jsonl", DOCUMENT), 1
        if self.kind == "file":
            return dict(_iter_file(self.path)), 1
        if self.kind == "imported":
            return _read_imported(self.path), 1
        from repro.interop.opening import open_suite

        suite = open_suite(self.name if self.kind == "suite" else str(self.path), progress)
        return _read_datasets(suite.datasets)


def describe_column_choice(corpus: Corpus) -> list[str]:
    """Return a line about the column of documents if the first row of a file has several, or a title. Else empty."""
    if corpus.kind != "file" or corpus.path.suffix.lower() == ".txt":
        return []
    _, row = next(_iter_rows(corpus.path), (0, {}))
    chosen, *others = match_names(TEXT_COLUMNS, tuple(row)) or ("",)
    has_title = bool(match_names(("title",), tuple(row)))
    if not others and not has_title:
        return []
    title = ", after their title" if has_title else ""
    unread = f"; not read: {shorten(str(others))}" if others else ""
    return [f"documents of {corpus.name} are read from the column {chosen!r}{title}{unread}"]


def find_corpus(source: str) -> Corpus:
    """Find a corpus by its path or name.

    Raises:
        ValueError: if there is none, if a file has another ending, or if the name has the digest of other text.
    """
    path = Path(source)
    if path.is_dir() and (path / "corpus.jsonl").is_file():
        # The name that `evaluate` gives the folder, because the draw of the context depends on it.
        return Corpus(get_legal_name(path.resolve().name), "beir", path.resolve())
    if path.is_file():
        if path.suffix.lower() not in FILE_ENDINGS:
            raise ValueError(f"--corpus {shorten(source)} ends in {path.suffix!r}: choose one of {list(FILE_ENDINGS)}")
        return Corpus(path.name, "file", path.resolve())
    # as in `evaluate --suite`, a folder in the working directory is meant before a corpus of that name
    if is_imported(source) and not path.is_dir():
        name, _, digest = source.partition("@")
        if digest:
            # a name with a digest means this text only, and the corpus may have been imported again
            from repro.data.own.imported import find_imported

            find_imported(source)
        return Corpus(name, "imported", get_corpora_folder() / name)
    if not path.is_dir() and ("/" in source or "." in source):
        raise ValueError(f"--corpus {shorten(source)}: no such file or folder")
    from repro.interop.arguments import check_suite
    from repro.pipeline.corpora import make_searched_stage
    from repro.spec import base

    check_suite(source)
    if path.is_dir():
        return Corpus(path.resolve().name, "folder", path.resolve())
    return Corpus(source, "suite", make_searched_stage(base("smoke", suite=source)).path)


def _iter_file(path: Path) -> Iterator[tuple[str, str]]:
    """Yield id and text of each document. Documents without an id are numbered by their line."""
    from repro.data.lines import iter_lines

    if path.suffix.lower() == ".txt":
        yield from ((str(line_number), line.strip()) for line_number, line in iter_lines(path))
        return
    ids: set[str] = set()
    for line_number, row in _iter_rows(path):
        location = f"{path}, line {line_number}"
        id_columns = match_names(ID_COLUMNS, tuple(row))
        row_id = str(next((row[name] for name in id_columns if row[name] not in (None, "")), line_number))
        if row_id in ids:
            raise ValueError(
                f"{location}: the id {shorten(row_id)} occurs twice. A row without an id has the number of its line as id"
            )
        ids.add(row_id)
        yield row_id, _join_title(row, location)


def _iter_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    from repro.data.lines import list_json_rows
    from repro.data.readers import iter_table_rows

    readers = {".jsonl": list_json_rows, ".parquet": _iter_parquet_rows}
    return iter(readers.get(path.suffix.lower(), iter_table_rows)(path))


def _iter_parquet_rows(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        batches = pq.ParquetFile(path, pre_buffer=False).iter_batches()
        yield from enumerate(chain.from_iterable(batch.to_pylist() for batch in batches), 1)
    except (pa.ArrowException, OSError) as error:
        raise ValueError(f"{path} is damaged or no parquet file ({error})") from error


def _join_title(row: Mapping[str, Any], location: str) -> str:
    """Return the document of a row, after its title if it has one, as in a BEIR folder."""
    columns = match_names(TEXT_COLUMNS, tuple(row))
    if not columns:
        raise ValueError(
            f"{location}: no column for the document: found {shorten(sorted(row))}, accepted {list(TEXT_COLUMNS)}"
        )
    column = columns[0]
    titles = match_names(("title",), tuple(row))[:1]
    parts = [row[name] for name in (*titles, column) if row[name] is not None]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{location}: {column!r} holds {shorten(repr(row[column]))}, expected a text")
    return " ".join(filter(None, parts)).strip()


def _read_imported(folder: Path) -> dict[str, str]:
    from repro.data.own.imported import GIVEN_FOLDER, IMPORT_FOLDER
    from repro.data.own.importing import DOCUMENTS_FILE, PAIRS_FILE
    from repro.data.pairs import read_pairs

    # by the form that decides whether texts are equal in an evaluation
    found: dict[str, tuple[str, str]] = {}
    for file, kind in ((PAIRS_FILE, "pair"), (DOCUMENTS_FILE, "document")):
        path = folder / IMPORT_FOLDER / file
        texts = chain.from_iterable(read_pairs(path).blocks("document")) if path.is_file() else ()
        for number, text in enumerate(texts, 1):
            # A document of several pairs keeps the number of the first one.
            found.setdefault(normalize_text(text), (f"{kind}-{number}", text))
    if (folder / GIVEN_FOLDER).is_dir():
        numbered = {document_id for document_id, _ in found.values()}
        # The stored peculiarities apply, and none because of the name.
        given = load_suite(folder / GIVEN_FOLDER).datasets
        given_documents, _ = _read_datasets([each._replace(quirks=each.quirks or Quirks()) for each in given])
        for document_id, text in given_documents.items():
            # a given id may have the form of the numbers above
            unique_id = f"evaluation-{document_id}" if document_id in numbered else document_id
            found.setdefault(normalize_text(text), (unique_id, text))
    return dict(found.values())


def _read_datasets(datasets: Sequence[SuiteDataset]) -> tuple[dict[str, str], int]:
    documents: dict[str, str] = {}
    for dataset in datasets:
        retrieval, _ = load_dataset(dataset)
        # Collections of a suite may use the same ids.
        prefix = f"{dataset.name}/" if len(datasets) > 1 else ""
        for document_id, text in zip(retrieval.document_ids, retrieval.documents, strict=True):
            documents[prefix + document_id] = text
    return documents, len(datasets)
