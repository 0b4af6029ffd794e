"""Build evaluation collections from held-out rows, such that no unjudged document is relevant.

The rules for one collection, in this order:

1. Documents with the same normal form are one document, with id and text of the first row.
2. At most `max_documents` documents stay, those with the lowest hash of their id.
3. A query of two documents of the domain is ambiguous. It is dropped, and both documents stay.
4. If the word sets of two documents have a Jaccard index of at least NEAR_DUPLICATE, their queries are dropped. The
   documents stay.
5. Each relevant document keeps its first unambiguous query. At most `max_queries` queries stay, in the order of the
   hash.

The hold-out of users' own corpora has its own rules (`repro.data.own.holdout`).
"""

from __future__ import annotations

import hashlib
from array import array
from collections import defaultdict
from collections.abc import Sequence
from itertools import compress

import numpy as np
from scipy import sparse

from repro.data.beir import Retrieval
from repro.data.pairs import Row
from repro.data.wording import keep_words

NEAR_DUPLICATE = 0.8
"""Jaccard index of the word sets of two documents from which they are near-duplicates."""


def build_collection(name: str, rows: Sequence[Row], *, max_documents: int = 500, max_queries: int = 400) -> Retrieval:
    """Return the collection of the rows of one domain. Raises ValueError if no query is left."""
    documents: dict[str, list[Row]] = defaultdict(list)
    answers: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        key = keep_words(row.document)
        documents[key].append(row)
        answers[keep_words(row.query)].add(key)
    ambiguous = {query for query, keys in answers.items() if len(keys) > 1}
    # By hash: a random choice that is the same on every machine.
    chosen = sorted(documents, key=lambda key: _hash(documents[key][0].id))[:max_documents]
    near_duplicates = set(compress(chosen, has_near_duplicate(chosen, NEAR_DUPLICATE)))
    queries: list[tuple[str, Row]] = []
    for key in chosen:
        asked = next((row for row in documents[key] if keep_words(row.query) not in ambiguous), None)
        if asked is not None and key not in near_duplicates:
            queries.append((documents[key][0].id, asked))
    if not queries:
        raise ValueError(f"the collection {name!r} has no query left of {len(rows)} rows")
    return _to_retrieval(name, [documents[key][0] for key in chosen], queries[:max_queries])


def has_near_duplicate(documents: Sequence[str], threshold: float) -> np.ndarray:
    """Return which normalised documents have a Jaccard index of at least `threshold` with another one, bool (N,)."""
    matrix = _make_word_matrix(documents)
    sizes = np.diff(matrix.indptr)
    # the product of a binary document-word matrix with itself counts shared words
    num_shared = (matrix @ matrix.T).toarray()
    # |A ∪ B| = |A| + |B| − |A ∩ B|. The lower bound covers two empty documents.
    jaccard = num_shared / np.maximum(sizes[:, None] + sizes[None, :] - num_shared, 1)
    np.fill_diagonal(jaccard, 0.0)
    return jaccard.max(axis=1, initial=0.0) >= threshold


def _make_word_matrix(documents: Sequence[str]) -> sparse.csr_matrix:
    """Return which document has which word, float32 (number of documents, number of words)."""
    vocabulary: dict[str, int] = {}
    columns = array("i")
    row_starts = [0]
    for text in documents:
        columns.extend({vocabulary.setdefault(word, len(vocabulary)) for word in text.split()})
        row_starts.append(len(columns))
    shape = (len(documents), len(vocabulary))
    values = np.ones(len(columns), np.float32)
    return sparse.csr_matrix((values, np.frombuffer(columns, np.int32), row_starts), shape=shape)


def _hash(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def _to_retrieval(name: str, documents: Sequence[Row], queries: Sequence[tuple[str, Row]]) -> Retrieval:
    """Return the collection of these documents and queries. Each query comes with the id of its relevant document."""
    return Retrieval(
        name=name,
        document_ids=tuple(row.id for row in documents),
        documents=tuple(row.document for row in documents),
        query_ids=tuple(f"q:{row.id}" for _, row in queries),
        queries=tuple(row.query for _, row in queries),
        judgements={f"q:{row.id}": {relevant: 1} for relevant, row in queries},
    )
