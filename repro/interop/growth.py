"""Measure what it costs to keep an old context while the corpus grows.

A share of the documents of each collection counts as new. Under the old context, which is drawn from the other documents,
all documents are embedded and searched. The loss is the difference in NDCG@10 to a context that is drawn from all
documents with the same seed.

Shapes: Q queries of all collections.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from repro.data.beir import Retrieval, Suite
from repro.evaluate.collections import describe_datasets, read_collections, score_headline, search_collection
from repro.evaluate.comparison import mean_weights
from repro.evaluate.contexts import draw_context
from repro.evaluate.suites import TOP_K
from repro.model.contextual import ContextualModel, Model
from repro.report.scores import POINTS
from repro.report.view import format_with_sign
from repro.seeds import make_rng
from repro.statistics.bootstrap import paired_bootstrap, percentile_interval
from repro.statistics.units import stratified_mean
from repro.text import count_noun

SEED = 0
NEW_SHARES = (0.1, 0.5)


@dataclass(frozen=True)
class Growth:
    """NDCG@10 under the old context minus NDCG@10 under a new one, in points, with its 95 % interval."""

    new_share: float
    points: float
    low: float
    high: float
    num_queries: int

    def describe(self) -> str:
        """Return a short description for a list."""
        change, low, high = (format_with_sign(value) for value in (self.points, self.low, self.high))
        return f"{self.new_share:.0%} new documents: {change} points ({low} to {high})"


def measure_growth(model: Model, suite: Suite, *, progress: Callable[[str], None] = print) -> list[Growth]:
    """Return the change for each of `NEW_SHARES`. Raises ValueError for a model that takes no documents."""
    if not isinstance(model, ContextualModel) or model.config.is_blind:
        raise ValueError(
            "--growth-on measures old contexts, but this model takes no documents as context: leave it out"
        )
    values: list[list[np.ndarray]] = []
    collections = read_collections(suite)
    for name, collection in collections.items():
        progress(f"growth: {name}, {count_noun(len(collection.retrieval.documents), 'document')}")
        retrieval, role = collection.retrieval, collection.document_role
        contexts = []
        for source in (retrieval, *(remove_new_documents(retrieval, share, SEED) for share in NEW_SHARES)):
            context = draw_context("own", source, num_contexts=model.config.num_contexts, seed=SEED)
            contexts.append(model.context_from(context.texts, SEED, role))
        queries = model.encode_under(model.tokenize(retrieval.queries, "query"), contexts)
        documents = model.encode_under(model.tokenize(retrieval.documents, role), contexts)
        runs = (search_collection(collection, *sides, TOP_K) for sides in zip(queries, documents, strict=True))
        values.append([score_headline(run, collection) for run in runs])
    strata_Q = np.repeat(np.arange(len(values)), [len(scores[0]) for scores in values])
    # the first context is the new one, the others are the old ones
    new_Q, *old = [np.concatenate(parts) for parts in zip(*values, strict=True)]
    # parts of one dataset count once together, as in every mean of a suite
    if weights := mean_weights(describe_datasets(suite, collections)):
        weights_Q = np.array(weights)[strata_Q]
        new_Q, old = new_Q * weights_Q, [old_Q * weights_Q for old_Q in old]
    return [_compare(share, old_Q, new_Q, strata_Q) for share, old_Q in zip(NEW_SHARES, old, strict=True)]


def remove_new_documents(retrieval: Retrieval, new_share: float, seed: int) -> Retrieval:
    """Return a collection without a share of its documents, chosen by the seed. At least one document is kept."""
    num_documents = len(retrieval.documents)
    order = make_rng(seed, "corpus growth", retrieval.name).permutation(num_documents)
    rows = np.sort(order[: max(1, round(num_documents * (1 - new_share)))]).tolist()
    return replace(
        retrieval,
        document_ids=tuple(retrieval.document_ids[row] for row in rows),
        documents=tuple(retrieval.documents[row] for row in rows),
    )


def _compare(share: float, old_Q: np.ndarray, new_Q: np.ndarray, strata_Q: np.ndarray) -> Growth:
    low, high = percentile_interval(POINTS * paired_bootstrap(old_Q, new_Q, strata_Q))
    return Growth(share, POINTS * stratified_mean(old_Q - new_Q, strata_Q), float(low), float(high), len(old_Q))


def format_growth(results: Sequence[Growth], suite: str) -> str:
    """Return a sentence for the model card."""
    changes = ", ".join(result.describe() for result in results)
    return (
        f"Measured on {suite} ({count_noun(results[0].num_queries, 'query', 'queries')}), NDCG@10 under the old context "
        f"compared with a new one, with 95 % intervals over queries: {changes}."
    )
