"""Build evaluation collections from held-out rows, such that no unjudged document is relevant.

The rules for one collection, in this order:

1. Documents with the same normal form are one document, with id and text of the first row.
2. At most `max_documents` documents stay, those with the lowest hash of their id.
3. A query of two documents of the domain is ambiguous. It is dropped, and both documents stay.
4. If the word sets of two documents have a Jaccard index of at least `near_duplicate`, their queries are dropped. The
   documents stay.
5. Each relevant document keeps its first unambiguous query. At most `max_queries` queries stay, in the order of the
   hash.

All removals are counted. Users' own corpora have two different rules. With `several_answers`, an ambiguous query stays,
and all its searched documents are relevant. Without a threshold, rule 4 does not apply: near-duplicates in the finished
collection are only counted (`count_near_duplicates`).
"""

from __future__ import annotations

import hashlib
import math
from array import array
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from scipy import sparse

from repro.data.beir import Retrieval
from repro.data.pairs import Row
from repro.data.wording import keep_words

NEAR_DUPLICATE = 0.8
"""Jaccard index of the word sets of two documents from which they are near-duplicates."""


@dataclass(frozen=True)
class SuiteRules:
    """Rules of evaluation collections.

    Attributes:
        max_documents: Largest number of documents.
        max_queries: Largest number of queries.
        near_duplicate: Threshold of the Jaccard index. None keeps the queries of near-duplicates, since a corpus of form
            letters would have no others. A threshold needs the form `keep_words`.
        several_answers: Keep queries of several documents.
        form: The normal form. Texts with the same form are equal.
    """

    max_documents: int = 500
    max_queries: int = 400
    near_duplicate: float | None = NEAR_DUPLICATE
    several_answers: bool = False
    form: Callable[[str], str] = keep_words


@dataclass(frozen=True)
class Collection:
    """A collection, and the counts of removals by the rules."""

    retrieval: Retrieval
    counts: dict[str, int]


def build_collection(name: str, rows: Sequence[Row], rules: SuiteRules) -> Collection:
    """Apply the rules of this module to the rows of one domain. Raises ValueError if no query is left."""
    form = rules.form
    documents: dict[str, list[Row]] = defaultdict(list)
    answers: dict[str, set[str]] = defaultdict(set)
    for row in rows:
        key = form(row.document)
        documents[key].append(row)
        answers[form(row.query)].add(key)
    ambiguous = {query for query, keys in answers.items() if len(keys) > 1}
    # By hash: a random choice that is the same on every machine.
    chosen = sorted(documents, key=lambda key: _hash(documents[key][0].id))[: rules.max_documents]
    near_duplicates: set[str] = set()
    if rules.near_duplicate is not None:
        near_duplicates = set(compress(chosen, has_near_duplicate(chosen, rules.near_duplicate)))
    # the ambiguous queries that are not asked yet
    shared = set(ambiguous) if rules.several_answers else set()
    queries: list[tuple[list[str], Row]] = []
    counts = {"num_ambiguous": 0, "num_near_duplicate": 0}
    for key in chosen:
        # the first unambiguous query, or else the first shared one
        unambiguous = (row for row in documents[key] if form(row.query) not in ambiguous)
        asked = next(unambiguous, None) or next((row for row in documents[key] if form(row.query) in shared), None)
        if asked is None:
            counts["num_ambiguous"] += not rules.several_answers
            continue
        query = form(asked.query)
        relevant = [other for other in chosen if other in answers[query]] if query in shared else [key]
        # A query with several documents is asked once.
        shared.discard(query)
        is_unique = near_duplicates.isdisjoint(relevant)
        counts["num_near_duplicate"] += not is_unique
        if is_unique:
            queries.append(([documents[other][0].id for other in relevant], asked))
    if not queries:
        raise ValueError(
            f"the collection {name!r} has no query left of {len(rows)} rows: {counts['num_ambiguous']} are asked of several "
            f"documents, {counts['num_near_duplicate']} have a near-duplicate ({100 * (rules.near_duplicate or 1):.0f} % of "
            "their words): widen its domains"
        )
    retrieval = _to_retrieval(name, [documents[key][0] for key in chosen], queries[: rules.max_queries])
    sizes = {"num_documents": len(chosen), "num_queries": len(retrieval.query_ids)}
    return Collection(retrieval, sizes | counts | {"num_merged": len(rows) - len(documents)})


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


def count_near_duplicates(retrieval: Retrieval, threshold: float = NEAR_DUPLICATE) -> int:
    """Return the number of queries with an unjudged near-duplicate of a relevant document."""
    rows = {document_id: row for row, document_id in enumerate(retrieval.document_ids)}
    matrix = _make_word_matrix([keep_words(text) for text in retrieval.documents])
    by_word = matrix.tocsc()
    sizes = np.diff(matrix.indptr)
    num_documents = np.diff(by_word.indptr)

    def find(row: int) -> set[int]:
        words = matrix.indices[matrix.indptr[row] : matrix.indptr[row + 1]]
        # A near-duplicate lacks at most `num_rare` − 1 of the words, so it has one of the `num_rare` rarest.
        num_rare = len(words) - math.ceil(threshold * len(words) - 1e-9) + 1
        rarest = words[np.argsort(num_documents[words], kind="stable")[:num_rare]]
        candidates = np.unique(by_word[:, rarest].indices)
        num_shared = np.asarray(matrix[candidates][:, words].sum(axis=1)).ravel()
        jaccard = num_shared / (sizes[candidates] + len(words) - num_shared)
        return set(candidates[jaccard >= threshold].tolist())

    num_queries = 0
    for grades in retrieval.judgements.values():
        judged = {rows[document_id] for document_id in grades}
        relevant = (rows[document_id] for document_id, grade in grades.items() if grade > 0)
        num_queries += any(sizes[row] and find(row) - judged for row in relevant)
    return num_queries


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


def _to_retrieval(name: str, documents: Sequence[Row], queries: Sequence[tuple[list[str], Row]]) -> Retrieval:
    """Return the collection of these documents and queries. Each query comes with the ids of its relevant documents."""
    return Retrieval(
        name=name,
        document_ids=tuple(row.id for row in documents),
        documents=tuple(row.document for row in documents),
        query_ids=tuple(f"q:{row.id}" for _, row in queries),
        queries=tuple(row.query for _, row in queries),
        judgements={f"q:{row.id}": dict.fromkeys(relevant, 1) for relevant, row in queries},
    )
