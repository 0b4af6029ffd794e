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
from typing import Any

import numpy as np

from repro.evaluate.first_stage import RECALL_FILE, RUN_ENDING, get_first_stage_name
from repro.evaluate.retrieval import Hits, read_run
from repro.pipeline.inputs import Inputs


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
    stage = inputs.graph.candidates
    folder = stage.build(progress)
    names = [dataset.name for dataset in inputs.suite.datasets]
    recall = json.loads((folder / RECALL_FILE).read_text(encoding="utf-8"))
    told = {"stage": folder.name, "system": get_first_stage_name(run), "depth": run.rerank_depth, "recall": recall}
    told["mean_recall"] = float(np.mean([recall[name] for name in names]))
    return FirstStage({name: read_run(folder / f"{name}{RUN_ENDING}") for name in names}, told)
