"""Retrieve the candidates of the truncated protocol (§5): the best documents per query, shared by all runs.

BM25 or a fixed encoder searches each collection of the suite in full. The result is one TREC run per collection. Its
recall is the upper limit of any reranking of these candidates.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from repro.batches.fixed_encoder import get_surrogate
from repro.data.beir import Suite
from repro.data.own.imported import find_imported
from repro.evaluate.collections import apply_collection_rules, read_collections, search_collection
from repro.evaluate.retrieval import ENGLISH, UNICODE, Hits, search_bm25, write_run
from repro.spec import Run
from repro.storage.paths import is_imported

RUN_ENDING, RECALL_FILE = ".trec.gz", "recall.json"


def get_first_stage_name(run: Run) -> str:
    """Return the name of the system that retrieves the candidates of a reranking run."""
    return "bm25" if run.protocol == "rerank-bm25" else run.surrogate


def get_run_tokenizer(run: Run) -> str:
    """Return the BM25 tokenizer of a run: "english", as in published rows, unless the suite was imported."""
    return UNICODE if is_imported(run.suite) else ENGLISH


def get_suite_language(suite: str) -> str:
    """Return the language that BM25 stems on a suite: that of an imported corpus, otherwise English."""
    return find_imported(suite).language if is_imported(suite) else ENGLISH


def get_bm25_options(run: Run) -> dict[str, Any]:
    """Return the tokenizer and the language of BM25 on the suite of a run."""
    return {"tokenizer": get_run_tokenizer(run), "language": get_suite_language(run.suite)}


def compute_recall(hits: Hits, judgements: Mapping[str, Mapping[str, int]]) -> float:
    """Return the share of relevant documents among the hits, as a mean over judged queries."""
    shares = []
    for query, grades in judgements.items():
        relevant = {document for document, grade in grades.items() if grade > 0}
        shares.append(len(relevant & set(hits.get(query, ()))) / len(relevant) if relevant else 0.0)
    return float(np.mean(shares))


def find_candidates(run: Run, suite: Suite, folder: Path) -> None:
    """Write the `rerank_depth` best documents per query, and their recall."""
    depth = run.rerank_depth
    assert depth is not None, "a Run that reranks has a depth"
    encoder, recall = get_surrogate(run), {}
    for name, collection in read_collections(suite).items():
        if run.protocol == "rerank-bm25":
            hits, _ = search_bm25(collection.retrieval, depth + collection.num_extra_hits, **get_bm25_options(run))
            hits = apply_collection_rules(hits, collection, depth)
        else:
            hits = search_collection(collection, *collection.embed(encoder), depth)
        write_run(folder / f"{name}{RUN_ENDING}", hits, tag=get_first_stage_name(run).replace(" ", "-"))
        recall[name] = compute_recall(hits, collection.retrieval.judgements)
    (folder / RECALL_FILE).write_text(json.dumps(recall, indent=1) + "\n", encoding="utf-8")
