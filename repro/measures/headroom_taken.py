"""The share of the headroom that a contextual model takes: its own − wrong, over that of words weighted by IDF.

A model is told about a corpus by some of its documents. Word overlap (`headroom.py`: BM25's formula over WordPiece
tokens) can be told by the same documents: its words weigh by the IDF counted in them, mixed with the training text's.

    headroom = NDCG@10 of word overlap with IDF of the model's own context documents
             − NDCG@10 of word overlap with IDF of its wrong context documents
    share taken = (NDCG@10 of the model under the own context − under the wrong one) / headroom

Both are means over the same collections. A share of 1 means that the model gains as much from being told the right
corpus instead of a wrong one as a system does that only weighs words. It is told where the headroom's interval is above
zero: elsewhere there is nothing to take. The training text's IDF is counted in `NUM_TRAINING` documents of it.

Shapes: Q queries of all collections, V words of the vocabulary, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from repro.data.beir import HEADLINE, Retrieval
from repro.evaluate.collections import Collection, without_quirky_hits
from repro.evaluate.contexts import draw_context, wrong_corpora
from repro.evaluate.paired import Gap
from repro.evaluate.retrieval import score, search
from repro.inputs.corpora import searched_stage
from repro.inputs.inputs import Inputs
from repro.measures.divergence import document_frequency
from repro.measures.headroom import Shares, word_overlap
from repro.storage.arrays import load_array
from repro.storage.stages import Stage

RECIPE = 1
"""Version of how the headroom is computed; raise it when the same texts would give another one."""
NUM_TRAINING = 8192
MOST_DOCUMENTS = 1_000_000
"""Documents of a suite up to which the headroom is computed: a million are some minutes of a core."""
DEPTH = 10
SIDES = ("own", "wrong")


def shares_taken(gained: Mapping[str, Gap], headroom: Mapping[str, Gap]) -> dict[str, float]:
    """Return the headroom by group, and the share of it that was gained where there is one, as metrics with intervals.

    Gaps are resampled alike (`paired_gaps`), so the interval of a share is that of the ratio of paired resamples.
    """
    metrics: dict[str, float] = {}
    for group, room in headroom.items():
        metrics |= room.as_metrics(f"headroom/{group}")
        if room.low <= 0:
            continue
        has_room_R = room.samples_R > 0  # all but one in forty of them, or fewer
        ratios_R = gained[group].samples_R[has_room_R] / room.samples_R[has_room_R]
        share = Gap.of(gained[group].difference / room.difference, ratios_R)
        metrics |= {f"headroom_taken/{group}/share": share.difference}
        metrics |= {f"headroom_taken/{group}/low": share.low, f"headroom_taken/{group}/high": share.high}
    return metrics


def word_scores(
    inputs: Inputs, collections: Mapping[str, Collection], count: int
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the NDCG@10 of word overlap under the own and the wrong context documents, float32 (Q,) each.

    They are computed once for all runs with the same training text, suite and contexts. None for a large suite.
    """
    if sum(len(one.retrieval.documents) for one in collections.values()) > MOST_DOCUMENTS:
        return None
    run, graph = inputs.run, inputs.graph

    def make(folder: Path) -> None:
        for side, values_Q in zip(SIDES, compute_word_scores(inputs, collections, count), strict=True):
            np.save(folder / f"{side}.npy", values_Q)

    key = {"recipe": RECIPE, "suite": run.suite, "num_contexts": count, "context_seed": run.context_seed}
    stage = Stage("headroom", key, make, (graph.selection, searched_stage(run)))
    stage.build()
    own_Q, wrong_Q = (load_array(stage.path / f"{side}.npy", kind="f", shape=(None,)) for side in SIDES)
    return own_Q, wrong_Q


def compute_word_scores(
    inputs: Inputs, collections: Mapping[str, Collection], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Compute what `word_scores` returns."""
    prior_V, seed = training_prior(inputs), inputs.run.context_seed
    others = wrong_corpora(inputs.suite.datasets)
    found: dict[str, list[np.ndarray]] = {side: [] for side in SIDES}
    for dataset in inputs.suite.datasets:
        own, wrong = collections[dataset.name], collections[others[dataset.name]].retrieval
        under = word_overlap(own.retrieval)
        for side, corpus in zip(SIDES, (own.retrieval, wrong), strict=True):
            vectors = under(idf_of_context(corpus, count, seed, prior_V))
            ids = (own.retrieval.query_ids, own.retrieval.document_ids)
            run = without_quirky_hits(search(*vectors, *ids, DEPTH + own.num_extra_hits), own, DEPTH)
            found[side].append(score(run, own.retrieval.judgements, (HEADLINE,))[HEADLINE])
    own_Q, wrong_Q = (np.concatenate(found[side]).astype(np.float32) for side in SIDES)
    return own_Q, wrong_Q


def idf_of_context(corpus: Retrieval, count: int, seed: int, prior_V: np.ndarray) -> np.ndarray:
    """Return the IDF of the documents that a model is given of a corpus, float32 (V,)."""
    texts = draw_context("own", corpus, num_contexts=count, seed=seed).texts
    assert texts is not None, "a context that is drawn from a corpus has texts"
    return Shares.of(texts).idf(prior_V)


def training_prior(inputs: Inputs) -> np.ndarray:
    """Return the share of training documents that each word is in, counted in evenly spaced ones, float64 (V,)."""
    pairs = inputs.pairs
    places = np.unique(np.linspace(0, len(pairs) - 1, NUM_TRAINING).astype(np.int64))
    return (document_frequency([pairs.texts("document", places)]) + 0.5) / (len(places) + 1)
