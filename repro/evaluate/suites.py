"""Score a model on a suite of BEIR folders under one or several contexts, with the provenance of every score.

Metric paths:

- `desk/<dataset>/ndcg_at_10`. Means over datasets are `desk/<family>/…` and `desk/mean/…`.
- `desk+wrong/…`, `desk+null/…`: under another context than documents of the searched corpus.
- `desk+width16/…`, `desk+wrong-width16/…`: the first 16 dimensions of the vectors, normalised again.
- `desk+svd16/…`: the same of vectors that were rotated first.
- `desk+whitened/…`, `desk+whitened-wrong/…`: vectors whitened by a corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from repro.data.beir import HEADLINE, Retrieval, Suite
from repro.evaluate.adaptation import (
    DEFAULT_SHRINKAGE,
    AffineMap,
    Moments,
    list_distinct_rows,
    make_whitened_view,
    make_whitening_map,
)
from repro.evaluate.collections import (
    Collection,
    Encoder,
    apply_collection_rules,
    describe_datasets,
    read_collections,
    summarise_scores,
)
from repro.evaluate.contexts import are_mostly_searched, draw_context, wrong_corpora
from repro.evaluate.prefixes import take_prefix
from repro.evaluate.result_cache import CachedResult, ResultCache
from repro.evaluate.retrieval import UNICODE, Hits, find_ties, score, search, search_bm25, write_run
from repro.spec import CONTEXTS

if TYPE_CHECKING:
    import torch

TOP_K = 100
OWN = "own"
FULL, RERANKED = "full search", "reranking of a first stage"


class ReportingEncoder(Encoder, Protocol):
    """An encoder that reports its progress."""

    report: Callable[[int, int], None]
    """Callback while texts are encoded: report(number of encoded texts, number of all texts)."""

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        ...


class View(NamedTuple):
    """One way to score the vectors of a collection.

    They are embedded under a context. Then they may be rotated, cut to a width, or whitened by a corpus.
    """

    context: str = OWN
    width: int | None = None
    is_rotated: bool = False
    whitened_by: str | None = None


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How to score an encoder: its contexts, and whether it ranks all documents or only candidates."""

    contexts: Sequence[str] = ("own",)
    num_contexts: int = 0  # 0 if the encoder has no context
    seed: int = 0
    # runs of a first stage to rerank (truncated protocol), by dataset
    candidates: Mapping[str, Hits] | None = None
    pool: Retrieval | None = None  # source of the context "random"
    # sources of the context "wrong" by dataset, by default another dataset of the suite
    wrong_from: Mapping[str, Retrieval] = field(default_factory=dict)
    widths: Sequence[int] = ()  # prefixes of the vectors to score next to the whole vectors
    # rotation of the vectors under "own", whose prefixes are then scored too
    directions_WW: np.ndarray | None = None
    # corpora that the vectors under "own" are also whitened by: own, wrong
    whitened: Sequence[str] = ()
    shrinkage: float = DEFAULT_SHRINKAGE  # of the whitening

    @property
    def views(self) -> dict[str, View]:
        """All views by name: each context followed by its widths ("own", "width16", "wrong", "wrong-width16", "svd16")."""
        # Whitened views come first, because they share the vectors of "own".
        views = {make_whitened_view(source): View(whitened_by=source) for source in self.whitened}
        widths = sorted({*self.widths})
        for context in self.contexts:
            prefix = "" if context == OWN else f"{context}-"
            views |= {context: View(context)} | {f"{prefix}width{width}": View(context, width) for width in widths}
        if self.directions_WW is not None:
            views |= {f"svd{width}": View(OWN, width, is_rotated=True) for width in widths}
        return views

    def __post_init__(self) -> None:
        if unknown := {*self.contexts, *self.whitened} - {*CONTEXTS}:
            raise ValueError(f"unknown contexts {sorted(unknown)}; choose among {[*CONTEXTS]}")
        if self.num_contexts == 0 and tuple(self.contexts) != ("own",):
            raise ValueError(f"contexts {[*self.contexts]} with num_contexts=0: without documents there is only 'own'")
        if "random" in self.contexts and self.pool is None:
            raise ValueError("the context 'random' needs a pool of general text: pass `pool`")


@dataclass(frozen=True)
class Evaluation:
    """Metrics by path, the NDCG@10 of every query by suite and context (datasets in order), and their provenance."""

    metrics: dict[str, float]
    per_query: dict[str, np.ndarray]
    provenance: dict[str, Any]


@dataclass(frozen=True)
class CollectionEnd:
    """The event at the end of a collection: its NDCG@10 by context, and whether every score came from the cache.

    `ties` holds one line per context in which ties decide scores.
    """

    dataset: str
    scores: Mapping[str, float]
    was_cached: bool
    ties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class EvaluationOutputs:
    """Outputs of an evaluation: TREC runs, the result cache, and a callback at the end of each collection."""

    runs: Path | None = None
    cache: ResultCache | None = None  # requires `runs`
    callback: Callable[[CollectionEnd], None] = lambda event: None


@dataclass(frozen=True)
class System:
    """A retrieval system: a model under contexts, or BM25.

    Attributes:
        search: Returns the run of a collection under a context, and its provenance.
        source: Returns the source corpus of a context, or None if it has none.
        is_exhaustive: Whether every query is compared with every document, so that one without hits has no ranking.
    """

    search: Callable[[Collection, str], tuple[Hits, dict[str, Any]]]
    source: Callable[[Collection, str], Retrieval | None] = lambda collection, kind: None
    is_exhaustive: bool = False


def evaluate_setting(
    encoder: Encoder,
    suite: Suite,
    setting: Setting,
    outputs: EvaluationOutputs | None = None,
    collections: Mapping[str, Collection] | None = None,
) -> Evaluation:
    """Score an encoder on a suite under each context and width. `collections` are loaded if they are not given."""
    if collections is None:
        collections = read_collections(suite)
    wrong = {}
    # A suite with one dataset has no other one, so this is computed only on demand.
    if "wrong" in (*setting.contexts, *setting.whitened):
        wrong = dict(setting.wrong_from) or {
            name: collections[other].retrieval for name, other in wrong_corpora(suite.datasets).items()
        }
        _check_wrong_corpora(collections, wrong)
    model = ModelSystem(encoder, setting, wrong)
    # Reranking leaves documents out.
    system = System(model.search, model.source, is_exhaustive=setting.candidates is None)
    evaluation, results = _score_all(suite, collections, [*setting.views], system, outputs or EvaluationOutputs())
    protocol = FULL if setting.candidates is None else RERANKED
    contexts = [
        {"dataset": dataset, **result.provenance}
        for (view, dataset), result in results.items()
        if view in setting.contexts and result.provenance
    ]
    provenance = {**evaluation.provenance, "protocol": protocol, "contexts": contexts}
    if setting.whitened:
        provenance["whitened"] = [
            {"dataset": dataset, **result.provenance["whitening"]}
            for (_, dataset), result in results.items()
            if "whitening" in result.provenance
        ]
    return Evaluation(evaluation.metrics, evaluation.per_query, provenance)


def _check_wrong_corpora(collections: Mapping[str, Collection], wrong: Mapping[str, Retrieval]) -> None:
    """Raise ValueError if most documents of a wrong corpus are searched, which would make it the right one."""
    for name, corpus in wrong.items():
        if are_mostly_searched(corpus.documents, collections[name].retrieval.documents):
            raise ValueError(
                f"most documents of {corpus.name}, the wrong corpus, are searched in {name}: name another one"
            )


def evaluate_bm25(
    suite: Suite,
    *,
    outputs: EvaluationOutputs | None = None,
    collections: Mapping[str, Collection] | None = None,
    candidates: Mapping[str, Hits] | None = None,
    tokenizer: str = UNICODE,
    language: str = "english",
) -> Evaluation:
    """Score BM25 on a suite, or on the candidates of a first stage. The provenance contains its parameters.

    `tokenizer` and `language` are those of `search_bm25`.
    """
    if collections is None:
        collections = read_collections(suite)

    def search(collection: Collection, kind: str) -> tuple[Hits, dict[str, Any]]:
        retrieval, k = collection.retrieval, TOP_K + collection.num_extra_hits
        ranked = None if candidates is None else candidates[retrieval.name]
        return search_bm25(retrieval, k, ranked, tokenizer=tokenizer, language=language)

    evaluation, results = _score_all(suite, collections, ("own",), System(search), outputs or EvaluationOutputs())
    # the parameters are the same for every dataset
    first = next(iter(results.values()))
    provenance = evaluation.provenance | {"bm25": dict(first.provenance)}
    if candidates is not None:
        provenance["protocol"] = RERANKED
    return Evaluation(evaluation.metrics, evaluation.per_query, provenance)


@dataclass
class ModelSystem:
    """An encoder under contexts.

    The texts of a collection are tokenised once. They are embedded once per context, for all widths.
    """

    encoder: Encoder
    setting: Setting
    wrong: Mapping[str, Retrieval]  # the wrong corpus of each dataset, empty if no view needs one
    _tokens: tuple[str, dict[str, Any]] = ("", {})
    # the last vectors, with their collection and context
    _last_vectors: tuple[tuple[str, str], Any] = (("", ""), None)

    def source(self, collection: Collection, kind: str) -> Retrieval | None:
        """Return the source corpus of a context."""
        view = self.setting.views[kind]
        source = view.whitened_by or view.context
        if source == "null" or (view.whitened_by is None and not self.setting.num_contexts):
            return None
        if source == "random":
            return self.setting.pool
        return self.wrong[collection.retrieval.name] if source == "wrong" else collection.retrieval

    def search(self, collection: Collection, kind: str) -> tuple[Hits, dict[str, Any]]:
        """Return the run under one context at one width, and the provenance of the context."""
        retrieval, setting = collection.retrieval, self.setting
        view = setting.views[kind]
        queries, documents, provenance = self._get_vectors(collection, view.context)
        if view.is_rotated:
            queries, documents = queries @ setting.directions_WW, documents @ setting.directions_WW
        if view.whitened_by is not None:
            whiten, details = self._fit_whitening(collection, view.whitened_by, documents)
            provenance = provenance | {"whitening": details}
            # Queries are whitened by the statistics of the documents. Statistics of test queries would leak the test
            # set.
            queries, documents = whiten(queries), whiten(documents)
        if view.width is not None:
            queries = take_prefix(queries, view.width)
            documents = take_prefix(documents, view.width)
        candidates = None if setting.candidates is None else setting.candidates[retrieval.name]
        document_ids = [retrieval.document_ids[row] for row in self._list_rows(retrieval)]
        # Some collections remove hits afterwards, for example the document that equals the query.
        k = TOP_K + collection.num_extra_hits
        return search(queries, documents, retrieval.query_ids, document_ids, k, candidates), provenance

    def _fit_whitening(
        self, collection: Collection, source: str, documents: np.ndarray
    ) -> tuple[AffineMap, dict[str, Any]]:
        """Return the whitening by all distinct documents of a corpus, as `repro adapt` fits it, and its provenance.

        A contextual model embeds another corpus under documents of that corpus.
        """
        corpus = self.source(collection, make_whitened_view(source))
        assert corpus is not None, f"vectors are whitened by {source!r}: it is a corpus"
        rows = list_distinct_rows(corpus.documents)
        if source != OWN or self.setting.candidates is not None:
            if self.setting.num_contexts:
                context = draw_context("own", corpus, num_contexts=self.setting.num_contexts, seed=self.setting.seed)
                # The statistics are those of another corpus, which the model must see as its own context.
                self.encoder.set_context(context.texts, self.setting.seed, collection.document_role)
            documents = self.encoder.encode([corpus.documents[row] for row in rows], collection.document_role)
        elif len(rows) < len(documents):
            # The common case needs no copy of all vectors.
            documents = documents[rows]
        shrinkage = self.setting.shrinkage
        details = {"kind": source, "corpus": corpus.name, "num_documents": len(rows), "shrinkage": shrinkage}
        try:
            return make_whitening_map(Moments.of(documents), shrinkage), details
        except ValueError as error:
            raise ValueError(f"{collection.retrieval.name}, whitened by its {source} corpus: {error}") from error

    def _get_vectors(self, collection: Collection, context: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Return the vectors of `_embed_texts`, cached for the last context."""
        key = (collection.retrieval.name, context)
        if self._last_vectors[0] != key:
            # Release the old vectors before computing new ones: there may be millions.
            self._last_vectors = (("", ""), None)
            self._last_vectors = (key, self._embed_texts(collection, context))
        vectors: tuple[np.ndarray, np.ndarray, dict[str, Any]] = self._last_vectors[1]
        return vectors

    def _list_rows(self, retrieval: Retrieval) -> Sequence[int]:
        """Return the indices of the documents to embed: all, or all candidates of any query."""
        rows = range(len(retrieval.document_ids))
        if self.setting.candidates is None:
            return rows
        candidates = {document_id for hits in self.setting.candidates[retrieval.name].values() for document_id in hits}
        # exact search needs at least one document
        return [row for row in rows if retrieval.document_ids[row] in candidates] or rows[:1]

    def _embed_texts(self, collection: Collection, context: str) -> tuple[np.ndarray, np.ndarray, dict[str, Any]]:
        """Return the vectors of queries and documents under one context, and the provenance of the context."""
        retrieval = collection.retrieval
        provenance = self._set_context(collection, context)
        queries = self._encode(retrieval, retrieval.queries, "query", "queries")
        texts = [retrieval.documents[row] for row in self._list_rows(retrieval)]
        documents = self._encode(retrieval, texts, collection.document_role, "documents")
        return queries, documents, provenance

    def _set_context(self, collection: Collection, kind: str) -> dict[str, Any]:
        """Set the context of the encoder, if it has one, and return its provenance."""
        if not self.setting.num_contexts:
            return {}
        source, setting = self.source(collection, kind), self.setting
        context = draw_context(kind, source, num_contexts=setting.num_contexts, seed=setting.seed)
        self.encoder.set_context(context.texts, setting.seed, collection.document_role)
        return context.provenance

    def _encode(self, retrieval: Retrieval, texts: Sequence[str], role: str, side: str) -> np.ndarray:
        """Return the vectors of one side of a collection, which is tokenised once."""
        from repro.model.encoding import TextEncoder

        if not isinstance(self.encoder, TextEncoder):
            return self.encoder.encode(texts, role)
        if self._tokens[0] != retrieval.name:
            self._tokens = (retrieval.name, {})
        tokens = self._tokens[1]
        if side not in tokens:
            tokens[side] = self.encoder.tokenize(texts, role)
        return self.encoder.encode_tokens(tokens[side])


def _score_all(
    suite: Suite,
    collections: Mapping[str, Collection],
    contexts: Sequence[str],
    system: System,
    outputs: EvaluationOutputs,
) -> tuple[Evaluation, dict[tuple[str, str], CachedResult]]:
    """Return the evaluation, and the results by context and dataset, in that order."""
    results: dict[tuple[str, str], CachedResult] = {}
    for dataset in suite.datasets:
        scores, ties, was_cached = {}, {}, True
        for kind in contexts:
            result, is_cached = _score_collection(suite.name, collections[dataset.name], kind, system, outputs)
            results[kind, dataset.name] = result
            scores[kind] = float(result.values[HEADLINE].mean())
            was_cached &= is_cached
            if result.ties:
                ties[kind] = result.ties
        outputs.callback(CollectionEnd(dataset.name, scores, was_cached, ties))
    # computed dataset by dataset, but returned context by context
    results = {(kind, dataset.name): results[kind, dataset.name] for kind in contexts for dataset in suite.datasets}
    rows = describe_datasets(suite, collections)
    scores_by_path = {
        get_path_name(suite.name, kind): [results[kind, dataset.name].values for dataset in suite.datasets]
        for kind in contexts
    }
    metrics, per_query = summarise_scores(scores_by_path, rows)
    details: dict[str, Any] = {"name": suite.name, "datasets": rows, "top_k": TOP_K}
    tie_notes = [
        {"dataset": name, "kind": kind, "note": result.ties} for (kind, name), result in results.items() if result.ties
    ]
    if tie_notes:
        details["ties"] = tie_notes
    return Evaluation(metrics, per_query, details), results


def _score_collection(
    suite: str, collection: Collection, kind: str, system: System, outputs: EvaluationOutputs
) -> tuple[CachedResult, bool]:
    """Return the result of a collection and whether it was cached. Otherwise the collection is searched and scored."""
    run_path = cache_path = None
    if outputs.runs is not None:
        run_path = outputs.runs / get_path_name(suite, kind) / f"{collection.retrieval.name}.trec.gz"
        if outputs.cache is not None:
            cache_path = outputs.cache.path(collection, kind, system.source(collection, kind))
            if (cached := outputs.cache.read(cache_path, run_path)) is not None:
                return cached, True
    run, provenance = system.search(collection, kind)
    run = apply_collection_rules(run, collection, TOP_K)
    # The run comes before its cached result, which holds the digest of the run.
    if run_path is not None:
        write_run(run_path, run, tag=get_path_name(suite, kind))
    judgements = collection.retrieval.judgements
    values = score(run, judgements)
    ties = find_ties(run, judgements, is_exhaustive=system.is_exhaustive, num_kept=TOP_K)
    details = {name: value for name, value in provenance.items() if name != "note"}
    notes = [note for note in (provenance.get("note"), ties.note) if note]
    result = CachedResult(values, details, "; ".join(notes))
    if outputs.cache is not None and run_path is not None and cache_path is not None:
        outputs.cache.write(cache_path, run_path, result)
    return result, False


def get_path_name(suite: str, kind: str) -> str:
    """Return the first component of metric paths and run folders under a context."""
    return suite if kind == "own" else f"{suite}+{kind}"
