"""Filters of training rows: evaluated text, repeated documents and repeated pairs. Removed rows are counted."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

import numpy as np

from repro.data.beir import Retrieval
from repro.data.pairs import Row
from repro.data.repeats import SeenKeys
from repro.data.wording import normalise

ROWS_PER_LOOK = 8_192
EVALUATED_NEGATIVES = "evaluated_negatives"
"""Key of the count of removed negatives. All other keys count rows."""


class EvaluatedTexts:
    """Documents and queries of evaluation collections, in a normalised form."""

    def __init__(self, collections: Iterable[Retrieval] = (), form: Callable[[str], str] = normalise) -> None:
        self.form = form
        self.documents: set[str] = set()
        self.queries: set[str] = set()
        for collection in collections:
            self.documents.update(map(form, collection.documents))
            self.queries.update(map(form, collection.queries))

    def has_text_of(self, row: Row) -> bool:
        """Return whether the row's document or query is an evaluated document or query."""
        return self.form(row.document) in self or self.form(row.query) in self

    def __bool__(self) -> bool:
        return bool(self.documents or self.queries)

    def __contains__(self, normalised: str) -> bool:
        return normalised in self.documents or normalised in self.queries


def drop_evaluated(
    rows: Iterable[Row], evaluated: EvaluatedTexts, removed: Counter[str], *, cut: Callable[[Row], Row] | None = None
) -> Iterator[Row]:
    """Drop and count rows whose document or query is evaluated, either in full or after `cut`."""
    for row in rows:
        if evaluated.has_text_of(row) or (cut is not None and evaluated.has_text_of(cut(row))):
            removed["evaluated"] += 1
        else:
            yield row


def without_evaluated_negatives(rows: Iterable[Row], evaluated: EvaluatedTexts, removed: Counter[str]) -> Iterator[Row]:
    """Remove and count negatives that are evaluated documents or queries."""
    for row in rows:
        kept = tuple(text for text in row.negatives if evaluated.form(text) not in evaluated)
        if len(kept) == len(row.negatives):
            yield row
        else:
            removed[EVALUATED_NEGATIVES] += len(row.negatives) - len(kept)
            yield row._replace(negatives=kept)


def one_row_per_document(rows: Iterable[Row], removed: Counter[str]) -> Iterator[Row]:
    """Drop and count rows that repeat a document of any domain or a query of the same domain.

    The same query in two domains stays, because its answer depends on the domain.
    """
    documents: set[str] = set()
    queries: set[tuple[str, str]] = set()
    for row in rows:
        document, query = normalise(row.document), (row.domain, normalise(row.query))
        if document in documents:
            removed["repeated_document"] += 1
        elif query in queries:
            removed["repeated_query_in_domain"] += 1
        else:
            documents.add(document)
            queries.add(query)
            yield row


def drop_repeated_pairs(rows: Iterable[Row], removed: Counter[str]) -> Iterator[Row]:
    """Drop and count rows whose normalised (query, document) pair is a repetition."""
    # 64-bit hashes of millions of pairs: strings would take gigabytes, and a collision costs one pair.
    seen, every = SeenKeys(), iter(rows)
    while block := list(islice(every, ROWS_PER_LOOK)):
        keys = compute_pair_keys([normalise(row.query) for row in block], [normalise(row.document) for row in block])
        for row, first in zip(block, seen.tell(keys).tolist(), strict=True):
            removed["repeated_pair"] += not first
            if first:
                yield row


def compute_pair_keys(queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
    """Return a 64-bit hash of each normalised pair, uint64 (N,). It is the same in every process."""
    digests = [
        hashlib.blake2b(f"{query}\n{document}".encode(), digest_size=8).digest()
        for query, document in zip(queries, documents, strict=True)
    ]
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)
