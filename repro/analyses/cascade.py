"""Which collection a query belongs to, told by a cascade of prefixes: as right as one width, at what mean width.

Queries of all the suite's collections, half of them to choose thresholds on, the others to score (MRL figure 6).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.evaluate.cascade import answers, choose_thresholds, compute_class_means, stops
from repro.evaluate.collections import describe_datasets, read_collections
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.spec import nested_widths, standard_widths

VALIDATION, TEST = slice(0, None, 2), slice(1, None, 2)


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}+widthM/mean/accuracy` and `dimensions`, and of the cascade that ends at M `…+cascadeM/…`."""
    run, suite = inputs.run, inputs.suite
    if len(suite.datasets) < 2:
        raise ValueError(f"measure='cascade' on the suite {suite.name!r}: it tells collections apart, and there is one")
    collections = read_collections(suite)
    every = list(collections.values())
    documents = [model.encode(one.retrieval.documents, one.document_role) for one in every]
    queries_QW = np.concatenate([model.encode(one.retrieval.queries, "query") for one in every])
    classes_Q = np.repeat(np.arange(len(every)), [len(one.retrieval.queries) for one in every])
    widths = nested_widths(run) or standard_widths(run.hidden_size)
    told = [answers(queries_QW, compute_class_means(documents, width), run.temperature) for width in widths]
    is_right_MQ = np.stack([chosen_Q == classes_Q for chosen_Q, _ in told])
    metrics, arrays = scores(suite.name, widths, is_right_MQ, np.stack([sureness_Q for _, sureness_Q in told]))
    counts = {"num_classes": len(every), "num_scored": int(is_right_MQ[0, TEST].size)}
    return Measured(metrics, arrays, {"name": suite.name, "datasets": describe_datasets(suite, collections), **counts})


def scores(
    suite: str, widths: tuple[int, ...], is_right_MQ: np.ndarray, sureness_MQ: np.ndarray
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return accuracy and mean width of each width alone, and of the cascade that ends at it; a 1 or 0 for a query."""
    found: dict[str, np.ndarray] = {}
    for last, width in enumerate(widths):
        right, sureness = is_right_MQ[: last + 1], sureness_MQ[: last + 1]
        thresholds = choose_thresholds(right[:, VALIDATION], sureness[:, VALIDATION])
        places_T = stops(sureness[:, TEST], thresholds)
        found[f"{suite}+width{width}/mean/accuracy"] = right[last, TEST]
        found[f"{suite}+width{width}/mean/dimensions"] = np.full(len(places_T), width)
        found[f"{suite}+cascade{width}/mean/accuracy"] = np.take_along_axis(right[:, TEST], places_T[None], axis=0)[0]
        found[f"{suite}+cascade{width}/mean/dimensions"] = np.asarray(widths)[places_T]
    arrays = {name: values.astype(np.float32) for name, values in found.items() if name.endswith("accuracy")}
    return {name: float(values.mean()) for name, values in found.items()}, arrays
