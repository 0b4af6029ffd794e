"""Score each of several domains under contexts from each other domain (figure 7).

1. The datasets of the suite are test domains and context domains alike, up to `NUM_DOMAINS` (all for CQADupStack).
   Families take turns.
2. Each domain is searched under a context from each domain, including its own.
3. `cross/own` and `cross/other` hold one value per query: NDCG@10 under its own corpus, and the mean under others.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from repro.analyses import Measured
from repro.analyses.retrieval import FirstStage, load_first_stage
from repro.data.beir import Suite, SuiteDataset
from repro.evaluate.collections import (
    Collection,
    describe_datasets,
    read_collections,
    score_headline,
    search_collection,
)
from repro.evaluate.contexts import draw_context, have_wrong_corpora
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs

NUM_DOMAINS = 10
NUM_FORUMS = 12
DEPTH = 10


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `cross/CONTEXT/TEST/ndcg_at_10`, `cross/own/ndcg_at_10`, `cross/other/ndcg_at_10`, `cross/crossovers`."""
    run = inputs.run
    max_domains = NUM_FORUMS if run.suite == "cqadupstack" else NUM_DOMAINS
    suite = Suite(run.suite, tuple(choose_domains(inputs.suite.datasets, max_domains)))
    if not have_wrong_corpora(suite.datasets):
        raise ValueError(
            f"measure='cross' with suite={run.suite!r}, which has no other corpus for another context; choose a suite of "
            "several collections with different documents"
        )
    collections = read_collections(suite)
    first_stage = load_first_stage(inputs)
    scores: dict[tuple[str, str], np.ndarray] = {}
    for name, context in collections.items():
        by_test = _score_under_context(context, inputs, model, collections, first_stage)
        scores |= {(name, test): values for test, values in by_test.items()}
    metrics = {f"cross/{context}/{test}/ndcg_at_10": float(values.mean()) for (context, test), values in scores.items()}
    own = [scores[name, name] for name in collections]
    other = [
        np.mean([scores[context, name] for context in collections if context != name], axis=0) for name in collections
    ]
    arrays = {"cross/own/ndcg_at_10": np.concatenate(own), "cross/other/ndcg_at_10": np.concatenate(other)}
    metrics |= {name: float(values.mean()) for name, values in arrays.items()}
    # Domains with a foreign context that scores higher than their own.
    has_better_foreign = [
        any(metrics[f"cross/{c}/{t}/ndcg_at_10"] > metrics[f"cross/{t}/{t}/ndcg_at_10"] for c in collections)
        for t in collections
    ]
    metrics["cross/crossovers"] = float(np.mean(has_better_foreign))
    provenance: dict[str, Any] = {
        "name": run.suite,
        "datasets": describe_datasets(suite, collections),
        "context_seed": run.context_seed,
    }
    if first_stage is not None:
        provenance["first_stage"] = dict(first_stage.provenance)
    return Measured(metrics, arrays, provenance)


def _score_under_context(
    context: Collection,
    inputs: Inputs,
    model: Encoder,
    tests: Mapping[str, Collection],
    first: FirstStage | None,
) -> dict[str, np.ndarray]:
    """Return the NDCG@10 of each query of each domain, float32 (Q,), under a context drawn from one domain."""
    run = inputs.run
    sample = draw_context("own", context.retrieval, num_contexts=run.num_contexts, seed=run.context_seed)
    scores, role = {}, ""
    for name, test in tests.items():
        # As in retrieval, context documents get the prompt of the searched collection. It differs for Quora only.
        if test.document_role != role:
            role = test.document_role
            model.set_context(sample.texts, run.context_seed, role)
        candidates = None if first is None else first.candidates[name]
        scores[name] = score_headline(search_collection(test, *test.embed(model), DEPTH, candidates), test)
    return scores


def choose_domains(datasets: tuple[SuiteDataset, ...], count: int = NUM_DOMAINS) -> list[SuiteDataset]:
    """Return up to `count` datasets, taking turns between families, in the order of families."""
    families: dict[str, list[SuiteDataset]] = {}
    for dataset in datasets:
        families.setdefault(dataset.family, []).append(dataset)
    selected = [row[index] for index in range(len(datasets)) for row in families.values() if index < len(row)][:count]
    return [dataset for row in families.values() for dataset in row if dataset in selected]
