"""The headroom of a context: what word overlap scores when it is told by the documents that a model is told by.

The words of `word_overlap.py` weigh by the IDF of a collection's own context documents, or of its wrong ones, mixed
with the training text's, which is counted in `NUM_TRAINING` documents of it. It is computed once for all runs with the
same training text, suite and contexts: a stage, which holds the NDCG@10 of every query, or nothing where there is none.

Shapes: Q queries of all collections, V words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from repro.data.beir import Retrieval, Suite
from repro.data.pairs import Pairs
from repro.evaluate.collections import Collection, headline, ranked_in, read_collections
from repro.evaluate.contexts import draw_context, wrong_corpora
from repro.evaluate.word_overlap import Shares, word_overlap
from repro.storage.arrays import load_array

NUM_TRAINING = 8192
MOST_DOCUMENTS = 1_000_000
"""Documents of a suite up to which the headroom is computed: a million are some minutes of a core."""
DEPTH = 10
SIDES = ("own", "wrong")


def write_word_scores(folder: Path, suite: Suite, pairs: Pairs, count: int, seed: int) -> None:
    """Write what `compute_word_scores` returns; nothing for a large suite, nor for one without a wrong corpus."""
    if len(suite.datasets) < 2 or count_lines(suite) > MOST_DOCUMENTS:
        return
    found = compute_word_scores(suite, read_collections(suite), pairs, count, seed)
    for side, values_Q in zip(SIDES, found, strict=True):
        np.save(folder / f"{side}.npy", values_Q)


def read_word_scores(folder: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Read what was written; None where nothing was."""
    paths = [folder / f"{side}.npy" for side in SIDES]
    if not all(path.is_file() for path in paths):
        return None
    own_Q, wrong_Q = (load_array(path, kind="f", shape=(None,)) for path in paths)
    return own_Q, wrong_Q


def count_lines(suite: Suite) -> int:
    """Return how many lines the corpora of a suite have, about one a document; no document is held."""
    count = 0
    for dataset in suite.datasets:
        with (dataset.path / "corpus.jsonl").open("rb") as lines:
            count += sum(1 for _ in lines)
    return count


def compute_word_scores(
    suite: Suite, collections: Mapping[str, Collection], pairs: Pairs, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the NDCG@10 of word overlap under `count` own and as many wrong context documents, float32 (Q,) each."""
    prior_V, others = training_prior(pairs), wrong_corpora(suite.datasets)
    found: dict[str, list[np.ndarray]] = {side: [] for side in SIDES}
    for dataset in suite.datasets:
        own, wrong = collections[dataset.name], collections[others[dataset.name]].retrieval
        under = word_overlap(own.retrieval)
        for side, corpus in zip(SIDES, (own.retrieval, wrong), strict=True):
            vectors = under(idf_of_context(corpus, count, seed, prior_V))
            found[side].append(headline(ranked_in(own, *vectors, DEPTH), own))
    own_Q, wrong_Q = (np.concatenate(found[side]).astype(np.float32) for side in SIDES)
    return own_Q, wrong_Q


def idf_of_context(corpus: Retrieval, count: int, seed: int, prior_V: np.ndarray) -> np.ndarray:
    """Return the IDF of the documents that a model is given of a corpus, float32 (V,)."""
    texts = draw_context("own", corpus, num_contexts=count, seed=seed).texts
    assert texts is not None, "a context that is drawn from a corpus has texts"
    return Shares.of(texts).idf(prior_V)


def training_prior(pairs: Pairs) -> np.ndarray:
    """Return the share of training documents that each word is in, counted in evenly spaced ones, float64 (V,)."""
    places = np.unique(np.linspace(0, len(pairs) - 1, NUM_TRAINING).astype(np.int64))
    return Shares.of(pairs.texts("document", places)).as_prior()
