"""Scores a model on a suite of BEIR folders, under one or several contexts; every score knows how it came about.

Metric paths: `desk/<dataset>/ndcg_at_10`; `desk/<family>/…` and `desk/mean/…` are means over datasets. Scores under
another context than the corpus' own stand under `desk+wrong/…` and `desk+null/…`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from repro.data.beir import Retrieval, Suite
from repro.evaluate.collections import Collection, read_collections, without_quirky_hits
from repro.evaluate.contexts import Context, draw_context, wrong_corpora
from repro.evaluate.retrieval import Run, bm25_search, score, search, write_run

HEADLINE = "ndcg_at_10"
TOP_K = 100
Search = Callable[[Collection, str], Run]


class Encoder(Protocol):
    """What is scored; `repro.model` offers it."""

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Chooses the corpus that vectors depend on; `prompt` is the role its texts have."""

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Gives unit vectors, float32 (N, D)."""
        ...


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How an encoder is scored: under which contexts, and against all documents or only candidates."""

    contexts: Sequence[str] = ("own",)
    num_contexts: int = 0  # 0: the encoder has no context
    seed: int = 0
    candidates: Mapping[str, Run] | None = None  # by dataset: a first stage's run, to rerank (the truncated protocol)
    pool: Retrieval | None = None  # the texts of the context "random"

    def __post_init__(self) -> None:
        if self.num_contexts == 0 and tuple(self.contexts) != ("own",):
            raise ValueError(
                f"contexts {list(self.contexts)} with num_contexts=0: without documents there is only 'own'"
            )
        if "random" in self.contexts and self.pool is None:
            raise ValueError("the context 'random' is drawn from a pool of general text: give one")


@dataclass(frozen=True)
class Evaluation:
    """Metrics by path, the NDCG@10 of every query by suite and context (datasets in order), and how they came about."""

    metrics: dict[str, float]
    per_query: dict[str, np.ndarray]
    provenance: dict[str, Any]


def evaluate_suite(
    encoder: Encoder,
    suite: Suite,
    *,
    contexts: Sequence[str] = ("own",),
    num_contexts: int = 0,
    seed: int = 0,
    folder: Path | None = None,
) -> Evaluation:
    """Scores an encoder by exact search under each context; TREC run files go to `folder`."""
    return evaluate_setting(encoder, suite, Setting(contexts=contexts, num_contexts=num_contexts, seed=seed), folder)


def evaluate_setting(encoder: Encoder, suite: Suite, setting: Setting, folder: Path | None = None) -> Evaluation:
    """The same with everything that can be set, reranking included."""
    collections = read_collections(suite)
    others = wrong_corpora(suite.datasets) if "wrong" in setting.contexts else {}
    drawn: list[dict[str, Any]] = []

    def context_of(retrieval: Retrieval, kind: str) -> Context:
        wrong = collections.get(others.get(retrieval.name, ""))
        wrong_retrieval = None if wrong is None else wrong.retrieval
        source = {"wrong": wrong_retrieval, "random": setting.pool}.get(kind, retrieval)
        return draw_context(kind, source, num_contexts=setting.num_contexts, seed=setting.seed)

    def search_with(collection: Collection, kind: str) -> Run:
        retrieval, role = collection.retrieval, collection.document_role
        if setting.num_contexts:
            context = context_of(retrieval, kind)
            encoder.set_context(context.texts, setting.seed, role)
            drawn.append({"dataset": retrieval.name, **context.provenance})
        queries, documents = encoder.encode(retrieval.queries, "query"), encoder.encode(retrieval.documents, role)
        candidates = None if setting.candidates is None else setting.candidates[retrieval.name]
        k = TOP_K + collection.num_extra_hits
        return search(queries, documents, retrieval.query_ids, retrieval.document_ids, k, candidates)

    evaluation = _score_all(suite, collections, setting.contexts, search_with, folder)
    protocol = "full search" if setting.candidates is None else "reranking of a first stage"
    provenance = {**evaluation.provenance, "protocol": protocol, "contexts": drawn}
    return Evaluation(evaluation.metrics, evaluation.per_query, provenance)


def evaluate_bm25(suite: Suite, *, folder: Path | None = None) -> Evaluation:
    """Scores BM25 on the same suite; its parameters are in the provenance."""
    collections = read_collections(suite)
    parameters: dict[str, Any] = {}

    def search_with(collection: Collection, kind: str) -> Run:
        run, used = bm25_search(collection.retrieval, TOP_K + collection.num_extra_hits)
        parameters.update(used)
        return run

    evaluation = _score_all(suite, collections, ("own",), search_with, folder)
    return Evaluation(evaluation.metrics, evaluation.per_query, {**evaluation.provenance, "bm25": parameters})


def _score_all(
    suite: Suite, collections: dict[str, Collection], contexts: Sequence[str], search_with: Search, folder: Path | None
) -> Evaluation:
    metrics: dict[str, float] = {}
    per_query: dict[str, np.ndarray] = {}
    for kind in contexts:
        name = suite.name if kind == "own" else f"{suite.name}+{kind}"
        headline = []
        for dataset in suite.datasets:
            collection = collections[dataset.name]
            run = without_quirky_hits(search_with(collection, kind), collection, TOP_K)
            if folder is not None:
                write_run(folder / name / f"{dataset.name}.trec.gz", run, tag=name)
            scores = score(run, collection.retrieval.judgements)
            metrics |= {f"{name}/{dataset.name}/{measure}": float(values.mean()) for measure, values in scores.items()}
            headline.append(scores[HEADLINE])
        metrics |= _averages(name, suite, metrics)
        per_query[name] = np.concatenate(headline).astype(np.float32)
    datasets = [{"name": d.name, "family": d.family, **collections[d.name].provenance} for d in suite.datasets]
    return Evaluation(metrics, per_query, {"name": suite.name, "datasets": datasets, "top_k": TOP_K})


def _averages(name: str, suite: Suite, metrics: dict[str, float]) -> dict[str, float]:
    measures = sorted({path.rpartition("/")[2] for path in metrics if path.startswith(f"{name}/")})
    groups = {family: [d.name for d in suite.datasets if d.family == family] for family in _families(suite)}
    groups["mean"] = [dataset.name for dataset in suite.datasets]
    clashes = sorted({dataset.name for dataset in suite.datasets} & set(groups))
    if clashes:
        raise ValueError(f"suite {suite.name}: {clashes} name both a dataset and a mean over datasets: rename them")
    return {
        f"{name}/{group}/{measure}": float(np.mean([metrics[f"{name}/{member}/{measure}"] for member in members]))
        for group, members in groups.items()
        for measure in measures
    }


def _families(suite: Suite) -> list[str]:
    return list(dict.fromkeys(dataset.family for dataset in suite.datasets))
