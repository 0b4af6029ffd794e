"""Documents of the searched corpus: an imported corpus, a BEIR folder, a jsonl file, or a suite by its name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from repro.storage.digests import noted_digests
from repro.storage.files import json_object
from repro.storage.paths import get_corpora_folder, home
from repro.text import short

IDS = ("_id", "id", "doc_id", "docid")
TEXTS = ("text", "document", "contents", "content", "passage", "positive", "pos", "answer", "body")


@dataclass(frozen=True)
class SearchedCorpus:
    """A corpus: its name, its kind ("imported", "beir", "jsonl" or "suite"), and a digest of its content."""

    name: str
    kind: str
    digest: str
    path: Path


def find_corpus(source: str) -> SearchedCorpus:
    """Find a corpus by its path or name. Raises ValueError if it is of none of the four kinds."""
    path = Path(source)
    if path.is_dir():
        if not (path / "corpus.jsonl").is_file():
            raise ValueError(f"--corpus {short(path)}: this folder holds no corpus.jsonl, so it is no BEIR folder")
        return SearchedCorpus(path.resolve().name, "beir", _compute_digest(path / "corpus.jsonl"), path.resolve())
    if path.is_file():
        return SearchedCorpus(path.name, "jsonl", _compute_digest(path), path.resolve())
    bare = source.partition("@")[0]
    if "/" not in bare and (get_corpora_folder() / bare / "corpus.json").is_file():
        folder = get_corpora_folder() / bare
        return SearchedCorpus(bare, "imported", str(json_object(folder / "corpus.json").get("digest")), folder)
    if "/" in source or "." in source:
        raise ValueError(f"--corpus {short(source)}: no such file or folder")
    from repro.pipeline.corpora import make_searched_stage
    from repro.spec import base

    stage = make_searched_stage(base("smoke", suite=source))
    return SearchedCorpus(source, "suite", stage.path.name, stage.path)


def read_documents(corpus: SearchedCorpus) -> dict[str, str]:
    """Return the text of each document by its id. Equal texts of an imported corpus are one document."""
    if corpus.kind == "beir":
        from repro.data.beir import DOCUMENT, read_texts

        return read_texts(corpus.path / "corpus.jsonl", DOCUMENT)
    if corpus.kind == "jsonl":
        return dict(_iter_rows(corpus.path))
    return _read_imported(corpus) if corpus.kind == "imported" else _read_suite(corpus.name)


def _compute_digest(path: Path) -> str:
    note = home() / "digests" / f"{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:16]}.json"
    return noted_digests(path.parent, [path], note)[path.name]


def _iter_rows(path: Path) -> Iterator[tuple[str, str]]:
    from repro.data.lines import list_json_rows

    seen: set[str] = set()
    for number, row in list_json_rows(path):
        where = f"{path}, line {number}"
        parts = [row[name] for name in ("title", *TEXTS) if isinstance(row.get(name), str)][:2]
        if not any(isinstance(row.get(name), str) for name in TEXTS):
            raise ValueError(f"{where}: no text; expected one of the fields {list(TEXTS)}, found {short(sorted(row))}")
        key = str(next((row[name] for name in IDS if row.get(name) is not None), number))
        if key in seen:
            raise ValueError(f"{where}: the id {short(key)} occurs twice")
        seen.add(key)
        text = parts[:2] if isinstance(row.get("title"), str) else parts[:1]
        yield key, " ".join(filter(None, text)).strip()


def _read_imported(corpus: SearchedCorpus) -> dict[str, str]:
    from repro.data.own.imported import GIVEN_FOLDER, IMPORT_FOLDER
    from repro.data.own.importing import PAIRS_FILE
    from repro.data.pairs import read_pairs

    found: dict[str, str] = {}
    pairs = corpus.path / IMPORT_FOLDER / PAIRS_FILE
    if pairs.is_file():
        place = 0
        for block in read_pairs(pairs).blocks("document"):
            for text in block:
                place += 1
                found.setdefault(text, f"pair-{place}")
    if (corpus.path / GIVEN_FOLDER).is_dir():
        from repro.data.beir import load_suite

        for key, text in _iter_documents(load_suite(corpus.path / GIVEN_FOLDER)):
            found.setdefault(text, key)
    return {key: text for text, key in found.items()}


def _read_suite(name: str) -> dict[str, str]:
    from repro.interop.opening import open_suite

    return dict(_iter_documents(open_suite(name)))


def _iter_documents(suite: object) -> Iterator[tuple[str, str]]:
    from repro.data.beir import Suite, load_dataset

    assert isinstance(suite, Suite)
    for dataset in suite.datasets:
        collection, _ = load_dataset(dataset)
        ahead = f"{dataset.name}/" if len(suite.datasets) > 1 else ""
        for key, text in zip(collection.document_ids, collection.documents, strict=True):
            yield f"{ahead}{key}", text
