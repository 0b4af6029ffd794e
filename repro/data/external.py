"""External corpora and suites, not made here: imported ones, local copies of the paper's, and how to get those."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from repro.data.own.imported import content_files, imported_corpora, imported_named, is_imported, maker_of
from repro.data.pairs import write_pairs
from repro.data.paper.benchmarks import SUITES, check_suite, make_suite
from repro.data.paper.hub import SOURCES, load_source, local_copy, pair_files
from repro.data.paper.local_copies import origin_of, parts_of
from repro.data.readers import size_when_read
from repro.spec import MTEB_SUITES
from repro.storage.paths import data_folder


@dataclass(frozen=True)
class ExternalCorpus:
    """A corpus whose files somebody has put here: how training pairs and suites are made of them."""

    make: Callable[[Path], None]
    origin: str  # a digest of all that decides the content
    suites: tuple[str, ...]
    num_bytes: Callable[[], int]
    """About what it will take on disk."""


def external_corpus(name: str) -> ExternalCorpus | None:
    """Return a corpus by name; None when nobody knows it. ValueError when it is known and not here: how to get it."""
    if is_imported(name):
        corpus = imported_named(name)
        return ExternalCorpus(
            maker_of(corpus), corpus.origin, (corpus.name,), lambda: size_when_read(*content_files(corpus.folder))
        )
    if name in SOURCES:
        copy = local_copy(name, data_folder())
        return ExternalCorpus(_pairs_of(name), _origin(name), (), lambda: size_when_read(*pair_files(copy)))
    if name in SUITES:
        check_suite(name, data_folder())
        return ExternalCorpus(_suite_of(name), _origin(name), (name,), lambda: 0)
    return None


def holder_of(suite: str) -> str | None:
    """Return the corpus that holds a suite; None when nobody knows it. ValueError when it is known and not here."""
    if suite in SUITES:
        check_suite(suite, data_folder())
        return suite
    return imported_named(suite).corpus if is_imported(suite) else None


def external_corpora() -> list[str]:
    """Return the corpora that could be meant."""
    return [*SOURCES, *imported_corpora()]


def external_suites() -> list[str]:
    """Return the suites that could be meant."""
    return [*SUITES, *MTEB_SUITES, *imported_corpora()]


def _pairs_of(name: str) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        num_pairs = write_pairs(folder / "train.arrow", load_source(name, data_folder()), with_negatives=True)
        (folder / "report.json").write_text(json.dumps({"num_pairs": num_pairs}) + "\n", encoding="utf-8")

    return make


def _suite_of(name: str) -> Callable[[Path], None]:
    return lambda folder: make_suite(name, data_folder(), folder / "suites" / name)


def _origin(name: str) -> str:
    text = json.dumps([name, [origin_of(part) for part in parts_of(name)]])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
