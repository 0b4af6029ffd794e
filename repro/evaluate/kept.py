"""Results kept for each collection and context, so that a killed evaluation goes on where it was.

Each is a file of its own, written by rename and named by all that decides the scores: the system, the collection's
content and how it is scored, and the corpus, count and seed of the context. The TREC run beside it must be the same
file, too: another evaluation into the same folder may have replaced it.

Shapes: Q queries.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from repro.data.beir import Retrieval
from repro.evaluate.collections import Collection
from repro.storage.digests import hash_file
from repro.storage.memo import Memo, are_numbers, get_digest_key

RECIPE = 2
"""Version of how a collection is searched and measured; raise it when the same vectors would get other scores."""
FOLDER = "kept"
"""Where a run's results lie in its folder until it has a record."""
TEXTS_AT_ONCE = 65_536
KEY_LENGTH = 12
Result = TypeVar("Result")


@dataclass(frozen=True)
class Found:
    """What one system found in one collection: each measure of every query, float32 (Q,), and how that came about."""

    values: Mapping[str, np.ndarray]
    provenance: Mapping[str, Any]  # of the context or of the parameters; empty where there is neither
    ties: str = ""  # a line on ties that decide scores


@dataclass(frozen=True)
class Kept:
    """The results of one system; `system` is all that decides its vectors or scores, as plain values."""

    folder: Path
    system: Mapping[str, Any]
    _digests: dict[tuple[str, int], str] = field(default_factory=dict, compare=False)  # each is a look at all texts

    def path(self, collection: Collection, kind: str, source: Retrieval | None) -> Path:
        """Return where the result under a context lies, which is drawn from `source` (None: from no corpus)."""
        decides = {
            "recipe": RECIPE,
            "system": dict(self.system),
            "kind": kind,
            "collection": self._digest(collection.retrieval),
            "quirks": repr(collection.quirks),
            "source": None if source is None else self._digest(source),
        }
        return self.folder / f"{collection.retrieval.name}-{kind}-{get_digest_key(decides, KEY_LENGTH)}.json"

    def score(self, name: str, decides: Mapping[str, Any], score: Callable[[], float]) -> float:
        """Return one number that was kept under a name and all that decides it, or else make and keep it."""
        return self._kept(name, decides, lambda told: float(told["score"]), lambda: {"score": score()})

    def values(
        self, name: str, decides: Mapping[str, Any], find: Callable[[], Mapping[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Return arrays, float32, that were kept under a name and all that decides them, or else find and keep them."""

        def read(told: Any) -> dict[str, np.ndarray]:
            return {one: np.array(values, dtype=np.float32) for one, values in told["values"].items()}

        return self._kept(name, decides, read, lambda: {"values": _plain(find())})

    def _kept(
        self, name: str, decides: Mapping[str, Any], read: Callable[[Any], Result], make: Callable[[], Any]
    ) -> Result:
        key = get_digest_key({"recipe": RECIPE, "system": dict(self.system), **decides}, KEY_LENGTH)
        memo = Memo(self.folder / f"{name}-{key}.json", key)
        with suppress(KeyError, TypeError, ValueError, AttributeError):  # none that can be trusted
            return read(memo.read())
        made = make()
        memo.write(made)
        return read(made)

    def _digest(self, retrieval: Retrieval) -> str:
        place = (retrieval.name, id(retrieval))
        if place not in self._digests:
            self._digests[place] = compute_content_digest(retrieval)
        return self._digests[place]

    def read(self, path: Path, run: Path) -> Found | None:
        """Return what was kept; None if nothing is, or if the TREC run next to it is another one."""
        told = Memo(path, path.stem).read() if run.is_file() else None
        try:
            if told is None or told["run_sha256"] != hash_file(run):
                return None
            lengths = {len(one) for one in told["values"].values()}
            # every measure of a query lies between 0 and 1
            if len(lengths) != 1 or not all(are_numbers(one, low=0.0, high=1.0) for one in told["values"].values()):
                return None
            values = {name: np.array(one, dtype=np.float32) for name, one in told["values"].items()}
            return Found(values, told["provenance"], told.get("ties", ""))
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # not ours or damaged: it is made again

    def write(self, path: Path, run: Path, found: Found) -> None:
        """Keep a result whose TREC run was just written."""
        content = {"values": _plain(found.values), "provenance": dict(found.provenance), "run_sha256": hash_file(run)}
        content |= {"ties": found.ties} if found.ties else {}
        Memo(path, path.stem).write(content)


def _plain(values: Mapping[str, np.ndarray]) -> dict[str, list[float]]:
    return {name: [float(value) for value in one] for name, one in values.items()}


def compute_content_digest(retrieval: Retrieval) -> str:
    """Return sixteen hex digits of a collection's name, ids, texts and judgements."""
    found = hashlib.sha256(retrieval.name.encode())
    for words in (retrieval.document_ids, retrieval.documents, retrieval.query_ids, retrieval.queries):
        for part in _listed(words):
            found.update(part.encode())
    judged = {query: dict(grades) for query, grades in retrieval.judgements.items()}
    found.update(json.dumps(judged, sort_keys=True).encode())
    return found.hexdigest()[:16]


def _listed(words: Sequence[str]) -> Iterator[str]:
    """Return what `json.dumps` writes of the texts, in parts: of millions it would be one string of gigabytes."""
    for start in range(0, max(1, len(words)), TEXTS_AT_ONCE):
        yield (", " if start else "[") + json.dumps(words[start : start + TEXTS_AT_ONCE])[1:-1]
    yield "]"
