"""The headroom of a context: scores of word overlap with IDF from the context documents of a model.

Words weigh by the IDF of the own or the wrong context documents (`lexical.py`). The IDF is mixed with that of
`NUM_TRAINING` training documents. The scores are a stage, computed once for all runs with the same training text, suite
and contexts. The stage holds the NDCG@10 of every query, or nothing if the suite is large or has no wrong corpus.

Shapes: Q queries of all collections, V words of the vocabulary.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from repro.data.beir import Retrieval, Suite
from repro.data.pairs import Pairs
from repro.evaluate.collections import Collection, read_collections, score_headline, search_collection
from repro.evaluate.contexts import draw_context, have_wrong_corpora, wrong_corpora
from repro.evaluate.lexical import DocumentFrequencies, build_word_overlap
from repro.storage.arrays import load_array, sample_evenly

NUM_TRAINING = 8192
MAX_DOCUMENTS = 1_000_000
"""Largest suite, in documents, for which the headroom is computed. A million take some minutes on one core."""
DEPTH = 10
SIDES = ("own", "wrong")


def write_word_scores(folder: Path, suite: Suite, pairs: Pairs, count: int, seed: int) -> None:
    """Write the result of `compute_word_scores`. Writes nothing for a large suite or a suite without a wrong corpus."""
    if count_lines(suite) > MAX_DOCUMENTS or not have_wrong_corpora(suite.datasets):
        return
    scores = compute_word_scores(suite, read_collections(suite), pairs, count, seed)
    for side, scores_Q in zip(SIDES, scores, strict=True):
        np.save(folder / f"{side}.npy", scores_Q)


def read_word_scores(folder: Path) -> tuple[np.ndarray, np.ndarray] | None:
    """Load the written scores. Returns None if the stage is empty."""
    paths = [folder / f"{side}.npy" for side in SIDES]
    if not all(path.is_file() for path in paths):
        return None
    own_Q, wrong_Q = (load_array(path, kind="f", shape=(None,)) for path in paths)
    return own_Q, wrong_Q


def count_lines(suite: Suite) -> int:
    """Return the number of corpus lines of a suite, about one per document. Documents are not held in memory."""
    count = 0
    for dataset in suite.datasets:
        with (dataset.path / "corpus.jsonl").open("rb") as lines:
            count += sum(1 for _ in lines)
    return count


def compute_word_scores(
    suite: Suite, collections: Mapping[str, Collection], pairs: Pairs, count: int, seed: int
) -> tuple[np.ndarray, np.ndarray]:
    """Return the NDCG@10 of word overlap under `count` own and `count` wrong context documents, float32 (Q,) each."""
    prior_V, others = compute_training_prior(pairs), wrong_corpora(suite.datasets)
    scores: dict[str, list[np.ndarray]] = {side: [] for side in SIDES}
    for dataset in suite.datasets:
        collection, wrong = collections[dataset.name], collections[others[dataset.name]].retrieval
        weight_words = build_word_overlap(collection.retrieval)
        for side, corpus in zip(SIDES, (collection.retrieval, wrong), strict=True):
            vectors = weight_words(compute_context_idf(corpus, count, seed, prior_V))
            run = search_collection(collection, *vectors, DEPTH)
            scores[side].append(score_headline(run, collection))
    own_Q, wrong_Q = (np.concatenate(scores[side]).astype(np.float32) for side in SIDES)
    return own_Q, wrong_Q


def compute_context_idf(corpus: Retrieval, count: int, seed: int, prior_V: np.ndarray) -> np.ndarray:
    """Return the IDF of the context documents drawn from a corpus, float32 (V,)."""
    texts = draw_context("own", corpus, num_contexts=count, seed=seed).texts
    assert texts is not None, "a context that is drawn from a corpus has texts"
    return DocumentFrequencies.count(texts).idf(prior_V)


def compute_training_prior(pairs: Pairs) -> np.ndarray:
    """Return the share of training documents that contain each word, float64 (V,), from evenly spaced documents."""
    rows = sample_evenly(len(pairs), NUM_TRAINING)
    return DocumentFrequencies.count(pairs.texts("document", rows)).compute_prior()
