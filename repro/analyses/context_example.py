"""Explain one query in every contextual record, as rows of text for the report.

The query is the one whose NDCG@10 gains most from the own context over the wrong one. Ranks come from the TREC runs
of the same evaluation.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from repro.analyses.batch_text import shorten
from repro.analyses.context_effect import ScoredModel
from repro.analyses.context_words import (
    Explanation,
    Query,
    Swap,
    Word,
    explain_query,
    find_changed_words,
    find_largest_gain,
)
from repro.evaluate.retrieval import read_run
from repro.evaluate.suites import get_path_name
from repro.text import ABSENT

EXHIBIT = "context_example"
KINDS = ("own", "wrong", "null")
"""Contexts in the example."""
COLUMNS = ("what", "text", *KINDS)
NUM_WORDS, NUM_RANKED = 6, 3
Rows = list[dict[str, str | float]]


def explain_best_query(scored: ScoredModel, runs: Path) -> dict[str, Rows]:
    """Return the rows under `EXHIBIT`. Empty if there are no scores for a wrong context, or no hits for the query."""
    if scored.get_scores("own") is None or scored.get_scores("wrong") is None:
        return {}
    dataset, query = _choose_query(scored)
    kinds = tuple(kind for kind in KINDS if scored.get_scores(kind) is not None)
    hits = {
        kind: read_run(runs / get_path_name(scored.inputs.suite.name, kind) / f"{dataset}.trec.gz") for kind in kinds
    }
    if not all(hits[kind].get(query.id) for kind in kinds):
        return {}
    swap = Swap(
        scored.encoder, scored.collections[dataset], scored.get_wrong_corpus(dataset), kinds, scored.count, scored.seed
    )
    suite = scored.inputs.suite.name
    explanation = explain_query(swap, query, lambda kind: hits[kind][query.id], called="", suite=suite, top=NUM_RANKED)
    return {EXHIBIT: list_context_rows(explanation)}


def _choose_query(scored: ScoredModel) -> tuple[str, Query]:
    """Return the collection and the query to explain."""
    own_Q, wrong_Q = scored.get_scores("own"), scored.get_scores("wrong")
    assert own_Q is not None and wrong_Q is not None, "both were scored"
    queries = [
        (dataset.name, query)
        for dataset in scored.inputs.suite.datasets
        for query in scored.list_judged_queries(dataset.name)
    ]
    dataset, identifier = queries[find_largest_gain(own_Q, wrong_Q)]
    retrieval = scored.collections[dataset].retrieval
    return dataset, Query(retrieval.queries[retrieval.query_ids.index(identifier)], identifier)


def list_context_rows(explanation: Explanation) -> Rows:
    """Return an explanation as rows of text with one column per context."""
    scores = {kind: f"{100 * score:.1f}" for kind, score in explanation.scores.items()}
    rows: Rows = [{"what": "context from", "text": "", **explanation.corpora}]
    rows.append({"what": "query, NDCG@10", "text": shorten(explanation.query.text), **scores})
    rows += _list_word_rows(explanation.query.words)
    for hit in explanation.hits:
        ranks = {kind: str(rank or ABSENT) for kind, rank in hit.ranks.items()}
        label = "relevant document, rank" if hit.is_relevant else "document, rank"
        rows.append({"what": label, "text": shorten(hit.text), **ranks})
    blanks = dict.fromkeys(explanation.corpora, "")
    rows.append({"what": "words of", "text": shorten(explanation.document.text), **blanks})
    return [*rows, *_list_word_rows(explanation.document.words)]


def _list_word_rows(words: Sequence[Word]) -> Rows:
    rows: Rows = []
    for word in find_changed_words(words, NUM_WORDS):
        shares = {kind: f"{100 * share:.2f}" for kind, share in word.shares.items()}
        rows.append({"what": "its word, weight %", "text": word.word, **shares})
    return rows
