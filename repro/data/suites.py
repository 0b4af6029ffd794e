"""Turns held-out rows into evaluation collections whose right answers are the only right answers.

The rules, in this order, for one collection:
1. documents that are the same when normalised are one document; it keeps the first row's id and text;
2. at most `max_documents` documents stay, those whose ids hash lowest;
3. a query asked of two documents of the domain is ambiguous: it is dropped, both documents stay;
4. a document may be a right answer only if no other document of the corpus shares `near_duplicate` of its words
   (Jaccard index of the two word sets); its query is dropped otherwise, the document stays;
5. each right answer keeps its first unambiguous query; at most `max_queries` queries stay, in the order of the hash.
Whatever a rule removes is counted.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import sparse

from repro.data.beir import Retrieval
from repro.data.pairs import Row
from repro.data.wording import normalise


@dataclass(frozen=True)
class SuiteRules:
    """Sizes and the near-duplicate threshold of evaluation collections."""

    max_documents: int = 500
    max_queries: int = 400
    near_duplicate: float = 0.8


@dataclass(frozen=True)
class Collection:
    """A collection and what the rules removed from it."""

    retrieval: Retrieval
    counts: dict[str, int]


def build_collection(name: str, rows: Sequence[Row], rules: SuiteRules) -> Collection:
    """Apply the rules of this module to the rows of one domain; ValueError when no query is left."""
    documents = _merge_documents(rows)
    ambiguous = _ambiguous_queries(rows)
    chosen = sorted(documents, key=lambda key: _hash(documents[key][0].id))[: rules.max_documents]
    near_duplicates = has_near_duplicate(chosen, rules.near_duplicate)
    golds, counts = [], {"num_ambiguous": 0, "num_near_duplicate": 0}
    for key, is_near_duplicate in zip(chosen, near_duplicates, strict=True):
        clear = [row for row in documents[key] if normalise(row.query) not in ambiguous]
        counts["num_ambiguous"] += not clear
        counts["num_near_duplicate"] += bool(clear) and bool(is_near_duplicate)
        if clear and not is_near_duplicate:
            golds.append((documents[key][0].id, clear[0]))
    if not golds:
        raise ValueError(f"the collection {name!r} has no query left of {len(rows)} rows: widen its domains")
    retrieval = _to_retrieval(name, [documents[key][0] for key in chosen], golds[: rules.max_queries])
    sizes = {"num_documents": len(chosen), "num_queries": len(retrieval.query_ids)}
    return Collection(retrieval, sizes | counts | {"num_merged": len(rows) - len(documents)})


def has_near_duplicate(documents: Sequence[str], threshold: float) -> np.ndarray:
    """Say of each normalised document whether another one shares its words to at least `threshold`; bool (N,)."""
    columns: dict[str, int] = {}
    words = [{columns.setdefault(word, len(columns)) for word in document.split()} for document in documents]
    sizes = np.array([len(row) for row in words])
    indices = np.fromiter((column for row in words for column in row), dtype=np.int64, count=int(sizes.sum()))
    starts = np.concatenate([[0], np.cumsum(sizes)])
    table = sparse.csr_matrix((np.ones(len(indices), np.float32), indices, starts), shape=(len(words), len(columns)))
    shared = (table @ table.T).toarray()
    jaccard = shared / np.maximum(sizes[:, None] + sizes[None, :] - shared, 1)
    np.fill_diagonal(jaccard, 0.0)
    return jaccard.max(axis=1, initial=0.0) >= threshold


def _merge_documents(rows: Sequence[Row]) -> dict[str, list[Row]]:
    merged: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        merged[normalise(row.document)].append(row)
    return dict(merged)


def _ambiguous_queries(rows: Sequence[Row]) -> set[str]:
    answers: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        answers[normalise(row.query)].add(normalise(row.document))
    return {query for query, documents in answers.items() if len(documents) > 1}


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _to_retrieval(name: str, documents: Sequence[Row], golds: Sequence[tuple[str, Row]]) -> Retrieval:
    return Retrieval(
        name=name,
        document_ids=tuple(row.id for row in documents),
        documents=tuple(row.document for row in documents),
        query_ids=tuple(f"q:{row.id}" for _, row in golds),
        queries=tuple(row.query for _, row in golds),
        judgements={f"q:{row.id}": {gold: 1} for gold, row in golds},
    )
