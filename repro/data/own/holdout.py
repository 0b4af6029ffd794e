"""Hold-out of a user's own corpus: evaluation collections, and the remaining training pairs.

1. Named domains are held out completely. Without names, a hash of the text selects a tenth of the documents of each of
   the largest domains. If all domains are small, it selects a tenth of all documents. If there are fewer queries than
   documents, it selects a tenth of the queries instead, each with all its documents. A tenth of the documents would be
   relevant to more than a tenth of the queries.
2. Each part becomes a collection by the rules of `repro.data.suites`.
3. Pairs that share a text with a collection are not trained on. Nor are pairs whose document is relevant to a held-out
   query through another pair, unless training would lose more than `MAX_LOST_SHARE` of its pairs. The documents of both
   are removed from the negatives of the other pairs.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from repro.data.beir import Retrieval, get_legal_name
from repro.data.filters import EvaluatedTexts, SeenKeys, drop_evaluated_negatives, drop_evaluated_rows
from repro.data.pairs import Pairs, Row, Side
from repro.data.paper.quirks import Quirks
from repro.data.suites import SuiteRules, build_collection
from repro.data.wording import normalize_loosely, normalize_text
from repro.storage.arrays import iter_blocks
from repro.text import count_noun

FAMILY = "held-out"
ALL = "all"
MAX_DOMAINS = 16
# A domain of this size gives a collection of its own, with twenty documents to search.
MIN_DOMAIN_PAIRS = 200
SHARE = 10  # one document (or query) in ten
SET_APART_SHARE = 20
"""One document (or query) in twenty is set apart, so that training can end early."""
MIN_SET_APART, MAX_SET_APART, SET_APART_FROM = 32, 512, 320
"""Fewest and most documents (or queries) set apart, and the number of them in training from which any are."""
MAX_LOST_SHARE = 0.2
"""Largest share of training pairs that are dropped for the pairs set apart, and for the answers of held-out queries."""
ROWS_PER_READ = 65_536
ANSWERS = "relevant_to_held_out_query"
"""Key of the count of pairs whose document is relevant to a held-out query through another pair."""
MAX_SEARCHED_DOCUMENTS = 200_000
"""Largest number of documents of a collection. BM25 takes about a minute on it."""
RULES = SuiteRules(several_answers=True, near_duplicate=None, form=normalize_text)
"""Rules of the collections: texts are equal if all their characters are."""


def choose_side(pairs: Pairs) -> Side:
    """Return which texts are drawn: queries if there are fewer of them than documents, otherwise documents."""
    return "query" if _count_texts(pairs, "query") < _count_texts(pairs, "document") else "document"


def hold_out(
    pairs: Pairs,
    domains: Sequence[str] = (),
    rules: SuiteRules = RULES,
    side: Side = "document",
) -> list[Retrieval]:
    """Return the evaluation collections of a corpus.

    Memory holds the rows of at most `rules.max_documents` documents per collection, or one row of each of at most
    `rules.max_queries` queries. `extend_to_all_documents` adds the further documents of the queries.

    Args:
        pairs: All pairs of the corpus.
        domains: The domains to hold out. Default: a tenth of the documents or queries.
        rules: Rules of the collections. By default, queries with near-duplicate documents stay.
        side: Which texts are drawn by their hash.

    Raises:
        ValueError: if the corpus lacks a domain, or if a named domain, or the whole corpus, leaves no query.
    """
    unknown = sorted(set(domains) - set(pairs.domain_names))
    if unknown:
        raise ValueError(f"no domain {unknown} to hold out; this corpus has {_format_names(pairs.domain_names)}")
    groups = {name: name for name in domains} or _find_largest_domains(pairs)
    by_query = side == "query"
    max_texts = rules.max_queries if by_query else rules.max_documents
    lowest: dict[str, LowestHashes] = defaultdict(lambda: LowestHashes(max_texts, only_first=by_query))
    for group, key, row in _iter_candidates(pairs, groups, rules.form, side=side, select_all=bool(domains)):
        lowest[group].add(key, row)
    retrievals: list[Retrieval] = []
    errors: list[str] = []
    for group in sorted(lowest):
        name = get_collection_name(group, [retrieval.name for retrieval in retrievals])
        rows = [row for text_rows in lowest[group].rows.values() for row in text_rows]
        try:
            collection = build_collection(name, rows, rules)
        except ValueError as error:
            errors.append(str(error))
            continue
        retrievals.append(collection.retrieval)
    reasons = "; ".join(errors[:3])
    if not retrievals:
        reasons = reasons or f"a hash of the text holds out one {side} in {SHARE}, here none"
        domain = "hold out a whole domain with --hold-out DOMAIN, or " if len(pairs.domain_names) > 1 else ""
        raise ValueError(
            f"nothing can be held out to evaluate on ({reasons}): {domain}give a collection with --evaluate-on FOLDER"
        )
    if domains and errors:
        raise ValueError(f"not all of {list(domains)} can be held out to evaluate on ({reasons}): name others")
    return retrievals


def extend_to_all_documents(
    pairs: Pairs, held_out: Sequence[Retrieval], *, as_one: bool, documents: Pairs | None = None
) -> list[Retrieval]:
    """Extend the collections of `hold_out` from the held-out documents to all documents of the corpus.

    The documents of all pairs of a held-out query are relevant to it. A document of several domains is one document. Of
    more than `MAX_SEARCHED_DOCUMENTS` documents, a hash of the text draws a sample: the first ones would be of few
    domains in a sorted file. Held-out and relevant documents are always included. Memory holds the sample.

    Args:
        pairs: All pairs of the corpus.
        held_out: The collections of `hold_out`.
        as_one: Join all collections to one.
        documents: Rows without a query, whose documents are searched, too.
    """
    found: dict[str, str] = {}
    # by text
    document_ids: dict[str, str] = {}
    # by the id in its own collection
    kept_ids: dict[str, str] = {}
    for retrieval in held_out:
        for document_id, text in zip(retrieval.document_ids, retrieval.documents, strict=True):
            form = normalize_text(text)
            kept_id = document_ids.setdefault(form, document_id)
            kept_ids[document_id] = kept_id
            found.setdefault(kept_id, text)
    queries = {normalize_text(query) for retrieval in held_out for query in retrieval.queries}
    relevant: dict[str, dict[str, int]] = defaultdict(dict)
    others = LowestHashes(MAX_SEARCHED_DOCUMENTS)
    for row in itertools.chain(iter_rows(pairs), iter_rows(documents) if documents else ()):
        document, query = normalize_text(row.document), normalize_text(row.query)
        if query in queries:
            document_id = document_ids.setdefault(document, row.id)
            found.setdefault(document_id, row.document)
            relevant[query][document_id] = 1
        elif document not in document_ids and (key := _hash(document)) not in others.rows:
            others.add(key, row._replace(query="", negatives=()))
    num_free = max(0, MAX_SEARCHED_DOCUMENTS - len(found))
    # a later row may have made a document relevant
    free = {key for key, (row,) in others.rows.items() if normalize_text(row.document) not in document_ids}
    drawn = set(sorted(free)[:num_free])
    # in the order of the file
    found |= {row.id: row.document for key, (row,) in others.rows.items() if key in drawn}
    extended = [_add_relevant_documents(retrieval, kept_ids, relevant) for retrieval in held_out]
    if as_one and len(extended) > 1:
        extended = [_join_queries(extended)]
    ids, texts = tuple(found), tuple(found.values())
    return [replace(retrieval, document_ids=ids, documents=texts) for retrieval in extended]


def take_out_own_texts(retrieval: Retrieval) -> tuple[Retrieval, Quirks]:
    """Return a collection in which no query is searched for itself, and its peculiarities.

    A query whose own text is a document that is not relevant to it gets the id of that document. It is then removed from
    the query's ranking, as in Quora.
    """
    document_ids = dict(zip(map(normalize_text, retrieval.documents), retrieval.document_ids, strict=True))
    new_ids: dict[str, str] = {}
    for query_id, text in zip(retrieval.query_ids, retrieval.queries, strict=True):
        own_id = document_ids.get(normalize_text(text))
        if own_id is not None and own_id not in retrieval.judgements[query_id]:
            new_ids[query_id] = own_id
    if not new_ids:
        return retrieval, Quirks()
    judgements = {new_ids.get(query_id, query_id): grades for query_id, grades in retrieval.judgements.items()}
    query_ids = tuple(new_ids.get(query_id, query_id) for query_id in retrieval.query_ids)
    queries = count_noun(len(new_ids), "query is", "queries are")
    says = f"{queries} also a document of the corpus, which is taken out of the query's own ranking"
    return replace(retrieval, query_ids=query_ids, judgements=judgements), Quirks(removes_self_hits=True, says=says)


def select_relevant(retrieval: Retrieval) -> Retrieval:
    """Return the documents that are relevant to a query, without queries."""
    relevant = {key for grades in retrieval.judgements.values() for key, grade in grades.items() if grade > 0}
    texts = zip(retrieval.document_ids, retrieval.documents, strict=True)
    documents = {document_id: text for document_id, text in texts if document_id in relevant}
    return Retrieval(retrieval.name, tuple(documents), tuple(documents.values()), (), (), {})


def _add_relevant_documents(
    retrieval: Retrieval, kept_ids: Mapping[str, str], relevant: Mapping[str, Mapping[str, int]]
) -> Retrieval:
    """Name the judged documents by the ids that were kept, and add the relevant documents of each query."""
    judgements = {}
    for query_id, text in zip(retrieval.query_ids, retrieval.queries, strict=True):
        grades = {kept_ids[document_id]: grade for document_id, grade in retrieval.judgements[query_id].items()}
        judgements[query_id] = {**grades, **relevant[normalize_text(text)]}
    return replace(retrieval, judgements=judgements)


def _join_queries(retrievals: Sequence[Retrieval]) -> Retrieval:
    """Join the queries of all collections. The first query with a text stays, so that a repeated one is scored once."""
    seen: set[str] = set()
    queries: dict[str, str] = {}
    judgements: dict[str, Mapping[str, int]] = {}
    for retrieval in retrievals:
        for query_id, text in zip(retrieval.query_ids, retrieval.queries, strict=True):
            if normalize_text(text) not in seen:
                seen.add(normalize_text(text))
                queries[query_id] = text
                judgements[query_id] = retrieval.judgements[query_id]
    return Retrieval(ALL, (), (), tuple(queries), tuple(queries.values()), judgements)


def training_rows(
    pairs: Pairs,
    collections: Sequence[Retrieval],
    domains: Sequence[str],
    counts: Counter[str],
    form: Callable[[str], str] = normalize_loosely,
    answers: Sequence[Retrieval] = (),
    *,
    keeps_answers: bool = False,
) -> Iterator[Row]:
    """Yield the rows outside the held-out domains that share no text with a collection. Count the dropped ones.

    The documents of `answers` are relevant to held-out queries. Rows that share a text with them are dropped, too, unless
    `keeps_answers` is set. Evaluated negatives are removed from their rows in any case, because training would push these
    documents away from queries.

    Raises:
        ValueError: if no row is left.
    """
    evaluated = EvaluatedTexts(collections, form)
    rows = drop_evaluated_rows(_drop_domains(iter_rows(pairs), set(domains), counts), evaluated, counts)
    if not keeps_answers:
        rows = drop_evaluated_rows(rows, EvaluatedTexts(answers, form), counts, key=ANSWERS)
    # Reading one row ahead shows an empty corpus before the caller opens its file.
    first = next(rows, None)
    if first is None:
        raise ValueError(
            f"nothing is left to train on of {count_noun(len(pairs), 'pair')} ({counts['in_held_out_domains']} of "
            f"{_format_names(domains)}, held out whole; {counts['evaluated']} with a text that is evaluated): "
            "hold out fewer domains, or import more pairs"
        )
    no_negatives = EvaluatedTexts((*collections, *answers), form)
    yield from drop_evaluated_negatives(itertools.chain([first], rows), no_negatives, counts)


def count_answers(rows: Iterable[Row], answers: Sequence[Retrieval], form: Callable[[str], str]) -> tuple[int, bool]:
    """Return how many rows share a text with `answers`, and whether training keeps them because they are too many."""
    counts: Counter[str] = Counter()
    num_others = sum(1 for _ in drop_evaluated_rows(rows, EvaluatedTexts(answers, form), counts))
    num_answers = counts["evaluated"]
    return num_answers, num_answers > MAX_LOST_SHARE * (num_answers + num_others)


def select_set_apart(iter_training_rows: Callable[[], Iterable[Row]], side: Side = "document") -> list[Row]:
    """Return the rows that are set apart to end training early: all rows of the drawn documents, or one of each query.

    A twentieth of the documents (or queries) is chosen by a hash of their text, at least `MIN_SET_APART` and at most
    `MAX_SET_APART`. The list is empty if there are fewer than `SET_APART_FROM` of them, or if training would lose
    more than `MAX_LOST_SHARE` of its pairs because they share a text with the chosen ones. Memory holds the chosen rows.
    """
    # One pass for the lowest hashes. The number of texts is only needed up to the limit below.
    keys: set[int] = set()
    candidates = LowestHashes(MAX_SET_APART, only_first=side == "query")
    num_rows = 0
    for row in iter_training_rows():
        num_rows += 1
        key = _hash(f"set apart\n{normalize_loosely(row.query if side == 'query' else row.document)}")
        # Beyond this number the share exceeds the maximum anyway.
        if len(keys) < MAX_SET_APART * SET_APART_SHARE:
            keys.add(key)
        candidates.add(key, row)
    if len(keys) < SET_APART_FROM:
        return []
    num_texts = min(MAX_SET_APART, max(MIN_SET_APART, len(keys) // SET_APART_SHARE))
    set_apart = [row for key in sorted(candidates.rows)[:num_texts] for row in candidates.rows[key]]
    num_remaining = sum(1 for _ in drop_set_apart(iter_training_rows(), set_apart, Counter()))
    return set_apart if num_rows - num_remaining <= MAX_LOST_SHARE * num_rows else []


class LowestHashes:
    """The rows of the texts with the lowest hashes, at most `max_texts` of them, by hash: all rows or the first."""

    def __init__(self, max_texts: int, *, only_first: bool = False) -> None:
        self.max_texts = max_texts
        self.only_first = only_first
        self.rows: dict[int, list[Row]] = {}
        # The heap holds negative hashes, so its first element is the largest hash, which is dropped first.
        self._heap: list[int] = []

    def add(self, key: int, row: Row) -> None:
        """Add a row of the text with this hash."""
        if key in self.rows:
            if not self.only_first:
                self.rows[key].append(row)
        elif len(self._heap) < self.max_texts:
            self.rows[key] = [row]
            heapq.heappush(self._heap, -key)
        elif -key > self._heap[0]:
            self.rows[key] = [row]
            del self.rows[-heapq.heapreplace(self._heap, -key)]


def drop_set_apart(rows: Iterable[Row], set_apart: Sequence[Row], counts: Counter[str]) -> Iterator[Row]:
    """Yield the rows that share neither a document nor a query with the rows set apart, and count the others.

    The documents set apart are also removed from the negatives of the other rows.
    """
    documents = {normalize_loosely(row.document) for row in set_apart}
    queries = {normalize_loosely(row.query) for row in set_apart}
    for row in rows:
        if normalize_loosely(row.document) in documents:
            counts["set_apart"] += 1
        elif normalize_loosely(row.query) in queries:
            counts["with_a_query_set_apart"] += 1
        else:
            yield row._replace(
                negatives=tuple(text for text in row.negatives if normalize_loosely(text) not in documents)
            )


def iter_rows(pairs: Pairs) -> Iterator[Row]:
    """Return every pair as a row, a block of them in memory."""
    for block in iter_blocks(len(pairs), ROWS_PER_READ):
        yield from _read_rows(pairs, np.arange(block.start, block.stop))
        pairs.release_pages()


def _read_rows(pairs: Pairs, indices: np.ndarray) -> Iterator[Row]:
    domains, sources = pairs.domain_names, pairs.source_names
    columns = zip(
        pairs.ids(indices),
        pairs.texts("query", indices),
        pairs.texts("document", indices),
        pairs.domain_codes[indices].tolist(),
        pairs.source_codes[indices].tolist(),
        pairs.negatives(indices),
        strict=True,
    )
    for identifier, query, document, domain, source, negatives in columns:
        yield Row(identifier, query, document, domains[domain], sources[source], tuple(negatives or ()))


def get_collection_name(domain: str, existing: Sequence[str] = ()) -> str:
    """Return a domain's name in a form that is valid for folders and metrics. A number resolves duplicates."""
    slug = get_legal_name(domain.lower(), default="domain")[:60]
    # these names would conflict with those of means
    if slug in ("mean", FAMILY):
        slug = f"{slug}-domain"
    candidates = (slug, *(f"{slug}-{number}" for number in range(2, len(existing) + 2)))
    return next(name for name in candidates if name not in existing)


def _drop_domains(rows: Iterator[Row], domains: set[str], counts: Counter[str]) -> Iterator[Row]:
    for row in rows:
        if row.domain in domains:
            counts["in_held_out_domains"] += 1
        else:
            yield row


def _find_largest_domains(pairs: Pairs) -> dict[str, str]:
    """Return the collection of each domain: its own for the largest domains, or one for all if none is large."""
    sizes = np.bincount(pairs.domain_codes, minlength=len(pairs.domain_names))
    order = np.argsort(-sizes, kind="stable")[:MAX_DOMAINS]
    large = [pairs.domain_names[code] for code in order if sizes[code] >= MIN_DOMAIN_PAIRS]
    return {name: name for name in large} or dict.fromkeys(pairs.domain_names, ALL)


def _iter_candidates(
    pairs: Pairs, groups: dict[str, str], form: Callable[[str], str], *, side: Side, select_all: bool
) -> Iterator[tuple[str, int, Row]]:
    """Yield group, hash of the side's text and row of each pair that may be held out. Memory holds one block."""
    in_group_N = np.array([name in groups for name in pairs.domain_names])[pairs.domain_codes]
    for block in iter_blocks(len(pairs), ROWS_PER_READ):
        indices = block.start + np.flatnonzero(in_group_N[block])
        keys = [_hash(form(text)) for text in pairs.texts(side, indices)]
        # By the hash of the text, so equal texts are always held out together.
        selected = [position for position, key in enumerate(keys) if select_all or key % SHARE == 0]
        for position, row in zip(selected, _read_rows(pairs, indices[selected]), strict=True):
            yield groups[row.domain], keys[position], row
        pairs.release_pages()


def _count_texts(pairs: Pairs, side: Side) -> int:
    """Return the number of different texts of a side."""
    seen = SeenKeys()
    keys = (np.array([_hash(normalize_text(text)) for text in block], np.uint64) for block in pairs.blocks(side))
    return sum(int(seen.add(keys_n).sum()) for keys_n in keys)


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _format_names(names: Sequence[str]) -> str:
    return f"{list(names[:20])}" + (f" and {len(names) - 20} more" if len(names) > 20 else "")
