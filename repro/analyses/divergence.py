"""How far the word statistics of each evaluation set are from those of the training text (figure 8).

The paper names "the difference in IDF" without a formula. Here: words are WordPiece tokens of whole documents,
idf(w) = −log((df(w) + ½) / (n + 1)) over the n documents of a text, and the divergence of a test corpus D from the
training corpus T is the mean of |idf_T(w) − idf_D(w)| over words, each weighing the share of D's documents it is in.
So a word in every second document of D that is rare in T counts much, and a word seen once in D, whose idf is little
more than the size of D, counts little. Its unit is nats.

Shapes: V words of the vocabulary.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.evaluate.collections import describe_datasets, read_collections
from repro.evaluate.suites import Encoder
from repro.evaluate.word_overlap import document_frequency
from repro.pipeline.inputs import Inputs

TEXTS_AT_ONCE = 8192


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `{suite}/DATASET/idf_divergence` for each dataset, and the mean over them as `{suite}/mean/…`."""
    run, pairs = inputs.run, inputs.pairs
    train_V = document_frequency(pairs.blocks("document", TEXTS_AT_ONCE))
    suite, found = inputs.suite, {}
    collections = read_collections(suite)
    for dataset in suite.datasets:
        retrieval = collections[dataset.name].retrieval
        test_V = document_frequency([retrieval.documents])
        try:
            found[dataset.name] = idf_divergence(train_V, len(pairs), test_V, len(retrieval.documents))
        except ValueError as error:
            raise ValueError(f"{dataset.name}: {error}") from error
    metrics = {f"{run.suite}/{name}/idf_divergence": value for name, value in found.items()}
    metrics[f"{run.suite}/mean/idf_divergence"] = float(np.mean(list(found.values())))
    arrays = {f"{run.suite}/mean/idf_divergence": np.array(list(found.values()))}
    told = {"name": run.suite, "datasets": describe_datasets(suite, collections), "num_training_documents": len(pairs)}
    return Measured(metrics, arrays, told)


def idf_divergence(train_V: np.ndarray, num_train: int, test_V: np.ndarray, num_test: int) -> float:
    """Return the mean difference of two IDFs over the words of the test text, weighted by its document shares, in nats.

    Words that are in every test document (special tokens among them) tell nothing apart and do not count. ValueError
    where there are no others, as in a single document.
    """
    counted_V = (test_V > 0) & (test_V < num_test)
    if not counted_V.any():
        raise ValueError(f"no word tells its documents apart ({num_test} in all), so there is no IDF to compare")
    train_idf_V = -np.log((train_V + 0.5) / (num_train + 1))
    test_idf_V = -np.log((test_V + 0.5) / (num_test + 1))
    gaps, weights = np.abs(train_idf_V - test_idf_V)[counted_V], test_V[counted_V].astype(np.float64)
    return float((gaps * weights).sum() / weights.sum())
