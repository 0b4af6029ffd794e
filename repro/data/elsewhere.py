"""Corpora and suites that are not made here: imported ones, local copies of the paper's, and how to get those."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from repro.data.imported import imported_corpora, imported_named, is_imported, maker_of


@dataclass(frozen=True)
class Brought:
    """A corpus whose files somebody has put here: how training pairs and suites are made of them."""

    make: Callable[[Path], None]
    origin: str  # a digest of all that decides the content
    suites: tuple[str, ...]


def brought(name: str) -> Brought | None:
    """Gives a corpus by name; None when nobody knows it. ValueError when it is known and not here: how to get it."""
    if is_imported(name):
        corpus = imported_named(name)
        return Brought(maker_of(corpus), corpus.origin, (corpus.name,))
    return None


def holder_of(suite: str) -> str | None:
    """Gives the corpus that holds a suite; None when nobody knows it. ValueError when it is known and not here."""
    return imported_named(suite).corpus if is_imported(suite) else None


def names_elsewhere() -> list[str]:
    """Gives the corpora that could be meant."""
    return list(imported_corpora())
