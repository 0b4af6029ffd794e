"""Count the pairs of each training source, and the queries and documents of each evaluation set (tables 5 and 6)."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.data.pairs import read_pairs
from repro.evaluate.collections import describe_datasets, read_collections
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import domain_codes, list_domain_names


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
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
