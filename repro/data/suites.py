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
and all its searched documents are relevant, unless one has a near-duplicate. With `keeps_near_duplicates`, rule 4 drops
nothing and only counts.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from scipy import sparse

from repro.data.beir import Retrieval
from repro.data.pairs import Row
from repro.data.wording import keep_words


@dataclass(frozen=True)
class SuiteRules:
    """Rules of evaluation collections.

    Attributes:
        max_documents: Largest number of documents.
        max_queries: Largest number of queries.
        near_duplicate: Threshold of the Jaccard index.
        several_answers: Keep queries of several documents.
        keeps_near_duplicates: Keep queries of near-duplicates. A corpus of form letters would have no others.
        form: The normal form. Texts with the same form are equal.
    """

    max_documents: int = 500
    max_queries: int = 400
    near_duplicate: float = 0.8
    several_answers: bool = False
    keeps_near_duplicates: bool = False
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
    texts = chosen if form is keep_words else [keep_words(key) for key in chosen]
    near_duplicates = set(compress(chosen, has_near_duplicate(texts, rules.near_duplicate)))
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
        is_kept = is_unique or (rules.keeps_near_duplicates and len(queries) < rules.max_queries)
        # The kept queries are counted if the rule keeps near-duplicates, otherwise the dropped ones.
        counts["num_near_duplicate"] += not is_unique and is_kept == rules.keeps_near_duplicates
        if is_kept:
            queries.append(([documents[other][0].id for other in relevant], asked))
    if not queries:
        raise ValueError(
            f"the collection {name!r} has no query left of {len(rows)} rows: {counts['num_ambiguous']} are asked of several "
            f"documents, {counts['num_near_duplicate']} have a near-duplicate ({100 * rules.near_duplicate:.0f} % of their "
            "words): widen its domains"
        )
    retrieval = _to_retrieval(name, [documents[key][0] for key in chosen], queries[: rules.max_queries])
    sizes = {"num_documents": len(chosen), "num_queries": len(retrieval.query_ids)}
    return Collection(retrieval, sizes | counts | {"num_merged": len(rows) - len(documents)})


def has_near_duplicate(documents: Sequence[str], threshold: float) -> np.ndarray:
    """Return which normalised documents have a Jaccard index of at least `threshold` with another one, bool (N,)."""
    vocabulary: dict[str, int] = {}
    word_sets = [{vocabulary.setdefault(word, len(vocabulary)) for word in text.split()} for text in documents]
    sizes = np.array([len(word_set) for word_set in word_sets])
    columns = np.fromiter((word for word_set in word_sets for word in word_set), dtype=np.int64, count=int(sizes.sum()))
    row_starts = np.concatenate([[0], np.cumsum(sizes)])
    shape = (len(documents), len(vocabulary))
    matrix = sparse.csr_matrix((np.ones(len(columns), np.float32), columns, row_starts), shape=shape)
    # the product of a binary document-word matrix with itself counts shared words
    num_shared = (matrix @ matrix.T).toarray()
    # |A ∪ B| = |A| + |B| − |A ∩ B|. The lower bound covers two empty documents.
    jaccard = num_shared / np.maximum(sizes[:, None] + sizes[None, :] - num_shared, 1)
    np.fill_diagonal(jaccard, 0.0)
    return jaccard.max(axis=1, initial=0.0) >= threshold


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
