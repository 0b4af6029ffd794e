"""Score each of several domains under contexts from each other domain (figure 7).

1. The datasets of the suite are test domains and context domains alike, up to `NUM_DOMAINS` (all for CQADupStack).
   Families take turns.
2. Each domain is searched under a context from each domain, including its own. Results are cached per context.
3. `cross/own` and `cross/other` hold one value per query: NDCG@10 under its own corpus, and the mean under others.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.analyses.caching import load_cached_part, open_cache
from repro.analyses.retrieval import FirstStage, load_first_stage
from repro.data.beir import Suite, SuiteDataset
from repro.evaluate.collections import (
    Collection,
    describe_datasets,
    read_collections,
    score_headline,
    search_collection,
)
from repro.evaluate.contexts import draw_context
from repro.evaluate.result_cache import compute_content_digest
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs

NUM_DOMAINS = 10
NUM_FORUMS = 12
DEPTH = 10


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `cross/CONTEXT/TEST/ndcg_at_10`, `cross/own/ndcg_at_10`, `cross/other/ndcg_at_10`, `cross/crossovers`."""
    run = inputs.run
    most = NUM_FORUMS if run.suite == "cqadupstack" else NUM_DOMAINS
    suite = Suite(run.suite, tuple(choose_domains(inputs.suite.datasets, most)))
    if len(suite.datasets) < 2:
        raise ValueError(
            f"measure='cross' with suite={run.suite!r}, which has no second collection for another context"
        )
    collections = read_collections(suite)
    first, scores = load_first_stage(inputs), dict[tuple[str, str], np.ndarray]()
    kept = open_cache(folder, run, model, first_stage=None if first is None else first.provenance["stage"], depth=DEPTH)
    digests = {name: [compute_content_digest(one.retrieval), repr(one.quirks)] for name, one in collections.items()}
    for name, context in collections.items():
        # A cached result depends on the context's collection and on all test collections.
        decides = {"context": digests[name], "tests": digests}
        under = partial(_score_under_context, context, inputs, model, collections, first)
        found = load_cached_part(kept, f"cross-{name}", decides, under)
        scores |= {(name, test): values for test, values in found.items()}
    metrics = {f"cross/{context}/{test}/ndcg_at_10": float(values.mean()) for (context, test), values in scores.items()}
    own = [scores[name, name] for name in collections]
    other = [np.mean([scores[one, name] for one in collections if one != name], axis=0) for name in collections]
    arrays = {"cross/own/ndcg_at_10": np.concatenate(own), "cross/other/ndcg_at_10": np.concatenate(other)}
    metrics |= {name: float(values.mean()) for name, values in arrays.items()}
    # Domains with a foreign context that scores higher than their own.
    better = [
        any(metrics[f"cross/{c}/{t}/ndcg_at_10"] > metrics[f"cross/{t}/{t}/ndcg_at_10"] for c in collections)
        for t in collections
    ]
    metrics["cross/crossovers"] = float(np.mean(better))
    provenance = {
        "name": run.suite,
        "datasets": describe_datasets(suite, collections),
        "context_seed": run.context_seed,
    }
    provenance |= {} if first is None else {"first_stage": dict(first.provenance)}
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
    drawn = draw_context("own", context.retrieval, num_contexts=run.num_contexts, seed=run.context_seed)
    model.set_context(drawn.texts, run.context_seed, context.document_role)
    found = {}
    for name, test in tests.items():
        queries = model.encode(test.retrieval.queries, "query")
        documents = model.encode(test.retrieval.documents, test.document_role)
        hits = search_collection(test, queries, documents, DEPTH, None if first is None else first.candidates[name])
        found[name] = score_headline(hits, test)
    return found


def choose_domains(datasets: tuple[SuiteDataset, ...], count: int = NUM_DOMAINS) -> list[SuiteDataset]:
    """Return up to `count` datasets, taking turns between families, in the order of families."""
    families: dict[str, list[SuiteDataset]] = {}
    for dataset in datasets:
        families.setdefault(dataset.family, []).append(dataset)
    turns = [row[place] for place in range(len(datasets)) for row in families.values() if place < len(row)][:count]
    return [dataset for row in families.values() for dataset in row if dataset in turns]
