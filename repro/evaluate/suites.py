"""Scores a model on a suite of BEIR folders, under one or several contexts; every score knows how it came about.

Metric paths: `desk/<dataset>/ndcg_at_10`; `desk/<family>/…` and `desk/mean/…` are means over datasets. Scores under
another context than the corpus' own stand under `desk+wrong/…` and `desk+null/…`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from repro.data.beir import Retrieval, Suite, load_beir
from repro.evaluate.contexts import draw_context, wrong_corpora
from repro.evaluate.retrieval import bm25_search, score, search, write_run

HEADLINE = "ndcg_at_10"
TOP_K = 100
Search = Callable[[Retrieval, str], Any]


class Encoder(Protocol):
    """What is scored; `repro.model` offers it."""

    def set_context(self, texts: Sequence[str] | None, seed: int = 0) -> None:
        """Chooses the corpus that vectors depend on."""

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Gives unit vectors, float32 (N, D)."""
        ...


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
    retrievals = {dataset.name: load_beir(dataset.path) for dataset in suite.datasets}
    others = wrong_corpora(suite.datasets) if "wrong" in contexts else {}
    drawn: list[dict[str, Any]] = []

    def search_with(retrieval: Retrieval, kind: str) -> Any:
        if num_contexts:
            source = retrievals[others[retrieval.name]] if kind == "wrong" else retrieval
            context = draw_context(kind, source, num_contexts=num_contexts, seed=seed)
            encoder.set_context(context.texts, seed)
            drawn.append({"dataset": retrieval.name, **context.provenance})
        queries, documents = encoder.encode(retrieval.queries, "query"), encoder.encode(retrieval.documents, "document")
        return search(queries, documents, retrieval.query_ids, retrieval.document_ids, TOP_K)

    evaluation = _score_all(suite, retrievals, contexts, search_with, folder)
    return Evaluation(
        evaluation.metrics,
        evaluation.per_query,
        {**evaluation.provenance, "protocol": "full search", "contexts": drawn},
    )


def evaluate_bm25(suite: Suite, *, folder: Path | None = None) -> Evaluation:
    """Scores BM25 on the same suite; its parameters are in the provenance."""
    retrievals = {dataset.name: load_beir(dataset.path) for dataset in suite.datasets}
    parameters: dict[str, Any] = {}

    def search_with(retrieval: Retrieval, kind: str) -> Any:
        run, used = bm25_search(retrieval, TOP_K)
        parameters.update(used)
        return run

    evaluation = _score_all(suite, retrievals, ("own",), search_with, folder)
    return Evaluation(evaluation.metrics, evaluation.per_query, {**evaluation.provenance, "bm25": parameters})


def _score_all(
    suite: Suite, retrievals: dict[str, Retrieval], contexts: Sequence[str], search_with: Search, folder: Path | None
) -> Evaluation:
    metrics: dict[str, float] = {}
    per_query: dict[str, np.ndarray] = {}
    for kind in contexts:
        name = suite.name if kind == "own" else f"{suite.name}+{kind}"
        headline = []
        for dataset in suite.datasets:
            run = search_with(retrievals[dataset.name], kind)
            if folder is not None:
                write_run(folder / name / f"{dataset.name}.trec.gz", run, tag=name)
            scores = score(run, retrievals[dataset.name].judgements)
            metrics |= {f"{name}/{dataset.name}/{measure}": float(values.mean()) for measure, values in scores.items()}
            headline.append(scores[HEADLINE])
        metrics |= _averages(name, suite, metrics)
        per_query[name] = np.concatenate(headline).astype(np.float32)
    datasets = [
        {"name": dataset.name, "family": dataset.family, "num_queries": len(retrievals[dataset.name].judgements)}
        for dataset in suite.datasets
    ]
    return Evaluation(metrics, per_query, {"name": suite.name, "datasets": datasets, "top_k": TOP_K})


def _averages(name: str, suite: Suite, metrics: dict[str, float]) -> dict[str, float]:
    measures = sorted({path.rpartition("/")[2] for path in metrics if path.startswith(f"{name}/")})
    groups = {family: [d.name for d in suite.datasets if d.family == family] for family in _families(suite)}
    groups["mean"] = [dataset.name for dataset in suite.datasets]
    return {
        f"{name}/{group}/{measure}": float(np.mean([metrics[f"{name}/{member}/{measure}"] for member in members]))
        for group, members in groups.items()
        for measure in measures
    }


def _families(suite: Suite) -> list[str]:
    return list(dict.fromkeys(dataset.family for dataset in suite.datasets))
