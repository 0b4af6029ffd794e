"""Explain one query of a contextual model on a suite.

1. The query is found in the suite by its text or id. A text that no collection has is used as a new query.
2. The collection is embedded and ranked under each context. `repro.analyses.context_words` explains the ranking. The
   wrong corpus is the same as in `evaluate`.

Shapes: N documents, D size of a vector.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from repro.analyses.context_words import Explanation, Query, Swap, explain_query
from repro.data.beir import Suite, SuiteDataset
from repro.evaluate.collections import Collection, apply_hit_quirks, read_collections
from repro.evaluate.retrieval import search
from repro.interop.arguments import check_explained_model, check_revision, to_device
from repro.interop.opening import Progress, open_model, open_suite
from repro.interop.wrong_corpus import get_wrong_corpus
from repro.model.contextual import ContextualModel
from repro.model.progress import make_encoding_reporter
from repro.spec.identity import run_id
from repro.text import shorten

NUM_RANKED = 1000
"""Number of ranked documents. Documents beyond it have no rank."""


def run_explanation(
    source: str,
    text: str,
    *,
    suite_name: str | None,
    dataset_name: str | None,
    context_seed: int,
    num_contexts: int | None,
    top: int,
    revision: str | None,
    device: str | None,
    progress: Progress,
) -> Explanation:
    """Explain a query, given by its text or id, under a model. The default suite is that of the model's run.

    Raises:
        ValueError: if the model has no context, if the suite is unknown, or if the collection is ambiguous.
    """
    check_revision(revision, source)
    opened = open_model(source, revision=revision, progress=progress)
    check_explained_model(opened.called, opened.config, num_contexts)
    model = opened.model
    assert isinstance(model, ContextualModel), "no other model takes documents"
    to_device(model, device)
    if suite_name is None:
        if opened.run is None:
            raise ValueError(f"{opened.called} is not a run, so its suite is unknown: name one with --suite")
        suite_name = opened.run.suite
    suite = open_suite(suite_name, progress)
    dataset, query = find_query(suite, text, dataset_name)
    if not query.id:
        progress(f"no query has this id or text: {shorten(repr(text))} is read as a query of your own")
    collection, wrong = _read(suite, dataset), get_wrong_corpus(suite, dataset, progress)
    kinds = ("own", "wrong", *(["null"] if model.config.sequence_dropout > 0 else []))
    swap = Swap(model, collection, wrong, kinds, num_contexts or opened.num_contexts, context_seed)
    ranking = make_ranking(model, collection, query, progress)
    called = opened.called if opened.run is None else run_id(opened.run)
    return explain_query(swap, query, ranking, called=called, suite=suite.name, top=top)


def find_query(suite: Suite, text: str, dataset: str | None = None) -> tuple[SuiteDataset, Query]:
    """Find the query with this text or id. Return its collection and the query, whose id is empty for a new text.

    Raises:
        ValueError: if several collections have it, or if none has it and `dataset` does not choose one of several.
    """
    names = [candidate.name for candidate in suite.datasets]
    if dataset is not None and dataset not in names:
        raise ValueError(f"--dataset {shorten(repr(dataset))} is not in suite {suite.name}; choose one of {names}")
    candidates = [candidate for candidate in suite.datasets if dataset in (None, candidate.name)]
    matches = []
    for candidate in candidates:
        query = _find_in_collection(_read(suite, candidate), text)
        if query is not None:
            matches.append((candidate, query))
    if len(matches) > 1:
        raise ValueError(
            f"{[candidate.name for candidate, _ in matches]} all have the query {shorten(repr(text))}: add --dataset NAME"
        )
    if matches:
        return matches[0]
    if len(candidates) > 1:
        raise ValueError(
            f"no collection of suite {suite.name} has the query {shorten(repr(text))}; choose the collection to search "
            f"with --dataset NAME, one of {names}"
        )
    return candidates[0], Query(text)


def _find_in_collection(collection: Collection, text: str) -> Query | None:
    """Return the query with this text or id. If several have this text, prefer one with judgements."""
    retrieval = collection.retrieval
    queries = dict(zip(retrieval.query_ids, retrieval.queries, strict=True))
    # Ids have priority. Texts are compared without case and spaces, as a user types them.
    if text in queries:
        return Query(queries[text], text)
    normalised = " ".join(text.split()).lower()
    matches = [query_id for query_id, query in queries.items() if " ".join(query.split()).lower() == normalised]
    if not matches:
        return None
    judged = [query_id for query_id in matches if retrieval.judgements.get(query_id)]
    query_id = (judged or matches)[0]
    return Query(queries[query_id], query_id)


def _read(suite: Suite, dataset: SuiteDataset) -> Collection:
    return read_collections(Suite(suite.name, (dataset,)))[dataset.name]


def make_ranking(
    model: ContextualModel, collection: Collection, query: Query, progress: Progress
) -> Callable[[str], Mapping[str, float]]:
    """Return a function that ranks a collection under the current context, whose kind it takes for messages.

    It returns the scores of the best documents by id.
    """
    retrieval, query_id = collection.retrieval, query.id or "asked"
    # the tokens are the same under every context
    tokens = model.tokenize(retrieval.documents, collection.document_role)
    model.report = make_encoding_reporter(progress)

    def rank(kind: str) -> Mapping[str, float]:
        progress(f"searching {len(tokens)} documents of {retrieval.name} under the {kind} context")
        query_1D, documents_ND = model.encode([query.text], "query"), model.encode_tokens(tokens)
        k = NUM_RANKED + collection.num_extra_hits
        run = search(query_1D, documents_ND, [query_id], retrieval.document_ids, k)
        hits = apply_hit_quirks(run, collection, NUM_RANKED)[query_id]
        if not hits:
            raise ValueError(
                f"under the {kind} context every document of {retrieval.name} scores the same for "
                f"{shorten(repr(query.text))}: there is no ranking to explain; choose another query or model"
            )
        return hits

    return rank
