"""External corpora and suites: imported ones, and local copies of the paper's data."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from repro.data.own.imported import find_imported, list_imported_corpora, make_builder
from repro.data.pairs import write_pairs
from repro.data.paper.benchmarks import SUITES, check_suite, make_suite
from repro.data.paper.hub import SOURCES, get_local_copy, load_source
from repro.data.paper.local_copies import compute_version, resolve_sources
from repro.spec import MTEB_SUITES
from repro.storage.paths import is_imported


@dataclass(frozen=True)
class ExternalCorpus:
    """A corpus with local files.

    Attributes:
        make: Writes training pairs and suites to a folder.
        origin: A digest of everything that decides the content.
        suites: Names of its suites.
    """

    make: Callable[[Path], None]
    origin: str
    suites: tuple[str, ...]


def find_external_corpus(name: str) -> ExternalCorpus | None:
    """Return a corpus by name, or None if it is unknown.

    Raises:
        ValueError: if it is known but its files are missing. The message explains how to get them.
    """
    if is_imported(name):
        corpus = find_imported(name)
        return ExternalCorpus(
            make=make_builder(corpus),
            origin=corpus.origin,
            suites=(corpus.name,),
        )
    if name in SOURCES:
        get_local_copy(name)
        return ExternalCorpus(
            make=lambda path: _write_source(name, path),
            origin=_compute_origin(name),
            suites=(),
        )
    if name in SUITES:
        check_suite(name)
        return ExternalCorpus(
            make=lambda folder: make_suite(name, folder / "suites" / name),
            origin=_compute_origin(name),
            suites=(name,),
        )
    return None


def find_corpus_of_suite(suite: str) -> str | None:
    """Return the corpus of a suite, or None if it is unknown. ValueError if it is known but its files are missing."""
    if suite in SUITES:
        check_suite(suite)
        return suite
    return find_imported(suite).corpus if is_imported(suite) else None


def list_external_corpora() -> list[str]:
    """Return the names of all external corpora."""
    return [*SOURCES, *list_imported_corpora()]


def list_external_suites() -> list[str]:
    """Return the names of all external suites."""
    return [*SUITES, *MTEB_SUITES, *list_imported_corpora()]


def _write_source(name: str, folder: Path) -> None:
    num_pairs = write_pairs(folder / "train.arrow", load_source(name), with_negatives=True)
    (folder / "report.json").write_text(json.dumps({"num_pairs": num_pairs}) + "\n", encoding="utf-8")


def _compute_origin(name: str) -> str:
    text = json.dumps([name, [compute_version(source) for source in resolve_sources(name)]])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
