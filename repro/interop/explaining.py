"""Explain one query of a contextual model on a suite.

1. The query is found in the suite by its text or id. A text that no collection has is used as a new query.
2. The collection is embedded and ranked under each context. `repro.analyses.context_words` explains the ranking. The
   wrong corpus is the same as in `evaluate`.

Shapes: N texts, D size of a vector.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from repro.analyses.context_words import Explanation, Query, Swap, explain_query
from repro.data.beir import Suite, SuiteDataset
from repro.data.tokens import Tokens
from repro.evaluate.collections import Collection, read_collections, without_quirky_hits
from repro.evaluate.retrieval import search
from repro.interop.arguments import check_context_draw, check_num_contexts, check_revision, to_device
from repro.interop.named_runs import check_run_is_contextual
from repro.interop.opening import Opened, open_model, open_suite
from repro.interop.wrong_corpus import get_wrong_corpus
from repro.model.contextual import ContextualModel
from repro.spec.identity import run_id
from repro.text import format_seconds, short

Progress = Callable[[str], None]
NUM_RANKED = 1000
"""Number of ranked documents. Documents beyond it have no rank."""
BLOCK = 256
"""Documents between two checks of the clock."""
QUIET_SECONDS = 4.0


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
    suite = open_suite(_load_suite_for(request, opened), progress)
    dataset, query = find_query(suite, request.query, request.dataset)
    if not query.id:
        progress(f"no query has this id or text: {short(repr(request.query))} is read as a query of your own")
    collection, wrong = _read(suite, dataset), get_wrong_corpus(suite, dataset, progress)
    kinds = ("own", "wrong", *(["null"] if model.config.sequence_dropout > 0 else []))
    count = opened.num_contexts if request.num_contexts is None else request.num_contexts
    swap = Swap(model, collection, wrong, kinds, count, request.context_seed)
    hits_of = Ranking(model, collection, query, progress)
    called = opened.called if opened.run is None else run_id(opened.run)
    return explain_query(swap, query, hits_of, called=called, suite=suite.name, top=request.top)


def _load_suite_for(request: ExplanationRequest, opened: Opened) -> str:
    if request.suite is not None:
        return request.suite
    if opened.run is None:
        raise ValueError(f"{opened.called} is not a run, so its suite is unknown: name one with --suite")
    return opened.run.suite


def find_query(suite: Suite, words: str, dataset: str | None = None) -> tuple[SuiteDataset, Query]:
    """Find the query with this text or id. Return its collection and the query, whose id is empty for a new text.

    Raises:
        ValueError: if several collections have it, or if none has it and `dataset` does not choose one of several.
    """
    names = [one.name for one in suite.datasets]
    if dataset is not None and dataset not in names:
        raise ValueError(f"--dataset {short(repr(dataset))} is not in suite {suite.name}; choose one of {names}")
    searched = [one for one in suite.datasets if dataset in (None, one.name)]
    found = [(one, query) for one in searched if (query := _query_in(_read(suite, one), words)) is not None]
    if len(found) > 1:
        raise ValueError(
            f"{[one.name for one, _ in found]} all have the query {short(repr(words))}: add --dataset NAME"
        )
    if found:
        return found[0]
    if len(searched) > 1:
        raise ValueError(
            f"no collection of suite {suite.name} has the query {short(repr(words))}; choose the collection to search "
            f"with --dataset NAME, one of {names}"
        )
    return searched[0], Query(words)


def _query_in(collection: Collection, words: str) -> Query | None:
    """Return the query with this text or id. If several have this text, prefer one with judgements."""
    retrieval = collection.retrieval
    by_id = dict(zip(retrieval.query_ids, retrieval.queries, strict=True))
    if words in by_id:
        return Query(by_id[words], words)
    wanted = " ".join(words.split()).lower()
    # Ids have priority. Texts are compared without case and spaces, as a user types them.
    same = [identifier for identifier, text in by_id.items() if " ".join(text.split()).lower() == wanted]
    judged = [identifier for identifier in same if retrieval.judgements.get(identifier)]
    return Query(by_id[(judged or same)[0]], (judged or same)[0]) if same else None


def _read(suite: Suite, dataset: SuiteDataset) -> Collection:
    return read_collections(Suite(suite.name, (dataset,)))[dataset.name]


class Ranking:
    """Rank a collection for one query under the current context, and report the progress."""

    def __init__(self, model: ContextualModel, collection: Collection, query: Query, progress: Progress) -> None:
        self._model, self._collection, self._query, self._progress = model, collection, query, progress
        documents = collection.retrieval.documents
        starts = range(0, len(documents), BLOCK)
        self._blocks = [documents[start : start + BLOCK] for start in starts]
        self._tokens: dict[int, Tokens] = {}

    def __call__(self, kind: str) -> Mapping[str, float]:
        """Return the scores of the best documents by id."""
        collection, identifier = self._collection, self._query.id or "asked"
        query_1D = self._model.encode([self._query.text], "query")
        ids, k = collection.retrieval.document_ids, NUM_RANKED + collection.num_extra_hits
        run = search(query_1D, self._embed_documents(kind), [identifier], ids, k)
        if not (hits := without_quirky_hits(run, collection, NUM_RANKED)[identifier]):
            raise ValueError(
                f"under the {kind} context every document of {collection.retrieval.name} scores the same for "
                f"{short(repr(self._query.text))}: there is no ranking to explain; choose another query or model"
            )
        return hits

    def _embed_documents(self, kind: str) -> np.ndarray:
        """Return the vectors of the documents, (N, D). Print the progress every few seconds."""
        num_all, parts = len(self._collection.retrieval.documents), []
        self._progress(f"searching {num_all} documents of {self._collection.retrieval.name} under the {kind} context")
        started = reported = time.monotonic()
        for number, block in enumerate(self._blocks):
            # the tokens are the same under every context
            if number not in self._tokens:
                self._tokens[number] = self._model.tokenize(block, self._collection.document_role)
            parts.append(self._model.encode_tokens(self._tokens[number]))
            now, done = time.monotonic(), min(num_all, (number + 1) * BLOCK)
            if now - reported > QUIET_SECONDS and done < num_all:
                left = format_seconds((now - started) * (num_all - done) / done)
                self._progress(f"{kind} context: {done} of {num_all} documents; about {left} left")
                reported = now
        return np.concatenate(parts)
