"""Corpora and suites by name: a BEIR folder, a file of documents, an imported corpus, a suite, or a folder of suites.

Imports no torch, so that a wrong name is refused before torch is loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from repro.data.beir import (
    DOCUMENT,
    Suite,
    check_groups,
    describe_skipped_entries,
    find_collections,
    get_legal_name,
    load_dataset,
    load_known_collection,
    load_suite,
    read_texts,
)
from repro.data.columns import ACCEPTED, match_names
from repro.data.folders import FORMATS, get_format
from repro.data.lines import iter_lines
from repro.data.own.evaluation_folders import choose_split
from repro.data.own.imported import GIVEN_FOLDER, IMPORT_FOLDER, find_imported
from repro.data.paper.collection_rules import CollectionRules, find_rules
from repro.data.readers import iter_rows
from repro.data.wording import normalize_text
from repro.spec import MTEB_SUITES, base
from repro.storage.paths import get_corpora_folder, is_imported
from repro.text import shorten

ID_COLUMNS = ("_id", "id", "doc_id", "docid")
TEXT_COLUMNS = tuple(dict.fromkeys(("text", *ACCEPTED["document"], "contents", "content", "body")))
"""Columns of the document, the first choice first. A corpus in the format of BEIR has its documents in "text"."""
PLAIN_TEXT = ".txt"
"""Ending of files with one document per line."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Corpus:
    """A corpus: its name, its kind ("imported", "beir" or "file"), and where it is."""

    name: str
    kind: str
    path: Path

    @property
    def document_role(self) -> str:
        """The role whose prompt documents have, as in `evaluate`: "query" if they are questions, as in Quora."""
        if self.kind == "imported":
            if not find_imported(self.name).only_evaluates:
                return "document"
            rules = [dataset.rules or CollectionRules() for dataset in load_suite(self.path / GIVEN_FOLDER).datasets]
            return rules[0].document_role if len({each.document_role for each in rules}) == 1 else "document"
        rules_of_name = find_rules(self.name)
        files = [self.path / "queries.jsonl", self.path / "qrels" / f"{rules_of_name.split}.tsv"]
        if not (self.kind == "beir" and rules_of_name.asks_on_both_sides and all(map(Path.is_file, files))):
            return "document"
        # The name is not enough: the content must match, too.
        return load_known_collection(self.path, self.name, rules_of_name)[1].document_role

    def read(self) -> dict[str, str]:
        """Return the text of each document by its id. Equal texts of an imported corpus are one document.

        Raises:
            ValueError: if a file is malformed, or has no document or no column of documents.
        """
        if self.kind == "beir":
            documents = read_texts(self.path / "corpus.jsonl", DOCUMENT)
        elif self.kind == "file":
            documents = dict(_iter_file(self.path))
        else:
            documents = _read_imported(self.path)
        if not documents:
            raise ValueError(f"corpus {self.name} holds no documents")
        return documents


def describe_column_choice(corpus: Corpus) -> list[str]:
    """Return a line about the column of documents if the first row of a file has several, or a title. Else empty."""
    if corpus.kind != "file" or corpus.path.suffix.lower() == PLAIN_TEXT:
        return []
    _, row = next(iter_rows(corpus.path), ("", {}))
    chosen, *others = match_names(TEXT_COLUMNS, tuple(row)) or ("",)
    has_title = bool(match_names(("title",), tuple(row)))
    if not others and not has_title:
        return []
    title = ", after their title" if has_title else ""
    unread = f"; not read: {shorten(str(others))}" if others else ""
    return [f"documents of {corpus.name} are read from the column {chosen!r}{title}{unread}"]


def find_corpus(source: str, progress: Progress = print) -> Corpus:
    """Find a corpus by its path or name. The text of a named suite is built if it is missing.

    Raises:
        ValueError: if there is none, if the name has the digest of other text, or if a suite or folder has several
            collections.
    """
    path = Path(source)
    if path.is_dir() and (path / "corpus.jsonl").is_file():
        # The name that `evaluate` gives the folder, because the draw of the context depends on it.
        return Corpus(get_legal_name(path.resolve().name), "beir", path.resolve())
    if path.is_file():
        if path.suffix.lower() != PLAIN_TEXT and not get_format(path):
            raise ValueError(f"{path} ends in {path.suffix!r}; accepted are {[PLAIN_TEXT, *FORMATS]}")
        return Corpus(path.name, "file", path.resolve())
    # as in `evaluate --suite`, a folder in the working directory is meant before a corpus of that name
    if is_imported(source) and not path.is_dir():
        # a name with a digest means this text only, and the corpus may have been imported again
        name = find_imported(source).name if "@" in source else source
        return Corpus(name, "imported", get_corpora_folder() / name)
    if not path.is_dir() and ("/" in source or "." in source):
        raise ValueError(f"{shorten(source)}: no such file or folder")
    datasets = open_suite(source, progress).datasets
    if len(datasets) > 1:
        folders = shorten(", ".join(str(dataset.path) for dataset in datasets), 400)
        raise ValueError(f"{shorten(source)} has {len(datasets)} collections: name the folder of one: {folders}")
    return Corpus(datasets[0].name, "beir", datasets[0].path.resolve())


def open_suite(source: str, progress: Progress = print, split: str = "") -> Suite:
    """Open a suite by name or from a folder. The corpus of a named suite is built if it is missing.

    A folder must have suite.json, be a BEIR folder, or contain BEIR folders. `split` chooses the judgements that are read
    (default: that of a known collection, test or dev).

    Raises:
        ValueError: if `source` is none of these.
    """
    from repro.pipeline.corpora import load_run_suite, make_searched_stage

    folder = Path(source)
    if source in MTEB_SUITES:
        raise ValueError(f"--suite {source} is run by the library mteb: see examples/mteb_contexts.py")
    if not folder.is_dir():
        if split:
            raise ValueError(f"--split {split}: {source} is no BEIR folder")
        # any run with this suite will do
        run = base("smoke", suite=source)
        make_searched_stage(run).build(progress)
        return load_run_suite(run)
    if (folder / "suite.json").is_file():
        suite = load_suite(folder)
    else:
        suite = Suite(get_legal_name(folder.resolve().name), tuple(find_collections(folder)))
    if not suite.datasets:
        raise ValueError(f"{folder} has no suite.json, is no BEIR folder (corpus.jsonl), and holds none")
    # It may also be the name of a suite or an imported corpus.
    if "/" not in source:
        progress(f"{shorten(source)}: reading the folder of this name in the working directory")
    for line in describe_skipped_entries(folder, suite.datasets):
        progress(line)
    check_groups([(dataset.name, dataset.family) for dataset in suite.datasets], str(folder))
    return Suite(suite.name, tuple(each._replace(split=choose_split(each, split)) for each in suite.datasets))


def _iter_file(path: Path) -> Iterator[tuple[str, str]]:
    """Yield id and text of each document. Documents without an id are numbered."""
    if path.suffix.lower() == PLAIN_TEXT:
        yield from ((str(line_number), line) for line_number, line in iter_lines(path))
        return
    ids: set[str] = set()
    for number, (line, row) in enumerate(iter_rows(path), 1):
        location = f"{path}, {line}"
        id_columns = match_names(ID_COLUMNS, tuple(row))
        row_id = str(next((row[name] for name in id_columns if row[name] not in (None, "")), number))
        if row_id in ids:
            raise ValueError(f"{location}: the id {shorten(row_id)} occurs twice. A row without an id has its number")
        ids.add(row_id)
        yield row_id, _join_title(row, location)


def _join_title(row: Mapping[str, Any], location: str) -> str:
    """Return the document of a row, after its title if it has one, as in a BEIR folder."""
    columns = match_names(TEXT_COLUMNS, tuple(row))
    if not columns:
        raise ValueError(f"{location}: no column for the document in {shorten(sorted(row))}")
    column = columns[0]
    titles = match_names(("title",), tuple(row))[:1]
    parts = [row[name] for name in (*titles, column) if row[name] is not None]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{location}: {column!r} holds {shorten(repr(row[column]))}, expected a text")
    return " ".join(filter(None, parts)).strip()


def _read_imported(folder: Path) -> dict[str, str]:
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
    numbered = {document_id for document_id, _ in found.values()}
    given = load_suite(folder / GIVEN_FOLDER).datasets if (folder / GIVEN_FOLDER).is_dir() else ()
    for dataset in given:
        # The stored peculiarities apply, and none because of the name.
        retrieval, _ = load_dataset(dataset._replace(rules=dataset.rules or CollectionRules()))
        for document_id, text in zip(retrieval.document_ids, retrieval.documents, strict=True):
            # several given collections may use the same ids
            unique_id = f"{dataset.name}/{document_id}" if len(given) > 1 else document_id
            # a given id may have the form of the numbers above
            unique_id = f"evaluation-{unique_id}" if unique_id in numbered else unique_id
            found.setdefault(normalize_text(text), (unique_id, text))
    return dict(found.values())
