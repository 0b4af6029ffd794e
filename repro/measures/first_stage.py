"""The truncated protocol (§5): a first stage finds a query's best documents, and the model ranks only those.

1. The first stage is the run's surrogate (GTR at `small`), or BM25 for protocol "rerank-bm25". It searches each
   collection of the suite in full and keeps the `rerank_depth` best documents of every query.
2. What it found is a shared stage: one TREC run a collection, named by the suite, the first stage and the depth.
3. Its recall says what no ranking of its candidates can win back: the share of a query's relevant documents among them.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from repro.batches.surrogate import load_surrogate
from repro.data.beir import Retrieval, Suite
from repro.evaluate.collections import Collection, read_collections, without_quirky_hits
from repro.evaluate.retrieval import Run as Hits
from repro.evaluate.retrieval import bm25_search, read_run, search, write_run
from repro.inputs.encoders import files_in_key
from repro.inputs.inputs import Inputs
from repro.inputs.prompting import prompts_in_key, prompts_of
from repro.model.prompts import with_prompt
from repro.spec import Run
from repro.storage.stages import Stage

RUN_ENDING, RECALL_FILE = ".trec.gz", "recall.json"


@dataclass(frozen=True)
class FirstStage:
    """The candidates of every query by dataset, and what a record keeps of how they were found."""

    candidates: Mapping[str, Hits]
    provenance: Mapping[str, Any]


def first_stage(inputs: Inputs, progress: Callable[[str], None] = lambda line: None) -> FirstStage | None:
    """Return the first stage of a run that reranks, found once and shared; None for a run that searches in full."""
    run = inputs.run
    if run.protocol == "full":
        return None
    stage = _stage(inputs)
    folder = stage.build(progress)
    names = [dataset.name for dataset in inputs.suite.datasets]
    recall = json.loads((folder / RECALL_FILE).read_text(encoding="utf-8"))
    told = {"stage": folder.name, "system": system_of(run), "depth": run.rerank_depth, "recall": recall}
    told["mean_recall"] = float(np.mean([recall[name] for name in names]))
    return FirstStage({name: read_run(folder / f"{name}{RUN_ENDING}") for name in names}, told)


def system_of(run: Run) -> str:
    """Return the name of what finds the candidates of a run that reranks."""
    return "bm25" if run.protocol == "rerank-bm25" else run.surrogate


def recall_of(hits: Hits, judgements: Mapping[str, Mapping[str, int]]) -> float:
    """Return the share of a query's relevant documents among its hits, the mean over judged queries."""
    shares = []
    for query, grades in judgements.items():
        relevant = {document for document, grade in grades.items() if grade > 0}
        shares.append(len(relevant & set(hits.get(query, ()))) / len(relevant) if relevant else 0.0)
    return float(np.mean(shares))


def _stage(inputs: Inputs) -> Stage:
    run, suite = inputs.run, inputs.suite
    depth = run.rerank_depth
    assert depth is not None, "a Run that reranks has a depth"
    key = {"suite": run.suite, "system": system_of(run), "depth": depth}
    if run.protocol != "rerank-bm25":
        key |= {"max_tokens": run.max_tokens, **files_in_key(run.surrogate)}
        key |= prompts_in_key(prompts_of(run.surrogate), "")
    return Stage("candidates", key, lambda folder: _find(run, suite, folder, depth), (inputs.graph.evaluation,))


def _find(run: Run, suite: Suite, folder: Path, depth: int) -> None:
    recall = {}
    find = _bm25 if run.protocol == "rerank-bm25" else _by_surrogate(run)
    for name, collection in read_collections(suite).items():
        hits = without_quirky_hits(find(collection, depth + collection.num_extra_hits), collection, depth)
        write_run(folder / f"{name}{RUN_ENDING}", hits, tag=system_of(run).replace(" ", "-"))
        recall[name] = recall_of(hits, collection.retrieval.judgements)
    (folder / RECALL_FILE).write_text(json.dumps(recall, indent=1) + "\n", encoding="utf-8")


def _bm25(collection: Collection, k: int) -> Hits:
    return bm25_search(collection.retrieval, k)[0]


def _by_surrogate(run: Run) -> Callable[[Collection, int], Hits]:
    surrogate, prompts = load_surrogate(run.surrogate), prompts_of(run.surrogate)

    def find(collection: Collection, k: int) -> Hits:
        retrieval: Retrieval = collection.retrieval
        queries, documents = (
            surrogate.embed(with_prompt(texts, prompts, side), run.max_tokens)
            for side, texts in (("query", retrieval.queries), ("document", retrieval.documents))
        )
        return search(queries, documents, retrieval.query_ids, retrieval.document_ids, k)

    return find
