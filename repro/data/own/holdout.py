"""Hold-out of a user's own corpus: evaluation collections, and the remaining training pairs.

1. Named domains are held out completely. Without names, a hash of the text selects a tenth of the documents of each of
   the largest domains. If all domains are small, it selects a tenth of all documents.
2. Each part becomes a collection by the rules of `repro.data.suites`.
3. Pairs that share a text with a collection are not trained on.
"""

from __future__ import annotations

import hashlib
import heapq
import itertools
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from repro.data.beir import Retrieval
from repro.data.filters import EvaluatedTexts, drop_evaluated_negatives, drop_evaluated_rows
from repro.data.pairs import Pairs, Row
from repro.data.suites import SuiteRules, build_collection
from repro.data.wording import identity, near_form, normalise
from repro.storage.arrays import iter_blocks
from repro.text import count_noun

FAMILY = "held-out"
ALL = "all"
MAX_DOMAINS = 16
# of a domain that gives a collection of its own: twenty documents to search
MIN_DOMAIN_PAIRS = 200
SHARE = 10  # one document in ten
SET_APART_SHARE = 20
"""One document in twenty is set apart, so that training can end early."""
MIN_SET_APART, MAX_SET_APART, SET_APART_FROM = 32, 512, 320
"""Fewest and most documents set apart, and the number of training documents from which any are."""
MAX_LOST_SHARE = 0.2
ROWS_PER_READ = 65_536
MAX_SEARCHED_DOCUMENTS = 200_000
"""Largest number of documents of a collection. BM25 takes about a minute on it."""


def hold_out(
    pairs: Pairs,
    domains: Sequence[str] = (),
    rules: SuiteRules | None = None,
    near: dict[str, int] | None = None,
) -> list[Retrieval]:
    """Return the evaluation collections of a corpus.

    Memory holds the rows of at most `rules.max_documents` documents per collection.

    Args:
        pairs: All pairs of the corpus.
        domains: The domains to hold out. Default: a tenth of the documents.
        rules: Rules of the collections. By default, queries with near-duplicate documents stay.
        near: Filled with the number of queries per collection whose document has a near-duplicate.

    Raises:
        ValueError: if the corpus lacks a domain, or if a named domain, or the whole corpus, leaves no query.
    """
    rules = rules or SuiteRules(several_answers=True, keeps_near_duplicates=True)
    unknown = sorted(set(domains) - set(pairs.domain_names))
    if unknown:
        raise ValueError(f"no domain {unknown} to hold out; this corpus has {_some(pairs.domain_names)}")
    groups = {name: name for name in domains} or _find_largest_domains(pairs)
    kept = _select_lowest_hash_rows(pairs, groups, rules, whole=bool(domains))
    found: list[Retrieval] = []
    refused: list[str] = []
    for group, rows in sorted(kept.items()):
        try:
            built = build_collection(get_collection_name(group, [one.name for one in found]), rows, rules)
            found.append(built.retrieval)
            if near is not None and built.counts["num_near_duplicate"]:
                near[built.retrieval.name] = built.counts["num_near_duplicate"]
        except ValueError as error:
            refused.append(str(error))
    if not found:
        why = "; ".join(refused[:3]) or _too_few(pairs, groups, rules.form)
        raise ValueError(f"nothing can be held out to evaluate on ({why})")
    if domains and refused:
        raise ValueError(
            f"not all of {list(domains)} can be held out to evaluate on ({'; '.join(refused[:3])}): name others"
        )
    return found


def extend_to_all_documents(pairs: Pairs, held_out: Sequence[Retrieval], *, as_one: bool) -> list[Retrieval]:
    """Extend the collections of `hold_out` from the held-out documents to all documents of the corpus.

    The documents of all pairs of a held-out query are relevant to it. Memory holds `MAX_SEARCHED_DOCUMENTS` documents.

    Args:
        pairs: All pairs of the corpus.
        held_out: The collections of `hold_out`.
        as_one: Join all collections to one.
    """
    texts = {i: text for one in held_out for i, text in zip(one.document_ids, one.documents, strict=True)}
    id_of = {identity(text): i for i, text in texts.items()}
    asked = {identity(query) for one in held_out for query in one.queries}
    answers: dict[str, dict[str, int]] = defaultdict(dict)
    for row in iter_rows(pairs):
        document, query = identity(row.document), identity(row.query)
        # Relevant documents are included beyond the limit, or queries would lack their answers.
        if document not in id_of and (len(texts) < MAX_SEARCHED_DOCUMENTS or query in asked):
            id_of[document] = row.id
            texts[row.id] = row.document
        if query in asked:
            answers[query][id_of[document]] = 1
    ids, documents = tuple(texts), tuple(texts.values())
    wider = [_with_answers(one, answers) for one in held_out]
    if as_one and len(wider) > 1:
        queries = {query: text for one in wider for query, text in zip(one.query_ids, one.queries, strict=True)}
        # a query of two domains is scored once
        # Reversed, so that the first query with a text is the one that stays.
        first = {identity(text): query for query, text in reversed(queries.items())}
        queries = {query: text for query, text in queries.items() if first[identity(text)] == query}
        judged = {query: dict(grades) for one in wider for query, grades in one.judgements.items() if query in queries}
        wider = [Retrieval(ALL, (), (), tuple(queries), tuple(queries.values()), judged)]
    return [replace(one, document_ids=ids, documents=documents) for one in wider]


def _with_answers(retrieval: Retrieval, answers: Mapping[str, Mapping[str, int]]) -> Retrieval:
    texts = dict(zip(retrieval.query_ids, retrieval.queries, strict=True))
    judged = {query: {**grades, **answers[identity(texts[query])]} for query, grades in retrieval.judgements.items()}
    return replace(retrieval, judgements=judged)


def training_rows(
    pairs: Pairs,
    collections: Sequence[Retrieval],
    domains: Sequence[str],
    counts: Counter[str],
    form: Callable[[str], str] = normalise,
) -> Iterator[Row]:
    """Yield the rows outside the held-out domains that share no text with a collection. Count the dropped ones.

    Evaluated negatives are removed from their rows, because training would push these documents away from queries.

    Raises:
        ValueError: if no row is left.
    """
    evaluated = EvaluatedTexts(collections, form)
    rows = drop_evaluated_rows(_outside(iter_rows(pairs), set(domains), counts), evaluated, counts)
    # Reading one row ahead shows an empty corpus before the caller opens its file.
    first = next(rows, None)
    if first is None:
        of_domains = [f"{counts['in_held_out_domains']} of {_some(domains)}, held out whole"] if domains else []
        shared = [f"{counts['evaluated']} with a text that is evaluated"] if counts["evaluated"] else []
        raise ValueError(
            f"nothing is left to train on of {count_noun(len(pairs), 'pair')} ({'; '.join(of_domains + shared)}): "
            "hold out fewer domains, or import more pairs"
        )
    yield from drop_evaluated_negatives(itertools.chain([first], rows), evaluated, counts)


def select_set_apart(iter_training_rows: Callable[[], Iterable[Row]]) -> list[Row]:
    """Return the rows of the documents that are set apart to end training early.

    A twentieth of the documents is chosen by a hash of their text, at least `MIN_SET_APART` and at most
    `MAX_SET_APART`. The list is empty if there are fewer than `SET_APART_FROM` documents, or if training would lose
    more than `MAX_LOST_SHARE` of its pairs because they share a query with the chosen ones. Memory holds the chosen rows.
    """
    # One pass with a heap of the lowest hashes. The number of documents is only needed up to the limit below.
    documents: set[int] = set()
    chosen: dict[int, list[Row]] = {}
    heap: list[int] = []
    num_rows = 0
    for row in iter_training_rows():
        num_rows += 1
        key = _hash(f"set apart\n{near_form(row.document)}")
        # Beyond this number the share exceeds the maximum anyway.
        if len(documents) < MAX_SET_APART * SET_APART_SHARE:
            documents.add(key)
        if key in chosen:
            chosen[key].append(row)
        elif len(heap) < MAX_SET_APART:
            chosen[key] = [row]
            heapq.heappush(heap, -key)
        elif -key > heap[0]:
            del chosen[-heapq.heapreplace(heap, -key)]
            chosen[key] = [row]
    if len(documents) < SET_APART_FROM:
        return []
    num = min(MAX_SET_APART, max(MIN_SET_APART, len(documents) // SET_APART_SHARE))
    apart = [row for key in sorted(chosen)[:num] for row in chosen[key]]
    num_left = sum(1 for _ in drop_set_apart(iter_training_rows(), apart, Counter()))
    return apart if num_rows - num_left <= MAX_LOST_SHARE * num_rows else []


def drop_set_apart(rows: Iterable[Row], apart: Sequence[Row], counts: Counter[str]) -> Iterator[Row]:
    """Yield the rows that share neither a document nor a query with the rows set apart, and count the others."""
    documents, queries = ({near_form(text) for text in texts} for texts in zip(*map(_get_texts, apart), strict=True))
    for row in rows:
        if near_form(row.document) in documents:
            counts["set_apart"] += 1
        elif near_form(row.query) in queries:
            counts["with_a_query_set_apart"] += 1
        else:
            yield row


def _get_texts(row: Row) -> tuple[str, str]:
    return row.document, row.query


def iter_rows(pairs: Pairs) -> Iterator[Row]:
    """Return every pair as a row, a block of them in memory."""
    for block in iter_blocks(len(pairs), ROWS_PER_READ):
        yield from _rows_at(pairs, np.arange(block.start, block.stop))
        pairs.give_back()


def _rows_at(pairs: Pairs, places: np.ndarray) -> Iterator[Row]:
    domains, sources = pairs.domain_names, pairs.source_names
    columns = zip(
        pairs.ids(places),
        pairs.texts("query", places),
        pairs.texts("document", places),
        pairs.domain_codes[places].tolist(),
        pairs.source_codes[places].tolist(),
        pairs.negatives(places),
        strict=True,
    )
    for identifier, query, document, domain, source, negatives in columns:
        yield Row(identifier, query, document, domains[domain], sources[source], tuple(negatives or ()))


def get_collection_name(domain: str, taken: Sequence[str] = ()) -> str:
    """Return a domain's name in a form that is valid for folders and metrics. A number resolves duplicates."""
    slug = re.sub(r"[^a-z0-9._-]+", "-", domain.lower()).strip("-.")[:60] or "domain"
    slug = f"{slug}-domain" if slug in ("mean", FAMILY) else slug
    numbered = (slug, *(f"{slug}-{number}" for number in range(2, len(taken) + 2)))
    return next(name for name in numbered if name not in taken)


def _outside(rows: Iterator[Row], domains: set[str], counts: Counter[str]) -> Iterator[Row]:
    for row in rows:
        if row.domain in domains:
            counts["in_held_out_domains"] += 1
        else:
            yield row


def _find_largest_domains(pairs: Pairs) -> dict[str, str]:
    sizes = np.bincount(pairs.domain_codes, minlength=len(pairs.domain_names))
    order = np.argsort(-sizes, kind="stable")[:MAX_DOMAINS]
    large = {pairs.domain_names[code]: pairs.domain_names[code] for code in order if sizes[code] >= MIN_DOMAIN_PAIRS}
    return large or dict.fromkeys(pairs.domain_names, ALL)


def _select_lowest_hash_rows(
    pairs: Pairs, groups: dict[str, str], rules: SuiteRules, *, whole: bool
) -> dict[str, list[Row]]:
    rows: dict[str, dict[int, list[Row]]] = defaultdict(dict)
    heaps: dict[str, list[int]] = defaultdict(list)
    max_documents = rules.max_documents
    for group, key, row in _candidates(pairs, groups, rules.form, whole=whole):
        kept, heap = rows[group], heaps[group]
        if key in kept:
            kept[key].append(row)
        # The heap holds negative hashes, so its first element is the largest hash, which is dropped first.
        elif len(heap) < max_documents or -key > heap[0]:
            kept[key] = [row]
            if len(heap) < max_documents:
                heapq.heappush(heap, -key)
            else:
                del kept[-heapq.heapreplace(heap, -key)]
    return {group: [row for key in kept for row in kept[key]] for group, kept in rows.items()}


def _candidates(
    pairs: Pairs, groups: dict[str, str], form: Callable[[str], str], *, whole: bool
) -> Iterator[tuple[str, int, Row]]:
    """Yield group, document hash and row of each pair that may be held out. Memory holds one block."""
    in_group_N = np.array([name in groups for name in pairs.domain_names])[pairs.domain_codes]
    for block in iter_blocks(len(pairs), ROWS_PER_READ):
        places = block.start + np.flatnonzero(in_group_N[block])
        keys = [_hash(form(text)) for text in pairs.texts("document", places)]
        # By the hash of the text, so equal documents are always held out together.
        chosen = [place for place, key in enumerate(keys) if whole or key % SHARE == 0]
        for place, row in zip(chosen, _rows_at(pairs, places[chosen]), strict=True):
            yield groups[row.domain], keys[place], row
        pairs.give_back()


def _too_few(pairs: Pairs, groups: dict[str, str], form: Callable[[str], str]) -> str:
    """Explain that there are so few documents that the hash selected none."""
    keys, num_pairs = set[int](), 0
    for _, key, _ in _candidates(pairs, groups, form, whole=True):
        keys.add(key)
        num_pairs += 1
    documents = count_noun(len(keys), "different document")
    return (
        f"{count_noun(num_pairs, 'pair')} of {_some(list(groups))} with {documents}: a hash of the text "
        f"holds out one document in {SHARE}, here none; hold out a whole domain with --hold-out DOMAIN, or give a "
        "collection with --evaluate-on FOLDER"
    )


def _hash(text: str) -> int:
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


def _some(names: Sequence[str]) -> str:
    return f"{list(names[:20])}" + (f" and {len(names) - 20} more" if len(names) > 20 else "")
