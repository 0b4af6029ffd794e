"""Describe corpora: counts of pairs and texts (`counts`), and the divergence of their words (`divergence`).

`counts`: Count the pairs of each training source, and the queries and documents of each evaluation set (tables 5 and 6).

`divergence`: Measure the divergence between the word statistics of each evaluation set and those of the training text (figure 8).

The paper names "the difference in IDF" without a formula. Ours: words are WordPiece tokens, the first 512 of each
document. The IDF of a word in a text of n documents is idf(w) = −log((df(w) + ½) / (n + 1)). The divergence of a test
corpus D from the training corpus T is the mean of |idf_T(w) − idf_D(w)| over words, weighted by the share of documents of
D with the word. A word in every second document of D that is rare in T counts a lot. A word seen once in D counts little,
since its IDF mostly reflects the size of D. The unit is nats.

Shapes: D datasets, V words of the vocabulary.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.data.beir import compute_mean_weights
from repro.data.pairs import read_pairs
from repro.evaluate.collections import describe_datasets, read_collections
from repro.evaluate.lexical import count_document_frequency
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import domain_codes, list_domain_names

# ---- counts


def measure_counts(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `train/NAME/…` per source (or domain, by `domain_column`) and `{suite}/NAME/…` per collection.

    NAME is also "total", and for a suite also a family. Shares refer to the pairs in use.
    """
    run, metrics = inputs.run, _compute_training_counts(inputs)
    counts: dict[str, list[dict[str, float]]] = {}
    collections = read_collections(inputs.suite)
    for dataset in inputs.suite.datasets:
        retrieval = collections[dataset.name].retrieval
        row = {
            "num_datasets": 1.0,
            "num_queries": float(len(retrieval.query_ids)),
            "num_documents": float(len(retrieval.document_ids)),
            "num_query_words": float(sum(len(text.split()) for text in retrieval.queries)),
            "num_document_words": float(sum(len(text.split()) for text in retrieval.documents)),
        }
        for name in dict.fromkeys((dataset.name, dataset.family, "total")):
            counts.setdefault(name, []).append(row)
    for name, rows in counts.items():
        sums = {count: sum(row[count] for row in rows) for count in rows[0]}
        sums["query_words"] = sums.pop("num_query_words") / sums["num_queries"]
        sums["document_words"] = sums.pop("num_document_words") / sums["num_documents"]
        metrics |= {f"{run.suite}/{name}/{count}": value for count, value in sums.items()}
    return Measured(metrics, {}, {"name": run.suite, "datasets": describe_datasets(inputs.suite, collections)})


def _compute_training_counts(inputs: Inputs) -> dict[str, float]:
    corpus, used = read_pairs(inputs.graph.corpus.path / "train.arrow"), inputs.pairs
    names = list_domain_names(inputs.run, corpus)
    codes, used_codes = (domain_codes(inputs.run, pairs) for pairs in (corpus, used))
    metrics = {
        "train/total/num_pairs": float(len(corpus)),
        "train/total/num_pairs_used": float(len(used)),
        "train/total/num_domains": float(len(np.unique(corpus.domain_codes))),
        "train/total/share": 1.0,
    }
    for code, name in enumerate(names):
        is_member, is_used_member = codes == code, used_codes == code
        metrics[f"train/{name}/num_pairs"] = float(is_member.sum())
        metrics[f"train/{name}/num_pairs_used"] = float(is_used_member.sum())
        metrics[f"train/{name}/num_domains"] = float(len(np.unique(corpus.domain_codes[is_member])))
        metrics[f"train/{name}/share"] = float(is_used_member.sum()) / len(used)
    return metrics


# ---- divergence


TEXTS_PER_CHUNK = 8192


def measure_divergence(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `{suite}/DATASET/idf_divergence` per dataset, and their mean as `{suite}/mean/idf_divergence`."""
    run, pairs = inputs.run, inputs.pairs
    train_V = count_document_frequency(pairs.blocks("document", TEXTS_PER_CHUNK))
    suite, divergences = inputs.suite, {}
    collections = read_collections(suite)
    for dataset in suite.datasets:
        retrieval = collections[dataset.name].retrieval
        test_V = count_document_frequency([retrieval.documents])
        try:
            divergences[dataset.name] = compute_idf_divergence(train_V, len(pairs), test_V, len(retrieval.documents))
        except ValueError as error:
            raise ValueError(f"{dataset.name}: {error}") from error
    metrics = {f"{run.suite}/{name}/idf_divergence": value for name, value in divergences.items()}
    rows = describe_datasets(suite, collections)
    # Parts of one dataset count once together, as in the means of all other analyses.
    weighted_D = np.array(list(divergences.values())) * (compute_mean_weights(rows) or 1.0)
    metrics[f"{run.suite}/mean/idf_divergence"] = float(weighted_D.mean())
    arrays = {f"{run.suite}/mean/idf_divergence": weighted_D}
    return Measured(metrics, arrays, {"name": run.suite, "datasets": rows, "num_training_documents": len(pairs)})


def compute_idf_divergence(train_V: np.ndarray, num_train: int, test_V: np.ndarray, num_test: int) -> float:
    """Return the mean difference of two IDFs over the words of the test text, weighted by document shares, in nats.

    Words in every test document, such as special tokens, do not count. Raises ValueError if there are no other words,
    for example for a single document.
    """
    counted_V = (test_V > 0) & (test_V < num_test)
    if not counted_V.any():
        raise ValueError(f"no word distinguishes its {num_test} documents, so there is no IDF to compare")
    train_idf_V = -np.log((train_V + 0.5) / (num_train + 1))
    test_idf_V = -np.log((test_V + 0.5) / (num_test + 1))
    gaps, weights = np.abs(train_idf_V - test_idf_V)[counted_V], test_V[counted_V].astype(np.float64)
    return float((gaps * weights).sum() / weights.sum())
