"""Load the candidates of the truncated protocol (§5): a first stage retrieves documents, and the model reranks them.

1. The first stage is the surrogate of the run (GTR at `small`), or BM25 for the protocol "rerank-bm25". It searches each
   collection of the suite in full and returns the `rerank_depth` best documents of every query.
2. The result is a shared stage with one TREC run per collection, named by suite, first stage and depth.
3. Its recall is the upper limit of any reranking: the share of relevant documents among the candidates of a query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.evaluate.first_stage import RECALL_FILE, RUN_ENDING, get_first_stage_name
from repro.evaluate.retrieval import Hits, read_run
from repro.pipeline.inputs import Inputs


@dataclass(frozen=True)
class FirstStage:
    """The candidates of every query by dataset, and their provenance for the record."""

    candidates: Mapping[str, Hits]
    provenance: Mapping[str, Any]


def first_stage(inputs: Inputs, progress: Callable[[str], None] = lambda line: None) -> FirstStage | None:
    """Return the candidates of a reranking run, building the stage if needed. None for a run that searches in full."""
    run = inputs.run
    if run.protocol == "full":
        return None
    stage = inputs.graph.candidates
    folder = stage.build(progress)
    names = [dataset.name for dataset in inputs.suite.datasets]
    recall = json.loads((folder / RECALL_FILE).read_text(encoding="utf-8"))
    told = {"stage": folder.name, "system": get_first_stage_name(run), "depth": run.rerank_depth, "recall": recall}
    told["mean_recall"] = float(np.mean([recall[name] for name in names]))
    return FirstStage({name: read_run(folder / f"{name}{RUN_ENDING}") for name in names}, told)
