"""Measure adaptive classification: a cascade of prefixes that widens only for uncertain texts.

Each query is classified by its collection. Queries of all collections of the suite are used, half of them to choose
thresholds, the other half to score. Matryoshka Representation Learning (Kusupati et al. 2022), figure 6:

1. A class is the mean of its documents. A text belongs to the class with the nearest mean, at every width.
2. The confidence is the largest softmax probability of the cosines.
3. Each width but the last has a threshold. Thresholds are chosen on separate texts, from the narrowest width on. The
   choice is the lowest value on a grid at which the texts that stop are classified as well as by the last width.
4. A text stops at the first width whose confidence reaches the threshold.

Shapes: N texts, Q queries, T scored queries, W dimensions, C classes, M widths.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from repro.analyses import Measured
from repro.data.beir import Suite
from repro.evaluate.collections import describe_datasets, read_collections
from repro.evaluate.prefixes import take_prefix
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.spec import Run, list_standard_widths, nested_widths

VALIDATION, TEST = slice(0, None, 2), slice(1, None, 2)
"""Every other query, so that both halves cover all collections."""
GRID = np.linspace(0, 1, 101)
"""Candidate thresholds."""
NEVER = 2.0  # above every confidence: no text stops


def compute_class_means(documents: Sequence[np.ndarray], width: int) -> np.ndarray:
    """Return the unit mean of the prefixes of each class, float32 (C, width). `documents` holds (N, W) per class."""
    return take_prefix(np.stack([take_prefix(vectors_NW, width).mean(axis=0) for vectors_NW in documents]), width)


def classify_texts(texts_NW: np.ndarray, means_CM: np.ndarray, temperature: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each text, int64 (N,), and its confidence in (0, 1]. The means set the width."""
    scores_NC = (take_prefix(texts_NW, means_CM.shape[1]) @ means_CM.T).astype(np.float64) / temperature
    return choose_class(scores_NC)


def choose_class(logits_NC: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the class with the largest logit of each text, int64 (N,), and its softmax probability in (0, 1]."""
    # The largest term is exp(0) = 1, so the largest probability is 1 over the sum.
    below_NC = np.exp(logits_NC - logits_NC.max(axis=1, keepdims=True))
    return logits_NC.argmax(axis=1), 1 / below_NC.sum(axis=1)


def check_classes(run: Run, suite: Suite) -> None:
    """Raise ValueError if the suite has a single collection, so that there is nothing to classify."""
    if len(suite.datasets) < 2:
        raise ValueError(
            f"measure={run.measure!r} on the suite {suite.name!r}: it classifies by collection, but the suite has one"
        )


def choose_thresholds(is_right_MN: np.ndarray, sureness_MN: np.ndarray) -> np.ndarray:
    """Return a threshold per width but the last, (M - 1,), at which early stopping costs no accuracy.

    This holds on the given texts. On other texts the accuracy has to be measured.
    """
    is_active_N = np.ones(is_right_MN.shape[1], bool)
    gain_MN = is_right_MN.astype(np.int64) - is_right_MN[-1].astype(np.int64)
    thresholds = []
    for gain_N, sureness_N in zip(gain_MN[:-1], sureness_MN[:-1], strict=True):
        # Gains are relative to the last width: a sum of 0 or more means no loss.
        lossless = (threshold for threshold in GRID if gain_N[is_active_N & (sureness_N >= threshold)].sum() >= 0)
        thresholds.append(next(lossless, NEVER))
        is_active_N &= sureness_N < thresholds[-1]
    return np.array(thresholds)


def find_stops(sureness_MN: np.ndarray, thresholds: np.ndarray) -> np.ndarray:
    """Return the index of the width at which each text stops, int64 (N,)."""
    is_sure_MN = np.vstack([sureness_MN[:-1] >= thresholds[:, None], np.ones((1, sureness_MN.shape[1]), bool)])
    places_N: np.ndarray = is_sure_MN.argmax(axis=0)
    return places_N


def measure(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}+widthM/mean/accuracy` and `dimensions`, and the same of the cascade that ends at M (`…+cascadeM`)."""
    run, suite = inputs.run, inputs.suite
    check_classes(run, suite)
    collections = read_collections(suite)
    classes = list(collections.values())
    documents = [collection.embed_documents(model) for collection in classes]
    queries_QW = np.concatenate([model.encode(collection.retrieval.queries, "query") for collection in classes])
    classes_Q = np.repeat(np.arange(len(classes)), [len(collection.retrieval.queries) for collection in classes])
    widths = nested_widths(run) or list_standard_widths(run.hidden_size)
    answers = [classify_texts(queries_QW, compute_class_means(documents, width), run.temperature) for width in widths]
    is_right_MQ = np.stack([chosen_Q == classes_Q for chosen_Q, _ in answers])
    metrics, arrays = compute_scores(
        suite.name, widths, is_right_MQ, np.stack([sureness_Q for _, sureness_Q in answers])
    )
    counts = {"num_classes": len(classes), "num_scored": int(is_right_MQ[0, TEST].size)}
    return Measured(metrics, arrays, {"name": suite.name, "datasets": describe_datasets(suite, collections), **counts})


def compute_scores(
    suite: str, widths: tuple[int, ...], is_right_MQ: np.ndarray, sureness_MQ: np.ndarray, alone: str = "width"
) -> tuple[dict[str, float], dict[str, np.ndarray]]:
    """Return accuracy and mean width of each width alone and of the cascade that ends at it, and 1 or 0 per query.

    `alone` names the scores of a single width, for example `{suite}+width16/mean/accuracy`.
    """
    scores: dict[str, np.ndarray] = {}
    for index, width in enumerate(widths):
        right, sureness = is_right_MQ[: index + 1], sureness_MQ[: index + 1]
        thresholds = choose_thresholds(right[:, VALIDATION], sureness[:, VALIDATION])
        stops_T = find_stops(sureness[:, TEST], thresholds)
        scores[f"{suite}+{alone}{width}/mean/accuracy"] = right[index, TEST]
        scores[f"{suite}+{alone}{width}/mean/dimensions"] = np.full(len(stops_T), width)
        scores[f"{suite}+cascade{width}/mean/accuracy"] = np.take_along_axis(right[:, TEST], stops_T[None], axis=0)[0]
        scores[f"{suite}+cascade{width}/mean/dimensions"] = np.asarray(widths)[stops_T]
    arrays = {name: values.astype(np.float32) for name, values in scores.items() if name.endswith("accuracy")}
    return {name: float(values.mean()) for name, values in scores.items()}, arrays
