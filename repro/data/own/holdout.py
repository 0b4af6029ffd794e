"""Hold-out of a user's own corpus: evaluation collections, pairs set apart, and the remaining training pairs.

Texts are compared by their identity (`identify_text`), of which a 64-bit hash is the key.

1. Named domains are held out completely. Without names, the tenth of the documents with the lowest hashes is drawn from
   each of the largest domains, or from all if no domain is large. If there are fewer queries than documents, it is a
   tenth of the queries instead. A tenth of the documents would be relevant to more than a tenth of them.
2. Each held-out document is asked for by one query. All documents of the pairs of a query are relevant to it, and all
   documents of the corpus are searched, also negatives.
3. Pairs that share a text with a held-out query or document are not trained on. Nor are pairs whose document is relevant
   to a held-out query through another pair, unless training would lose more than `MAX_LOST_SHARE` of its pairs.
4. A twentieth of the other documents (or queries) is set apart, so that training can end early. Pairs that share a text
   with them are not trained on.
5. Held-out, relevant and set-apart texts are removed from the negatives of the training pairs.

Memory holds 16 bytes per pair, the keys of all documents, and the texts of one collection.

Shapes: N pairs, n pairs that are not held out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from repro.data.beir import Retrieval, get_legal_name
from repro.data.filters import hash_texts
from repro.data.pairs import SIDES, Pairs, Row, Side
from repro.data.paper.collection_rules import CollectionRules
from repro.storage.arrays import iter_blocks
from repro.text import count_noun, shorten

FAMILY, ALL = "held-out", "all"
MAX_DOMAINS = 16
# A domain of this size gives a tenth of its own, with twenty documents.
MIN_DOMAIN_PAIRS = 200
SHARE = 10  # one document (or query) in ten
MAX_DRAWN: dict[Side, int] = {"document": 500, "query": 400}
"""Largest number of texts drawn from a domain."""
SET_APART_SHARE, MIN_SET_APART, MAX_SET_APART = 20, 32, 512
"""One document (or query) in twenty is set apart, within these limits."""
SET_APART_FROM = 320
"""Number of documents (or queries) in training from which any are set apart."""
MAX_LOST_SHARE = 0.2
"""Largest share of training pairs that are dropped for the pairs set apart, and for the answers of held-out queries."""
MAX_SEARCHED_DOCUMENTS = 200_000
"""Largest number of documents of a collection. BM25 takes about a minute on it."""
ROWS_PER_READ = 65_536
_MIX = np.uint64(0x9E3779B97F4A7C15)
"""An odd factor, which gives a second hash that is independent of the first one."""


@dataclass(frozen=True)
class Split:
    """Which pairs are held out, set apart and trained on.

    Attributes:
        queries: Keys of the held-out queries by collection.
        set_apart: Rows of the pairs that are set apart.
        train: Rows of the pairs to train on.
        not_negative: Keys of the texts that are no negatives of training pairs.
        counts: Numbers of pairs by their part.
    """

    queries: dict[str, np.ndarray]
    set_apart: np.ndarray
    train: np.ndarray
    not_negative: np.ndarray
    counts: dict[str, int]


@dataclass(frozen=True)
class Keys:
    """The keys of the queries and documents of all pairs, uint64 (N,)."""

    query_N: np.ndarray
    document_N: np.ndarray

    @classmethod
    def compute(cls, pairs: Pairs) -> Keys:
        """Read all texts once."""
        return cls(*(np.concatenate([hash_texts(block) for block in pairs.blocks(side)]) for side in SIDES))

    @property
    def side(self) -> Side:
        """The texts that are drawn: queries if there are fewer of them than documents, otherwise documents."""
        return "query" if len(np.unique(self.query_N)) < len(np.unique(self.document_N)) else "document"

    def contain(self, keys: np.ndarray) -> np.ndarray:
        """Return which pairs have one of these texts on either side, bool (N,)."""
        return np.isin(self.query_N, keys) | np.isin(self.document_N, keys)


def split_pairs(pairs: Pairs, keys: Keys, domains: Sequence[str] = ()) -> Split:
    """Divide the pairs into held-out ones, those set apart, and those to train on.

    Raises:
        ValueError: if the corpus lacks a domain, or if nothing is left to train on.
    """
    side: Side = "document" if domains else keys.side
    groups = _select_groups(pairs, domains)
    side_N = keys.query_N if side == "query" else keys.document_N
    queries: dict[str, np.ndarray] = {}
    drawn = [np.zeros(0, np.uint64)]
    for name, in_group_N in groups.items():
        # in the order of their keys, which is random and the same on every machine
        candidates = np.unique(side_N[in_group_N])
        num_drawn = len(candidates) if domains else max(1, len(candidates) // SHARE)
        drawn.append(candidates[: min(num_drawn, MAX_DRAWN[side])])
        rows = np.flatnonzero(in_group_N & np.isin(side_N, drawn[-1]))
        queries[name] = _select_queries(keys, rows)
    asked = np.unique(np.concatenate([*queries.values()]))
    if not domains:
        queries = {ALL: asked}
    evaluated = np.union1d(asked, np.concatenate(drawn))
    is_held_out_N = keys.contain(evaluated)
    for code in [pairs.domain_names.index(name) for name in domains]:
        is_held_out_N |= pairs.domain_codes == code
    relevant = np.unique(keys.document_N[np.isin(keys.query_N, asked)])
    return _divide_rest(keys, side, queries, is_held_out_N, np.union1d(evaluated, relevant))


def make_split_without_holdout(keys: Keys) -> Split:
    """Divide the pairs into those set apart and those to train on, if collections for evaluation were given."""
    nothing = np.zeros(0, np.uint64)
    return _divide_rest(keys, keys.side, {}, np.zeros(len(keys.query_N), bool), nothing)


def _select_groups(pairs: Pairs, domains: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the pairs of each group to draw from by its name, bool (N,): domains, or all small ones together."""
    names, codes_N = pairs.domain_names, pairs.domain_codes
    if unknown := sorted({*domains} - {*names}):
        raise ValueError(f"no domain {unknown} to hold out; this corpus has {shorten([*names], 400)}")
    sizes = np.bincount(codes_N, minlength=len(names))
    largest = np.argsort(-sizes, kind="stable")[:MAX_DOMAINS]
    chosen = [names.index(name) for name in domains] or [code for code in largest if sizes[code] >= MIN_DOMAIN_PAIRS]
    return {names[code]: codes_N == code for code in chosen} or {ALL: np.ones(len(codes_N), bool)}


def _select_queries(keys: Keys, rows: np.ndarray) -> np.ndarray:
    """Return one query for each document of some pairs: the one with the lowest key, which ignores the order of rows."""
    order = np.lexsort((keys.query_N[rows], keys.document_N[rows]))
    _, first = np.unique(keys.document_N[rows][order], return_index=True)
    return np.unique(keys.query_N[rows][order][first])


def _divide_rest(
    keys: Keys, side: Side, queries: dict[str, np.ndarray], is_held_out_N: np.ndarray, not_trained: np.ndarray
) -> Split:
    """Divide the pairs that are not held out. `not_trained` are the keys of evaluated and relevant texts."""
    is_answer_N = ~is_held_out_N & keys.contain(not_trained)
    num_others = int((~is_held_out_N).sum())
    keeps_answers = int(is_answer_N.sum()) > MAX_LOST_SHARE * num_others
    is_free_N = ~is_held_out_N if keeps_answers else ~is_held_out_N & ~is_answer_N
    if not is_free_N.any():
        raise ValueError(f"all of {count_noun(len(is_free_N), 'pair')} are held out: nothing is left to train on")
    set_apart, is_lost_N = _select_set_apart(keys, side, np.flatnonzero(is_free_N))
    train = np.flatnonzero(is_free_N & ~is_lost_N)
    counts = {
        "held out": int((~is_free_N).sum()),
        "set apart": len(set_apart),
        "sharing a text": int(is_lost_N.sum()) - len(set_apart),
        "to train on": len(train),
        "trained answers": int((is_answer_N & is_free_N).sum()),
    }
    not_negative = np.union1d(not_trained, keys.document_N[set_apart])
    return Split(queries, set_apart, train, not_negative, counts)


def _select_set_apart(keys: Keys, side: Side, free_n: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows to set apart, and all pairs that are lost for training because they share a text with them, (N,).

    These are all pairs of the drawn documents, or one of each drawn query.
    """
    side_n = (keys.query_N if side == "query" else keys.document_N)[free_n] * _MIX
    texts = np.unique(side_n)
    num_drawn = min(MAX_SET_APART, max(MIN_SET_APART, len(texts) // SET_APART_SHARE))
    rows = free_n[np.isin(side_n, texts[:num_drawn])]
    if side == "query":
        rows = rows[np.unique(keys.query_N[rows], return_index=True)[1]]
    is_lost_N = np.zeros(len(keys.query_N), bool)
    is_lost_N[free_n] = True
    is_lost_N &= keys.contain(np.concatenate([keys.query_N[rows], keys.document_N[rows]]))
    if len(texts) < SET_APART_FROM or is_lost_N.sum() > MAX_LOST_SHARE * len(free_n):
        return rows[:0], np.zeros_like(is_lost_N)
    return np.sort(rows), is_lost_N


def build_collections(pairs: Pairs, keys: Keys, split: Split, documents: Pairs | None = None) -> list[Retrieval]:
    """Return the evaluation collections: one per named domain, or one for all. All search the same documents.

    Of more than `MAX_SEARCHED_DOCUMENTS` documents, the lowest keys are a sample. Relevant documents are always included.

    Args:
        pairs: All pairs of the corpus. Their negatives are searched, too.
        keys: Their keys.
        split: The split.
        documents: Rows without a query, whose documents are searched, too.
    """
    asked = np.unique(np.concatenate([*split.queries.values()]))
    rows = np.flatnonzero(np.isin(keys.query_N, asked))
    texts = _collect_documents(pairs, keys, documents, np.unique(keys.document_N[rows]))
    relevant: dict[int, dict[str, int]] = defaultdict(dict)
    queries: dict[int, str] = {}
    for key, document, query in zip(
        keys.query_N[rows].tolist(), keys.document_N[rows].tolist(), pairs.texts("query", rows), strict=True
    ):
        queries.setdefault(key, query)
        relevant[key][f"d{document:016x}"] = 1
    document_ids = tuple(f"d{key:016x}" for key in texts)
    collections: list[Retrieval] = []
    for name, group in split.queries.items():
        query_ids = {f"q{key:016x}": key for key in group.tolist()}
        collections.append(
            Retrieval(
                get_collection_name(name, [each.name for each in collections]),
                document_ids,
                tuple(texts.values()),
                tuple(query_ids),
                tuple(queries[key] for key in query_ids.values()),
                {query_id: relevant[key] for query_id, key in query_ids.items()},
            )
        )
    return collections


def _collect_documents(pairs: Pairs, keys: Keys, documents: Pairs | None, relevant: np.ndarray) -> dict[int, str]:
    """Return the texts of the searched documents by their key, each once, in the order of the corpus."""
    others = documents.blocks("document") if documents else ()
    other_keys = [hash_texts(block) for block in (*others, *_iter_negatives(pairs))]
    free = np.setdiff1d(np.concatenate([keys.document_N, *other_keys]), relevant)
    searched = np.union1d(relevant, free[: max(0, MAX_SEARCHED_DOCUMENTS - len(relevant))])
    wanted, texts = set(searched.tolist()), dict[int, str]()
    others = documents.blocks("document") if documents else ()
    for blocks in (pairs.blocks("document"), _iter_negatives(pairs), others):
        for block in blocks:
            for key, text in zip(hash_texts(block).tolist(), block, strict=True):
                if key in wanted:
                    texts.setdefault(key, text)
    return texts


def _iter_negatives(pairs: Pairs) -> Iterator[list[str]]:
    for block in iter_blocks(len(pairs), ROWS_PER_READ):
        rows = pairs.negatives(np.arange(block.start, block.stop))
        yield [text for texts in rows for text in texts or ()]
        pairs.release_pages()


def remove_own_texts(retrieval: Retrieval) -> tuple[Retrieval, CollectionRules]:
    """Return a collection in which no query is searched for itself, and its peculiarities.

    A query whose own text is a document that is not relevant to it gets the id of that document. It is then removed from
    the query's ranking, as in Quora.
    """
    documents = {*retrieval.document_ids}
    own_ids = {query_id: f"d{query_id[1:]}" for query_id in retrieval.query_ids}
    new_ids = {
        query_id: own_id
        for query_id, own_id in own_ids.items()
        if own_id in documents and own_id not in retrieval.judgements[query_id]
    }
    if not new_ids:
        return retrieval, CollectionRules()
    judgements = {new_ids.get(query_id, query_id): grades for query_id, grades in retrieval.judgements.items()}
    query_ids = tuple(new_ids.get(query_id, query_id) for query_id in retrieval.query_ids)
    queries = count_noun(len(new_ids), "query is", "queries are")
    note = f"{queries} also a document of the corpus, which is taken out of the query's own ranking"
    return replace(retrieval, query_ids=query_ids, judgements=judgements), CollectionRules(
        removes_self_hits=True, note=note
    )


def iter_training_rows(pairs: Pairs, rows: np.ndarray, not_negative: np.ndarray) -> Iterator[Row]:
    """Yield pairs by their rows, without the negatives that have one of these keys. Memory holds one block."""
    domains, sources = pairs.domain_names, pairs.source_names
    refused = set(not_negative.tolist())
    for block in iter_blocks(len(rows), ROWS_PER_READ):
        indices = rows[block]
        columns = zip(
            pairs.ids(indices),
            pairs.texts("query", indices),
            pairs.texts("document", indices),
            (domains[code] for code in pairs.domain_codes[indices]),
            (sources[code] for code in pairs.source_codes[indices]),
            (_remove(texts or (), refused) for texts in pairs.negatives(indices)),
            strict=True,
        )
        yield from (Row(*values) for values in columns)
        pairs.release_pages()


def _remove(texts: Iterable[str], refused: set[int]) -> tuple[str, ...]:
    texts = list(texts)
    return tuple(text for key, text in zip(hash_texts(texts).tolist(), texts, strict=True) if key not in refused)


def get_collection_name(domain: str, existing: Sequence[str] = ()) -> str:
    """Return a domain's name in a form that is valid for folders and metrics. A number resolves duplicates."""
    slug = get_legal_name(domain.lower(), default="domain")[:60]
    # these names would conflict with those of means
    if slug in ("mean", FAMILY):
        slug = f"{slug}-domain"
    candidates = (slug, *(f"{slug}-{number}" for number in range(2, len(existing) + 2)))
    return next(name for name in candidates if name not in existing)
