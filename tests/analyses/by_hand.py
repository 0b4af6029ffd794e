"""Hand-made inputs: a few pairs with texts, a suite of tiny collections, and models whose rankings are known."""

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
    """Pairs whose texts and domains are given. The default text of a document is `document NUMBER`."""

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
        """Return all texts of a side in blocks."""
        rows = np.arange(len(self))
        return (self.texts(side, rows[start : start + size]) for start in range(0, len(self), size))


def make_inputs(run: Run, **parts: object) -> Inputs:
    """Return inputs that only have these parts."""
    return cast(Inputs, SimpleNamespace(run=run, **parts))


def make_collection(name: str, documents: Sequence[str], relevant: Sequence[int]) -> Retrieval:
    """Return a collection whose query n has the text `NAME asks n` and the relevant document relevant[n]."""
    ids = tuple(f"{name}-d{row}" for row in range(len(documents)))
    queries = tuple(f"{name}-q{number}" for number in range(len(relevant)))
    texts = tuple(f"{name} asks {number}" for number in range(len(relevant)))
    judgements = {query: {ids[row]: 1} for query, row in zip(queries, relevant, strict=True)}
    return Retrieval(name, ids, tuple(documents), queries, texts, judgements)


def make_numbered_collection(name: str, num_documents: int, relevant: Sequence[int]) -> Retrieval:
    """Return a collection whose document n has the text `NAME text n`."""
    return make_collection(name, [f"{name} text {number}" for number in range(num_documents)], relevant)


def write_collections(folder: Path, *collections: Retrieval) -> Suite:
    """Write collections, each its own family, and return their suite."""
    for collection in collections:
        write_beir_folder(folder / collection.name, collection)
    names = [collection.name for collection in collections]
    return Suite("desk", tuple(SuiteDataset(name, f"family {name}", folder / name) for name in names))


def compute_ndcg(queries: np.ndarray, documents: np.ndarray, relevant: Sequence[int]) -> float:
    """Return the mean NDCG@10 of ranking by cosine, if query n has one relevant document relevant[n]."""
    queries, documents = (side / np.linalg.norm(side, axis=1, keepdims=True) for side in (queries, documents))
    scores = queries.astype(np.float64) @ documents.astype(np.float64).T
    ranks = [int((row > row[own]).sum()) for row, own in zip(scores, relevant, strict=True)]
    return float(np.mean([1 / np.log2(rank + 2) if rank < 10 else 0.0 for rank in ranks]))


class Ranker:
    """A model that ranks documents by the number at the end of their text. A rival context reverses the order.

    Vectors are angles. A query is at 0 and a document at a small angle that grows with its number. A text without a
    number is at 0, too.
    """

    def __init__(self) -> None:
        self.rival = False

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Store whether the context is from the rival corpus."""
        self.rival = bool(texts) and str((texts or [""])[0]).startswith("rival")

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return unit vectors (N, 2)."""
        ends = [(text.split() or [""])[-1] for text in texts]
        numbers = np.array([float(end) if prompt == "document" and end.isdecimal() else 0.0 for end in ends])
        backwards = self.rival and prompt == "document" and not texts[0].startswith("rival")
        angles = 0.1 * (numbers.max() + 1 - numbers if backwards else numbers)
        return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


class ContextBlindRanker(Ranker):
    """A ranker that ignores its context."""

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Do nothing."""


class RandomVectors:
    """A model whose unit vectors of 32 dimensions are drawn from the text, the prompt and the context."""

    def __init__(self) -> None:
        self.context: Sequence[str] = ()
        self.num_texts = 0

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Store the context documents."""
        self.context = texts or ()

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return unit vectors (N, 32) and count the texts."""
        self.num_texts += len(texts)
        seen = "".join(self.context) + prompt
        rows = [np.random.default_rng([*f"{seen}{text}".encode()]).normal(size=32) for text in texts]
        return (np.array(rows) / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
