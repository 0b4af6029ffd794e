"""Read the documents of a corpus: a BEIR folder, a file, an imported corpus, or a suite by name."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.data.beir import DOCUMENT, read_texts
from repro.data.columns import Columns
from repro.data.folders import is_beir
from repro.data.lines import iter_lines, list_json_rows
from repro.data.own.imported import is_imported
from repro.data.pairs import read_pairs
from repro.text import count_noun, short

FILES = (".jsonl", ".csv", ".tsv", ".txt")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class Documents:
    """The distinct texts of a corpus, its name, and the number of collections that they come from."""

    name: str
    texts: list[str]
    num_collections: int = 1


def check_corpus(source: str) -> None:
    """Raise ValueError if `source` is no file, folder or name that documents could be read from."""
    path = Path(source)
    if path.is_file():
        if path.suffix.lower() not in FILES:
            raise ValueError(f"--corpus {short(source)} ends in {path.suffix!r}: choose one of {list(FILES)}")
    elif not is_imported(source):
        from repro.interop.arguments import check_suite

        check_suite(source)


def read_documents(source: str, progress: Progress = print) -> Documents:
    """Return the distinct documents of a corpus, and print their number. Empty texts are skipped and counted.

    Raises:
        ValueError: if the corpus does not exist, if no column holds documents, or if all texts are empty.
    """
    path, collections = Path(source), 1
    if path.is_file():
        found = list(_get_texts_of_file(path))
    elif is_beir(path):
        found = list(read_texts(path / "corpus.jsonl", DOCUMENT).values())
    else:
        found, collections = _texts_of_suite(source, progress)
    kept = list(dict.fromkeys(text for text in found if text.strip()))
    if not kept:
        raise ValueError(f"--corpus {short(source)} has no document that is not empty")
    num_empty = sum(not text.strip() for text in found)
    num_repeated = len(found) - num_empty - len(kept)
    progress(f"{count_noun(len(kept), 'document')} of {source}; skipped: {num_empty} empty, {num_repeated} repeated")
    return Documents(path.resolve().name if path.exists() else source, kept, collections)


def _texts_of_suite(source: str, progress: Progress) -> tuple[list[str], int]:
    """Return the documents of every collection of a suite; of an imported corpus, of its training pairs, too."""
    from repro.data.own.imported import SET_APART_FILE, TRAIN_FILE, find_imported
    from repro.evaluate.collections import read_collections
    from repro.interop.opening import open_suite
    from repro.pipeline.corpora import make_corpus_stage

    found: list[str] = []
    imported = is_imported(source) and not Path(source).is_dir()
    if imported and not find_imported(source).only_evaluates:
        folder = make_corpus_stage(find_imported(source).corpus).build(progress)
        for path in filter(Path.is_file, (folder / TRAIN_FILE, folder / SET_APART_FILE)):
            pairs = read_pairs(path)
            found += pairs.texts("document", np.arange(len(pairs)))
    collections = read_collections(open_suite(source, progress))
    for one in collections.values():
        found += one.retrieval.documents
    return found, 1 if imported else len(collections)


def _get_texts_of_file(path: Path) -> Iterator[str]:
    ending = path.suffix.lower()
    if ending == ".txt":
        yield from (line.strip() for _, line in iter_lines(path))
    elif ending == ".jsonl":
        for number, row in list_json_rows(path):
            yield _text_of_row(row, f"{path}, line {number}")
    else:
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = csv.DictReader(file, delimiter="\t" if ending == ".tsv" else ",", strict=True)
            try:
                for row in rows:
                    yield _text_of_row(row, f"{path}, line {rows.line_num}")
            except (csv.Error, UnicodeDecodeError) as error:
                raise ValueError(f"{path}, line {rows.line_num + 1}: malformed ({error})") from error


def _text_of_row(row: Mapping[str, Any], where: str) -> str:
    """Return the document of a row, after its title if it has one, as in a BEIR folder."""
    names = [str(name) for name in row]
    column = Columns().present(names).get("document")
    if column is None:
        accepted = list(Columns().accepted("document"))
        raise ValueError(f"{where}: no column for the document: found {short(names, 200)}, accepted {accepted}")
    parts = [row[name] for name in ("title", column) if name in row and row[name] is not None]
    if not all(isinstance(part, str) for part in parts):
        raise ValueError(f"{where}: {column!r} holds {short(repr(row[column]))}, expected a text")
    return " ".join(parts).strip()
