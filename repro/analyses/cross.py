"""Scores on each of some domains under the context of each other: which corpus a model is told it searches (figure 7).

1. The suite's datasets, up to `NUM_DOMAINS` of them (of CQADupStack all), families taking turns, are test domains and
   context domains alike.
2. Each is searched under a context drawn from each, its own included; what was found under one context is kept.
3. `cross/own` and `cross/other` hold a value for each query: NDCG@10 under its own corpus, and the mean under others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.analyses.first_stage import FirstStage, first_stage
from repro.analyses.keeping import keep_in, load_cached_part
from repro.data.beir import Suite, SuiteDataset
from repro.evaluate.collections import Collection, describe_datasets, headline, ranked_in, read_collections
from repro.evaluate.contexts import draw_context
from repro.evaluate.kept import compute_content_digest
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs

NUM_DOMAINS = 10
NUM_FORUMS = 12
DEPTH = 10


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `cross/CONTEXT/TEST/ndcg_at_10`, `cross/own/ndcg_at_10`, `cross/other/ndcg_at_10`, `cross/crossovers`."""
    run = inputs.run
    most = NUM_FORUMS if run.suite == "cqadupstack" else NUM_DOMAINS
    suite = Suite(run.suite, tuple(list_chosen_domains(inputs.suite.datasets, most)))
    if len(suite.datasets) < 2:
        raise ValueError(f"measure='cross' with suite={run.suite!r}, which has no second collection to be a context")
    collections = read_collections(suite)
    first, scores = first_stage(inputs), dict[tuple[str, str], np.ndarray]()
    kept = keep_in(folder, run, model, first_stage=None if first is None else first.provenance["stage"], depth=DEPTH)
    digests = {name: [compute_content_digest(one.retrieval), repr(one.quirks)] for name, one in collections.items()}
    for name, context in collections.items():
        decides = {"context": digests[name], "tests": digests}
        under = partial(_scores_under, context, inputs, model, collections, first)
        found = load_cached_part(kept, f"cross-{name}", decides, under)
        scores |= {(name, test): values for test, values in found.items()}
    metrics = {f"cross/{context}/{test}/ndcg_at_10": float(values.mean()) for (context, test), values in scores.items()}
    own = [scores[name, name] for name in collections]
    other = [np.mean([scores[one, name] for one in collections if one != name], axis=0) for name in collections]
    arrays = {"cross/own/ndcg_at_10": np.concatenate(own), "cross/other/ndcg_at_10": np.concatenate(other)}
    metrics |= {name: float(values.mean()) for name, values in arrays.items()}
    better = [
        any(metrics[f"cross/{c}/{t}/ndcg_at_10"] > metrics[f"cross/{t}/{t}/ndcg_at_10"] for c in collections)
        for t in collections
    ]
    metrics["cross/crossovers"] = float(np.mean(better))
    told = {"name": run.suite, "datasets": describe_datasets(suite, collections), "context_seed": run.context_seed}
    told |= {} if first is None else {"first_stage": dict(first.provenance)}
    return Measured(metrics, arrays, told)


def _scores_under(
    context: Collection,
    inputs: Inputs,
    model: Encoder,
    tests: Mapping[str, Collection],
    first: FirstStage | None,
) -> dict[str, np.ndarray]:
    """Return the NDCG@10 of each query of each domain, float32 (Q,), under a context drawn from one of them."""
    run = inputs.run
    drawn = draw_context("own", context.retrieval, num_contexts=run.num_contexts, seed=run.context_seed)
    model.set_context(drawn.texts, run.context_seed, context.document_role)
    found = {}
    for name, test in tests.items():
        queries = model.encode(test.retrieval.queries, "query")
        documents = model.encode(test.retrieval.documents, test.document_role)
        hits = ranked_in(test, queries, documents, DEPTH, None if first is None else first.candidates[name])
        found[name] = headline(hits, test)
    return found


def list_chosen_domains(datasets: tuple[SuiteDataset, ...], count: int = NUM_DOMAINS) -> list[SuiteDataset]:
    """Return `count` datasets, families taking turns, laid out family by family."""
    families: dict[str, list[SuiteDataset]] = {}
    for dataset in datasets:
        families.setdefault(dataset.family, []).append(dataset)
    turns = [row[place] for place in range(len(datasets)) for row in families.values() if place < len(row)][:count]
    return [dataset for row in families.values() for dataset in row if dataset in turns]
