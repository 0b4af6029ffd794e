"""Cache results per collection and context, so that an interrupted evaluation resumes where it stopped.

Each result is one file, written atomically. Its name contains a digest of everything that decides the scores: the
system, the content of the collection, the scoring rules, and the corpus, size and seed of the context. A result counts
only while its TREC run is unchanged, since another evaluation into the same folder may have replaced the run.

Shapes: Q queries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from repro.data.beir import Retrieval
from repro.evaluate.collections import Collection
from repro.storage.digests import hash_file, hash_json
from repro.storage.files import read_memo, write_memo

RECIPE = 4
"""Version of the search and its measures. Raise it if the same system would get other scores.

3: vectors of half-precision models of sentence-transformers are normalised in float32.
4: a stored result always has its line about ties.
"""
FOLDER = "kept"
"""Name of the cache in the folder of a run, which exists until the run has a record."""
KEY_LENGTH = 12


@dataclass(frozen=True)
class CachedResult:
    """Scores of one system on one collection: each measure per query, float32 (Q,), and their provenance."""

    values: Mapping[str, np.ndarray]
    # of the context or of the BM25 parameters, empty if there is neither
    provenance: Mapping[str, Any]
    ties: str = ""  # one line about ties that decide scores


@dataclass(frozen=True)
class ResultCache:
    """The cached results of one system. `system` holds everything that decides its scores, as plain values."""

    folder: Path
    system: Mapping[str, Any]
    _digests: dict[tuple[str, int], str] = field(default_factory=dict, compare=False)  # each reads all texts once

    def path(self, collection: Collection, kind: str, source: Retrieval | None) -> Path:
        """Return the path of the result under a context drawn from `source` (None: from no corpus)."""
        inputs = {
            "recipe": RECIPE,
            "system": dict(self.system),
            "kind": kind,
            "collection": self._get_digest(collection.retrieval),
            "quirks": repr(collection.rules),
            "source": None if source is None else self._get_digest(source),
        }
        return self.folder / f"{collection.retrieval.name}-{kind}-{hash_json(inputs)[:KEY_LENGTH]}.json"

    def score(self, name: str, inputs: Mapping[str, Any], compute: Callable[[], float]) -> float:
        """Return the number cached under a name and its inputs. Computes and stores it if it is missing."""
        key = hash_json({"recipe": RECIPE, "system": dict(self.system), **inputs})[:KEY_LENGTH]
        path = self.folder / f"{name}-{key}.json"
        stored = read_memo(path, key)
        if stored is None:
            stored = {"score": compute()}
            write_memo(path, key, stored)
        return float(stored["score"])

    def _get_digest(self, retrieval: Retrieval) -> str:
        # Reading all texts takes long, so digests are cached per object.
        key = (retrieval.name, id(retrieval))
        if key not in self._digests:
            self._digests[key] = compute_content_digest(retrieval)
        return self._digests[key]

    def read(self, path: Path, run: Path) -> CachedResult | None:
        """Return a cached result. Returns None if there is none, or if its TREC run has changed."""
        # The file name contains the digest of everything that decides the result, so it serves as the key.
        stored = read_memo(path, path.stem) if run.is_file() else None
        if stored is None or stored["run_sha256"] != hash_file(run):
            return None
        values = {name: np.array(values, dtype=np.float32) for name, values in stored["values"].items()}
        return CachedResult(values, stored["provenance"], stored["ties"])

    def write(self, path: Path, run: Path, result: CachedResult) -> None:
        """Store a result right after its TREC run was written."""
        content = {
            "values": {name: values.tolist() for name, values in result.values.items()},
            "provenance": dict(result.provenance),
            "run_sha256": hash_file(run),
            "ties": result.ties,
        }
        write_memo(path, path.stem, content)


def compute_content_digest(retrieval: Retrieval) -> str:
    """Return sixteen hex digits of a collection's name, ids, texts and judgements."""
    digest = hashlib.sha256(retrieval.name.encode())
    # As lists in JSON, because joined strings would not show where one text ends. Text by text, because one string of
    # millions of texts would take gigabytes.
    for texts in (retrieval.document_ids, retrieval.documents, retrieval.query_ids, retrieval.queries):
        digest.update(b"[")
        for number, text in enumerate(texts):
            digest.update(f"{', ' if number else ''}{json.dumps(text)}".encode())
        digest.update(b"]")
    judgements = {query: dict(grades) for query, grades in retrieval.judgements.items()}
    digest.update(json.dumps(judgements, sort_keys=True).encode())
    return digest.hexdigest()[:16]
