"""An index: the vectors and texts of a corpus under one model and context. Its folder is named by digests of both.

Search is exact: the vector of a query is compared with those of all documents. This module does not load torch.

Shapes: N documents, D size of a vector.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.storage.files import json_object

VERSION = 5
"""Version of an index. Raise it if the same files would give other documents or vectors.

2: columns of a file are found in any case. 3: the column "text" comes before "answer" and others. 4: documents of a
collection of questions have the prompt of queries, as in `evaluate`. 5: vectors of half-precision models of
sentence-transformers are normalised in float32, and texts of an imported corpus that differ in white space or Unicode
form are one document.
"""
SETTINGS_FILE, VECTORS_FILE, TEXTS_FILE = "index.json", "vectors.npy", "documents.jsonl"
# byte offsets of the documents in the file of texts
OFFSETS_FILE = "places.npy"
# context vectors of a contextual model
CONTEXT_FILE = "context.npy"
CONTEXTS = ("own", "null")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class SearchRequest:
    """A request: the model, the searched corpus and the context.

    Attributes:
        model: A run's id, a folder, a hub id, `minilm`, or an imported corpus, which is then searched with the best
            recorded model.
        corpus: The searched corpus. Default: the corpus of the model's run.
        context: "own", "null", or a corpus to draw the context from. Default: "own", or "null" for
            a model trained without documents.
        context_seed: Seed for drawing the context.
    """

    model: str
    corpus: str | None = None
    context: str | None = None
    context_seed: int = 0


@dataclass(frozen=True)
class Found:
    """One retrieved document."""

    rank: int
    score: float
    id: str
    text: str


@dataclass(frozen=True)
class Index:
    """An index in its folder."""

    folder: Path

    @property
    def is_built(self) -> bool:
        """Whether the index is complete."""
        return (self.folder / SETTINGS_FILE).is_file()

    @property
    def settings(self) -> dict[str, Any]:
        """The names of model and corpus, the number of documents, and how the context was drawn."""
        return json_object(self.folder / SETTINGS_FILE)

    def search(self, vector_D: np.ndarray, top: int) -> list[Found]:
        """Return the best documents, best first. Equal scores are in the order of the corpus."""
        vectors_ND = np.load(self.folder / VECTORS_FILE, mmap_mode="r", allow_pickle=False)
        scores_N = vectors_ND @ vector_D
        top = min(top, len(scores_N))
        # Includes all documents that tie with the last one, so that the order of the corpus decides among them.
        best = np.flatnonzero(scores_N >= np.partition(scores_N, -top)[-top])
        best = best[np.lexsort((best, -scores_N[best]))[:top]]
        offsets_N = np.load(self.folder / OFFSETS_FILE, mmap_mode="r", allow_pickle=False)
        hits = []
        with (self.folder / TEXTS_FILE).open("rb") as file:
            for rank, row in enumerate(best, 1):
                file.seek(int(offsets_N[row]))
                document = json.loads(file.readline())
                hits.append(Found(rank, float(scores_N[row]), document["id"], document["text"]))
        return hits
