"""Corpora and suites by name: a BEIR folder, a file of documents, an imported corpus, a suite, or a folder of suites.

The corpus that the wrong context is drawn from is chosen here, too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from repro.data.beir import (
    DOCUMENT,
    Retrieval,
    Suite,
    SuiteDataset,
    describe_skipped_entries,
    find_collections,
    load_dataset,
    load_suite,
    read_texts,
)
from repro.data.columns import ACCEPTED, match_names
from repro.data.filters import hash_texts
from repro.data.lines import iter_lines
from repro.data.own.evaluation_folders import choose_split
from repro.data.own.imported import GIVEN_FOLDER, IMPORT_FOLDER, find_imported
from repro.data.paper.collection_rules import CollectionRules, find_rules
from repro.data.readers import iter_rows
from repro.evaluate.collections import read_collections
from repro.evaluate.contexts import are_mostly_searched, have_wrong_corpora
from repro.spec import MTEB_SUITES, base
from repro.storage.paths import get_corpora_folder, is_imported
from repro.text import shorten

ID_COLUMNS = ("_id", "id", "doc_id", "docid")
TEXT_COLUMNS = tuple(dict.fromkeys(("text", *ACCEPTED["document"], "contents", "content", "body")))
"""Columns of the document, the first choice first. A corpus in the format of BEIR has its documents in "text"."""
PLAIN_TEXT = ".txt"
"""Ending of files with one document per line."""
DEFAULT_SUITE = "desk"
"""Source of the wrong corpus if a suite has a single dataset. It is mined from wheels."""
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Corpus:
    """A corpus: its name, its documents by id, and the role whose prompt they have, as in `evaluate`.

    The role is "query" if documents are questions, as in Quora. `is_file` is true for a file of documents.
    """

    name: str
    documents: Mapping[str, str]
    document_role: str = "document"
    is_file: bool = False


def read_corpus(source: str, progress: Progress = print) -> Corpus:
    """Read a corpus by its path or name. The text of a named suite is built if it is missing.

    Equal texts of an imported corpus are one document.

    Raises:
        ValueError: if there is none, if the name has the digest of other text, if a suite or folder has several
            collections, or if a file is malformed, or has no document or no column of documents.
    """
    path = Path(source)
    if path.is_file():
        corpus = Corpus(path.name, _read_file(path, progress), is_file=True)
    # as in `evaluate --suite`, a folder in the working directory is meant before a corpus of that name
    elif is_imported(source) and not path.is_dir():
        # a name with a digest means this text only, and the corpus may have been imported again
        name = find_imported(source).name if "@" in source else source
        corpus = _read_imported(name, get_corpora_folder() / name)
    elif not path.is_dir() and "." in source:
        raise ValueError(f"{shorten(source)}: no such file or folder")
    else:
        datasets = open_suite(source, progress).datasets
        if len(datasets) > 1:
            folders = shorten(", ".join(str(dataset.path) for dataset in datasets), 400)
            raise ValueError(f"{shorten(source)} has {len(datasets)} collections: name the folder of one: {folders}")
        corpus = _read_collection(datasets[0])
    if not corpus.documents:
        raise ValueError(f"corpus {corpus.name} holds no documents")
    return corpus


def _read_collection(dataset: SuiteDataset) -> Corpus:
    """Read the documents of a BEIR folder, which may lack queries. If they may be questions, queries decide the role."""
    documents = read_texts(dataset.path / "corpus.jsonl", DOCUMENT)
    files = (dataset.path / "queries.jsonl", dataset.path / "qrels" / f"{choose_split(dataset)}.tsv")
    may_be_questions = (dataset.rules or find_rules(dataset.name)).asks_on_both_sides
    # The name is not enough: the content must match, too.
    is_checked = may_be_questions and all(map(Path.is_file, files))
    return Corpus(dataset.name, documents, load_dataset(dataset)[1].document_role if is_checked else "document")


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
        if "/" in source:
            raise ValueError(f"{shorten(source)}: no such file or folder")
        # any run with this suite will do
        run = base("smoke", suite=source)
        make_searched_stage(run).build(progress)
        return load_run_suite(run)
    suite = find_collections(folder)
    if not suite.datasets:
        raise ValueError(f"{folder} has no suite.json, is no BEIR folder (corpus.jsonl), and holds none")
    # It may also be the name of a suite or an imported corpus.
    if "/" not in source:
        progress(f"{shorten(source)}: reading the folder of this name in the working directory")
    for line in describe_skipped_entries(folder, suite.datasets):
        progress(line)
    return Suite(suite.name, tuple(each._replace(split=choose_split(each, split)) for each in suite.datasets))


def _read_file(path: Path, progress: Progress) -> dict[str, str]:
    """Return text by id of each document. Documents without an id are numbered."""
    if path.suffix.lower() == PLAIN_TEXT:
        return {str(line_number): line for line_number, line in iter_lines(path)}
    documents: dict[str, str] = {}
    first = ""
    for number, (line, row) in enumerate(iter_rows(path), 1):
        location, names = f"{path}, {line}", tuple(row)
        columns, titles = match_names(TEXT_COLUMNS, names), match_names(("title",), names)[:1]
        if not columns:
            raise ValueError(f"{location}: no column for the document in {shorten(sorted(row))}")
        first = first or columns[0]
        if columns[0] != first:
            raise ValueError(f"{location}: the document is in {columns[0]!r} here and in {first!r} before")
        if number == 1 and (len(columns) > 1 or titles):
            unread = f"; not read: {shorten(str(list(columns[1:])))}" if len(columns) > 1 else ""
            title = ", after their title" if titles else ""
            progress(f"documents of {path.name} are read from the column {columns[0]!r}{title}{unread}")
        # Only NaN differs from itself.
        values = (row[name] for name in match_names(ID_COLUMNS, names))
        ids = (value for value in values if value not in (None, "") and value == value)
        row_id = str(next(ids, number))
        if row_id in documents:
            raise ValueError(f"{location}: the id {shorten(row_id)} occurs twice. A row without an id has its number")
        parts = [row[name] for name in (*titles, columns[0]) if row[name] is not None]
        if not all(isinstance(part, str) for part in parts):
            raise ValueError(f"{location}: {columns[0]!r} holds {shorten(repr(row[columns[0]]))}, expected a text")
        documents[row_id] = " ".join(filter(None, parts)).strip()
    return documents


def _read_imported(name: str, folder: Path) -> Corpus:
    from repro.data.own.importing import DOCUMENTS_FILE, PAIRS_FILE
    from repro.data.pairs import read_pairs

    # By key: equal texts are one document, with the id that it has in the hold-out.
    found: dict[int, tuple[str, str]] = {}
    for path in (folder / IMPORT_FOLDER / file for file in (PAIRS_FILE, DOCUMENTS_FILE)):
        for block in read_pairs(path).blocks("document") if path.is_file() else ():
            for key, text in zip(hash_texts(block).tolist(), block, strict=True):
                found.setdefault(key, (f"d{key:016x}", text))
    given = load_suite(folder / GIVEN_FOLDER).datasets if (folder / GIVEN_FOLDER).is_dir() else ()
    for dataset in given:
        # The stored peculiarities apply, and none because of the name.
        retrieval, _ = load_dataset(dataset._replace(rules=dataset.rules or CollectionRules()))
        keys = hash_texts(retrieval.documents).tolist()
        for key, document_id, text in zip(keys, retrieval.document_ids, retrieval.documents, strict=True):
            # several given collections may use the same ids
            found.setdefault(key, (f"{dataset.name}/{document_id}" if len(given) > 1 else document_id, text))
    roles = {(dataset.rules or CollectionRules()).document_role for dataset in given}
    # next to pairs, documents have the prompt of training
    has_own_role = find_imported(name).only_evaluates and len(roles) == 1
    return Corpus(name, dict(found.values()), roles.pop() if has_own_role else "document")


def find_wrong_source(suite: Suite, progress: Progress) -> Retrieval | None:
    """Return the largest collection of `desk` that a suite does not search, and report the choice.

    The result is None for a suite that provides its own wrong corpora. A suite of one dataset, or of several with the same
    documents, provides none.
    """
    if have_wrong_corpora(suite.datasets):
        return None
    searched = [collection.retrieval.documents for collection in read_collections(suite).values()]
    corpora = [collection.retrieval for collection in read_collections(open_suite(DEFAULT_SUITE, progress)).values()]
    others = [each for each in corpora if not any(are_mostly_searched(each.documents, texts) for texts in searched)]
    # sorted first, so that the name decides between equal sizes
    largest = max(sorted(others, key=lambda corpus: corpus.name), key=lambda corpus: len(corpus.documents))
    found = f"{largest.name}, {len(largest.documents)} documents"
    progress(f"wrong context: drawn from {found}; {suite.name} has no collection with other documents")
    return largest
