"""Filters of training rows: evaluated text, repeated documents and repeated pairs."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from repro.data.beir import Retrieval
from repro.data.pairs import Row
from repro.data.wording import identify_text, keep_words

ROWS_PER_BLOCK = 8_192


class EvaluatedTexts:
    """Documents and queries of evaluation collections, in a normalised form."""

    def __init__(self, collections: Iterable[Retrieval] = ()) -> None:
        self._texts: set[str] = set()
        for collection in collections:
            self.add(collection)

    def add(self, collection: Retrieval) -> None:
        """Add the documents and queries of one more collection."""
        self._texts.update(map(keep_words, (*collection.documents, *collection.queries)))

    def contains_text(self, row: Row) -> bool:
        """Return whether the row's document or query is an evaluated document or query."""
        return keep_words(row.document) in self._texts or keep_words(row.query) in self._texts


def drop_evaluated_rows(
    rows: Iterable[Row], evaluated: EvaluatedTexts, cut: Callable[[Row], Row] | None = None
) -> Iterator[Row]:
    """Drop rows whose document or query is evaluated, either in full or after `cut`."""
    for row in rows:
        # A query may equal an evaluated one only after it is shortened.
        if not (evaluated.contains_text(row) or (cut is not None and evaluated.contains_text(cut(row)))):
            yield row


def drop_repeated_documents(rows: Iterable[Row]) -> Iterator[Row]:
    """Drop rows that repeat a document of any domain or a query of the same domain.

    The same query in two domains stays, because its answer depends on the domain.
    """
    documents: set[str] = set()
    queries: set[tuple[str, str]] = set()
    for row in rows:
        document, query = keep_words(row.document), (row.domain, keep_words(row.query))
        if document not in documents and query not in queries:
            documents.add(document)
            queries.add(query)
            yield row


def drop_repeated_pairs(rows: Iterable[Row]) -> Iterator[Row]:
    """Drop rows whose normalised (query, document) pair is a repetition."""
    # 64-bit hashes of millions of pairs: strings would take gigabytes, and a collision costs one pair.
    seen, iterator = SeenKeys(), iter(rows)
    while block := list(itertools.islice(iterator, ROWS_PER_BLOCK)):
        keys = _hash(f"{keep_words(row.query)}\n{keep_words(row.document)}" for row in block)
        yield from itertools.compress(block, seen.add(keys).tolist())


def hash_texts(texts: Iterable[str]) -> np.ndarray:
    """Return a 64-bit hash of the identity of each text, uint64 (N,). It is the same in every process."""
    return _hash(map(identify_text, texts))


def _hash(texts: Iterable[str]) -> np.ndarray:
    digests = [hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts]
    return np.frombuffer(b"".join(digests), ">u8").astype(np.uint64)


class SeenKeys:
    """A set of 64-bit keys that grows block by block, with eight bytes per key instead of about eighty in a Python set.

    Keys are stored in sorted runs, each at least twice as long as the next. So a block is searched in a logarithmic
    number of runs, and each key is merged a logarithmic number of times.
    """

    def __init__(self) -> None:
        self._runs: list[np.ndarray] = []

    def add(self, keys_n: np.ndarray) -> np.ndarray:
        """Add a block of keys (uint64). Return which of them are new, bool (n,)."""
        is_first_n = np.zeros(len(keys_n), dtype=bool)
        # the first occurrence of each key within the block
        is_first_n[np.unique(keys_n, return_index=True)[1]] = True
        for run in self._runs:
            # a key after the last one of the run would have an index outside it
            indices_n = np.minimum(np.searchsorted(run, keys_n), len(run) - 1)
            is_first_n &= run[indices_n] != keys_n
        if is_first_n.any():
            self._runs.append(np.sort(keys_n[is_first_n]))
        # Restores the invariant of the class: each run is at least twice as long as the next.
        while len(self._runs) > 1 and len(self._runs[-2]) < 2 * len(self._runs[-1]):
            merged = np.concatenate([self._runs.pop(), self._runs.pop()])
            # finds the two runs and merges them
            merged.sort(kind="stable")
            self._runs.append(merged)
        return is_first_n
