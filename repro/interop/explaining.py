"""Explain one query of a contextual model on a suite.

1. The query is found in the suite by its text or id. A text that no collection has is used as a new query.
2. The collection is embedded and ranked under each context. `repro.analyses.context_words` explains the ranking. The
   wrong corpus is the same as in `evaluate`.

Shapes: N texts, D size of a vector.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from repro.analyses.context_words import Explanation, Query, Swap, explain_query
from repro.data.beir import Suite, SuiteDataset
from repro.data.tokens import Tokens
from repro.evaluate.collections import Collection, apply_hit_quirks, read_collections
from repro.evaluate.retrieval import search
from repro.interop.arguments import check_context_draw, check_num_contexts, check_revision, to_device
from repro.interop.named_runs import check_run_is_contextual
from repro.interop.opening import Opened, Progress, open_model, open_suite
from repro.interop.wrong_corpus import get_wrong_corpus
from repro.model.contextual import ContextualModel
from repro.spec.identity import run_id
from repro.text import format_seconds, shorten

NUM_RANKED = 1000
"""Number of ranked documents. Documents beyond it have no rank."""
DOCUMENTS_PER_BLOCK = 256
"""Documents between two checks of the clock."""
REPORT_SECONDS = 4.0
"""Seconds between two lines about the progress."""


@dataclass(frozen=True, kw_only=True)
class ExplanationRequest:
    """A request: the query to explain, the model and the suite. Default of the suite: that of the model's run."""

    model: str
    query: str
    suite: str | None = None
    dataset: str | None = None
    context_seed: int = 0
    num_contexts: int | None = None
    top: int = 5
    revision: str | None = None
    device: str | None = None


def run_explanation(request: ExplanationRequest, *, progress: Progress = print) -> Explanation:
    """Explain a query.

    Raises:
        ValueError: if the model has no context, if the suite is unknown, or if the collection is ambiguous.
    """
    check_context_draw(request.context_seed, request.num_contexts)
    check_revision(request.revision, request.model)
    if not request.query.strip():
        raise ValueError("--query is empty: give the text of a query, or the id of a query of the suite")
    check_run_is_contextual(request.model)
    opened = open_model(request.model, revision=request.revision, progress=progress)
    model = opened.model
    if not isinstance(model, ContextualModel):
        raise ValueError(f"{opened.called} takes no context: name a contextual model")
    check_num_contexts(request.num_contexts, opened.called, opened.num_contexts)
    to_device(model, request.device)
    suite = open_suite(_get_suite_name(request, opened), progress)
    dataset, query = find_query(suite, request.query, request.dataset)
    if not query.id:
        progress(f"no query has this id or text: {shorten(repr(request.query))} is read as a query of your own")
    collection, wrong = _read(suite, dataset), get_wrong_corpus(suite, dataset, progress)
    kinds = ("own", "wrong", *(["null"] if model.config.sequence_dropout > 0 else []))
    count = opened.num_contexts if request.num_contexts is None else request.num_contexts
    swap = Swap(model, collection, wrong, kinds, count, request.context_seed)
    ranking = Ranking(model, collection, query, progress)
    called = opened.called if opened.run is None else run_id(opened.run)
    return explain_query(swap, query, ranking, called=called, suite=suite.name, top=request.top)


def _get_suite_name(request: ExplanationRequest, opened: Opened) -> str:
    if request.suite is not None:
        return request.suite
    if opened.run is None:
        raise ValueError(f"{opened.called} is not a run, so its suite is unknown: name one with --suite")
    return opened.run.suite


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


class Ranking:
    """Rank a collection for one query under the current context, and report the progress."""

    def __init__(self, model: ContextualModel, collection: Collection, query: Query, progress: Progress) -> None:
        self._model, self._collection, self._query, self._progress = model, collection, query, progress
        documents = collection.retrieval.documents
        starts = range(0, len(documents), DOCUMENTS_PER_BLOCK)
        self._blocks = [documents[start : start + DOCUMENTS_PER_BLOCK] for start in starts]
        self._tokens: dict[int, Tokens] = {}

    def __call__(self, kind: str) -> Mapping[str, float]:
        """Return the scores of the best documents by id."""
        collection, query_id = self._collection, self._query.id or "asked"
        query_1D = self._model.encode([self._query.text], "query")
        k = NUM_RANKED + collection.num_extra_hits
        run = search(query_1D, self._embed_documents(kind), [query_id], collection.retrieval.document_ids, k)
        hits = apply_hit_quirks(run, collection, NUM_RANKED)[query_id]
        if not hits:
            raise ValueError(
                f"under the {kind} context every document of {collection.retrieval.name} scores the same for "
                f"{shorten(repr(self._query.text))}: there is no ranking to explain; choose another query or model"
            )
        return hits

    def _embed_documents(self, kind: str) -> np.ndarray:
        """Return the vectors of the documents, (N, D). Print the progress every few seconds."""
        num_documents, num_done = len(self._collection.retrieval.documents), 0
        name = self._collection.retrieval.name
        self._progress(f"searching {num_documents} documents of {name} under the {kind} context")
        vectors = []
        started = reported = time.monotonic()
        for index, block in enumerate(self._blocks):
            # the tokens are the same under every context
            if index not in self._tokens:
                self._tokens[index] = self._model.tokenize(block, self._collection.document_role)
            vectors.append(self._model.encode_tokens(self._tokens[index]))
            num_done += len(block)
            now = time.monotonic()
            if now - reported > REPORT_SECONDS and num_done < num_documents:
                left = format_seconds((now - started) * (num_documents - num_done) / num_done)
                self._progress(f"{kind} context: {num_done} of {num_documents} documents; about {left} left")
                reported = now
        return np.concatenate(vectors)
