"""Inputs made by hand: a few pairs with texts, a suite of tiny collections, a model that knows the answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import numpy as np

from repro.data.beir import Retrieval, Suite, SuiteDataset, write_beir_folder
from repro.pipeline.inputs import Inputs
from repro.spec import Run


class HandMadePairs:
    """Pairs whose texts and domains are given; a document's text is `document NUMBER` unless said otherwise."""

    def __init__(self, domains: Sequence[int], documents: Sequence[str] | None = None) -> None:
        self.domain_codes = self.source_codes = np.array(domains)
        self.domain_names = [f"domain {number}" for number in range(max(domains) + 1)]
        self.documents = list(documents or [f"document {row}" for row in range(len(domains))])

    def __len__(self) -> int:
        return len(self.documents)

    def texts(self, side: str, rows: np.ndarray) -> list[str]:
        """Return the texts of these rows."""
        return [self.documents[row] if side == "document" else f"query {row}" for row in rows]

    def blocks(self, side: str, size: int) -> Iterator[list[str]]:
        """Return all texts of a side, some at a time."""
        rows = np.arange(len(self))
        return (self.texts(side, rows[start : start + size]) for start in range(0, len(self), size))


def inputs_of(run: Run, **parts: object) -> Inputs:
    """Return inputs that have these parts and no others."""
    return cast(Inputs, SimpleNamespace(run=run, **parts))


def collection(name: str, documents: Sequence[str], relevant: Sequence[int]) -> Retrieval:
    """Return a collection whose query number n is `NAME asks n`, answered by the document at place relevant[n]."""
    ids = tuple(f"{name}-d{place}" for place in range(len(documents)))
    queries = tuple(f"{name}-q{number}" for number in range(len(relevant)))
    texts = tuple(f"{name} asks {number}" for number in range(len(relevant)))
    judgements = {query: {ids[place]: 1} for query, place in zip(queries, relevant, strict=True)}
    return Retrieval(name, ids, tuple(documents), queries, texts, judgements)


def suite_of(folder: Path, *collections: Retrieval) -> Suite:
    """Write collections, each a family of its own, and return their suite."""
    for one in collections:
        write_beir_folder(folder / one.name, one)
    return Suite("desk", tuple(SuiteDataset(one.name, f"family {one.name}", folder / one.name) for one in collections))


class Ranker:
    """A model that ranks documents by the number at their text's end, under the context of a rival corpus backwards.

    Vectors are angles: every query stands at 0, a document at a small angle that grows with its number; one that has
    lost its number stands at 0, too.
    """

    def __init__(self) -> None:
        self.rival = False

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Note whether the context is of the rival corpus."""
        self.rival = bool(texts) and str((texts or [""])[0]).startswith("rival")

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return unit vectors (N, 2)."""
        ends = [(text.split() or [""])[-1] for text in texts]
        numbers = np.array([float(end) if prompt == "document" and end.isdecimal() else 0.0 for end in ends])
        backwards = self.rival and prompt == "document" and not texts[0].startswith("rival")
        angles = 0.1 * (numbers.max() + 1 - numbers if backwards else numbers)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)
