"""One query explained in every contextual record, as rows of text that the report shows: the one that gains the most.

The query is the one whose NDCG@10 gains most from the own context over the wrong one; ranks are those of the TREC runs
that were just written.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repro.analyses.batch_text import shorten
from repro.analyses.context_effect import Seen
from repro.analyses.context_words import Explanation, Query, Swap, Word, explain_query, find_most_moved
from repro.evaluate.retrieval import read_run
from repro.evaluate.suites import get_path_name
from repro.spec.artefact import ABSENT

EXHIBIT = "context_example"
KINDS = ("own", "wrong", "null")
"""Contexts that the example shows."""
COLUMNS = ("what", "text", *KINDS)
NUM_WORDS, NUM_RANKED = 6, 3
Rows = list[dict[str, str | float]]


def context_example(seen: Seen, runs: Path) -> dict[str, Rows]:
    """Return the rows under `EXHIBIT`; nothing where a wrong context was not scored, or the query found nothing."""
    if seen.scores("own") is None or seen.scores("wrong") is None:
        return {}
    dataset, query = _chosen(seen)
    kinds = tuple(kind for kind in KINDS if seen.scores(kind) is not None)
    found = {
        kind: read_run(runs / get_path_name(seen.inputs.suite.name, kind) / f"{dataset}.trec.gz") for kind in kinds
    }
    if not all(found[kind].get(query.id) for kind in kinds):
        return {}
    swap = Swap(seen.encoder, seen.collections[dataset], seen.wrong(dataset), kinds, seen.count, seen.seed)
    suite = seen.inputs.suite.name
    told = explain_query(swap, query, lambda kind: found[kind][query.id], called="", suite=suite, top=NUM_RANKED)
    return {EXHIBIT: list_context_rows(told)}


def _chosen(seen: Seen) -> tuple[str, Query]:
    """Return the collection and the query that are told of."""
    own_Q, wrong_Q = seen.scores("own"), seen.scores("wrong")
    assert own_Q is not None and wrong_Q is not None, "both were scored"
    queries = [(dataset.name, query) for dataset in seen.inputs.suite.datasets for query in seen.judged(dataset.name)]
    dataset, identifier = queries[find_most_moved(own_Q, wrong_Q)]
    retrieval = seen.collections[dataset].retrieval
    return dataset, Query(retrieval.queries[retrieval.query_ids.index(identifier)], identifier)


def list_context_rows(told: Explanation) -> Rows:
    """Return an explanation as rows of text with a column for each context."""
    scores = {kind: f"{100 * score:.1f}" for kind, score in told.scores.items()}
    rows: Rows = [{"what": "context from", "text": "", **told.corpora}]
    rows.append({"what": "query, NDCG@10", "text": shorten(told.query.text), **scores})
    rows += [_word_row("its word, weight %", word) for word in find_telling_words(told.query.words, NUM_WORDS)]
    for hit in told.hits:
        ranks = {kind: str(rank or ABSENT) for kind, rank in hit.ranks.items()}
        what = "relevant document, rank" if hit.is_relevant else "document, rank"
        rows.append({"what": what, "text": shorten(hit.text), **ranks})
    shown: dict[str, str | float] = {
        "what": "words of",
        "text": shorten(told.document.text),
        **dict.fromkeys(told.corpora, ""),
    }
    words = [_word_row("its word, weight %", word) for word in find_telling_words(told.document.words, NUM_WORDS)]
    return [*rows, shown, *words]


def _word_row(what: str, word: Word) -> dict[str, str | float]:
    return {"what": what, "text": word.word, **{kind: f"{100 * share:.2f}" for kind, share in word.shares.items()}}


def find_telling_words(words: Sequence[Word], count: int) -> list[Word]:
    """Return the words whose weight changes most, the largest gain first and the largest loss last."""
    most = sorted(words, key=lambda word: -abs(word.gain))[:count]
    return sorted(most, key=lambda word: -word.gain)
