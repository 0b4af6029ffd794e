"""Results kept for each collection and context, so that a killed evaluation goes on where it was.

Each is a file of its own, written by rename and named by all that decides the scores: the system, the collection's
content and how it is scored, and the corpus, count and seed of the context. The TREC run beside it must be the same
file, too: another evaluation into the same folder may have replaced it.

Shapes: Q queries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.data.beir import Retrieval
from repro.evaluate.collections import Collection
from repro.storage.atomic import whole_file
from repro.storage.digests import sha256_of

RECIPE = 1
"""Version of how a collection is searched and measured; raise it when the same vectors would get other scores."""


@dataclass(frozen=True)
class Found:
    """What one system found in one collection: each measure of every query, float32 (Q,), and how that came about."""

    values: Mapping[str, np.ndarray]
    provenance: Mapping[str, Any]  # of the context or of the parameters; empty where there is neither


@dataclass(frozen=True)
class Kept:
    """The results of one system; `system` is all that decides its vectors or scores, as plain values."""

    folder: Path
    system: Mapping[str, Any]

    def path(self, collection: Collection, kind: str, source: Retrieval | None) -> Path:
        """Return where the result under a context lies, which is drawn from `source` (None: from no corpus)."""
        decides = {
            "recipe": RECIPE,
            "system": dict(self.system),
            "kind": kind,
            "collection": content_digest(collection.retrieval),
            "quirks": repr(collection.quirks),
            "source": None if source is None else content_digest(source),
        }
        key = hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:12]
        return self.folder / f"{collection.retrieval.name}-{kind}-{key}.json"

    def read(self, path: Path, run: Path) -> Found | None:
        """Return what was kept; None when there is nothing, or when the TREC run beside it is another one."""
        if not path.is_file() or not run.is_file():
            return None
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            values = {name: np.array(one, dtype=np.float32) for name, one in content["values"].items()}
            same = content["run_sha256"] == sha256_of(run)
        except (ValueError, KeyError, AttributeError):
            return None  # not ours or damaged: it is made again
        return Found(values, content["provenance"]) if same else None

    def write(self, path: Path, run: Path, found: Found) -> None:
        """Keep a result whose TREC run was just written."""
        values = {name: [float(value) for value in one] for name, one in found.values.items()}
        content = {"values": values, "provenance": dict(found.provenance), "run_sha256": sha256_of(run)}
        with whole_file(path) as part:
            part.write_text(json.dumps(content) + "\n", encoding="utf-8")


def content_digest(retrieval: Retrieval) -> str:
    """Return sixteen hex digits of a collection's name, ids, texts and judgements."""
    found = hashlib.sha256(retrieval.name.encode())
    for words in (retrieval.document_ids, retrieval.documents, retrieval.query_ids, retrieval.queries):
        found.update(json.dumps(words).encode())
    judged = {query: dict(grades) for query, grades in retrieval.judgements.items()}
    found.update(json.dumps(judged, sort_keys=True).encode())
    return found.hexdigest()[:16]
