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

from repro.data.beir import Retrieval, Suite, SuiteDataset
from repro.evaluate.collections import read_collections
from repro.evaluate.contexts import draw_context
from repro.evaluate.kept import content_digest
from repro.evaluate.retrieval import Run as Hits
from repro.evaluate.retrieval import score, search
from repro.evaluate.suites import Encoder
from repro.inputs.inputs import Inputs
from repro.measures import Measured
from repro.measures.first_stage import first_stage
from repro.measures.keeping import keep_in, part_of

NUM_DOMAINS = 10
NUM_FORUMS = 12
DEPTH = 10


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `cross/CONTEXT/TEST/ndcg_at_10`, `cross/own/ndcg_at_10`, `cross/other/ndcg_at_10`, `cross/crossovers`."""
    run = inputs.run
    datasets = chosen_domains(inputs.suite.datasets, NUM_FORUMS if run.suite == "cqadupstack" else NUM_DOMAINS)
    retrievals = [one.retrieval for one in read_collections(Suite(run.suite, tuple(datasets))).values()]
    first, scores = first_stage(inputs), dict[tuple[str, str], np.ndarray]()
    kept = keep_in(folder, run, model, first_stage=None if first is None else first.provenance["stage"], depth=DEPTH)
    digests = {one.name: content_digest(one) for one in retrievals}
    candidates = None if first is None else first.candidates
    for context in retrievals:
        decides = {"context": digests[context.name], "tests": digests}
        under = partial(_scores_under, context, inputs, model, retrievals, candidates)
        found = part_of(kept, f"cross-{context.name}", decides, under)
        scores |= {(context.name, test): values for test, values in found.items()}
    metrics = {f"cross/{context}/{test}/ndcg_at_10": float(values.mean()) for (context, test), values in scores.items()}
    names = [retrieval.name for retrieval in retrievals]
    own = [scores[name, name] for name in names]
    other = [np.mean([scores[context, name] for context in names if context != name], axis=0) for name in names]
    arrays = {"cross/own/ndcg_at_10": np.concatenate(own), "cross/other/ndcg_at_10": np.concatenate(other)}
    metrics |= {name: float(values.mean()) for name, values in arrays.items()}
    better = [
        any(metrics[f"cross/{c}/{t}/ndcg_at_10"] > metrics[f"cross/{t}/{t}/ndcg_at_10"] for c in names) for t in names
    ]
    metrics["cross/crossovers"] = float(np.mean(better))
    rows = [
        {"name": r.name, "family": d.family, "num_queries": len(r.judgements)}
        for r, d in zip(retrievals, datasets, strict=True)
    ]
    told = {"name": run.suite, "datasets": rows, "context_seed": run.context_seed}
    told |= {} if first is None else {"first_stage": dict(first.provenance)}
    return Measured(metrics, arrays, told)


def _scores_under(
    context: Retrieval,
    inputs: Inputs,
    model: Encoder,
    tests: list[Retrieval],
    candidates: Mapping[str, Hits] | None,
) -> dict[str, np.ndarray]:
    """Return the NDCG@10 of each query of each domain, float32 (Q,), under a context drawn from one of them."""
    run = inputs.run
    drawn = draw_context("own", context, num_contexts=run.num_contexts, seed=run.context_seed)
    model.set_context(drawn.texts, run.context_seed)
    return {test.name: _scores(model, test, None if candidates is None else candidates[test.name]) for test in tests}


def _scores(model: Encoder, test: Retrieval, candidates: Hits | None) -> np.ndarray:
    queries, documents = model.encode(test.queries, "query"), model.encode(test.documents, "document")
    hits = search(queries, documents, test.query_ids, test.document_ids, DEPTH, candidates)
    return score(hits, test.judgements, ("ndcg_at_10",))["ndcg_at_10"]


def chosen_domains(datasets: tuple[SuiteDataset, ...], count: int = NUM_DOMAINS) -> list[SuiteDataset]:
    """Return `count` datasets, families taking turns, laid out family by family."""
    families: dict[str, list[SuiteDataset]] = {}
    for dataset in datasets:
        families.setdefault(dataset.family, []).append(dataset)
    turns = [row[place] for place in range(len(datasets)) for row in families.values() if place < len(row)][:count]
    return [dataset for row in families.values() for dataset in row if dataset in turns]
