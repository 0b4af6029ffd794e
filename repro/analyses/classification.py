"""Classify texts by their collection from prefixes of their vectors: `cascade` and `probe`.

`cascade`: Measure adaptive classification: a cascade of prefixes that widens only for uncertain texts.

Each query is classified by its collection. Queries of all collections of the suite are used, half of them to choose
thresholds, the other half to score. Matryoshka Representation Learning (Kusupati et al. 2022), figure 6:

1. A class is the mean of its documents. A text belongs to the class with the nearest mean, at every width.
2. The confidence is the largest softmax probability of the cosines.
3. Each width but the last has a threshold. Thresholds are chosen on separate texts, from the narrowest width on. The
   choice is the lowest value on a grid at which the texts that stop are classified as well as by the last width.
4. A text stops at the first width whose confidence reaches the threshold.

Shapes: N texts, Q queries, T scored queries, W dimensions, C classes, M widths.

`probe`: Classify documents by their collection, from prefixes of their vectors: linear heads, nearest neighbour, cascades.

Half of the documents of each collection train the classifiers. A quarter chooses the thresholds of the cascades, and the
last quarter is scored. Matryoshka Representation Learning (Kusupati et al. 2022), figures 2, 3 and 6:

1. `linear`: one softmax head per width, fitted to fixed vectors.
2. `tied`: one softmax head for all widths (MRL-E). The head of a width is the first rows of its weights.
3. `nearest`: the class of the most similar training document (1-NN).
4. `cascade`: the linear heads in turn, from the narrowest on, until one is certain (`repro.analyses.classification`).

Shapes: N training documents, T other documents, W dimensions, M dimensions of a prefix, C classes, L widths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from repro.analyses import Measured, check_suite
from repro.evaluate.collections import describe_datasets, read_collections
from repro.evaluate.prefixes import find_nearest, take_prefix
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.spec import list_scored_widths

# ---- cascade


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


def measure_cascade(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}+widthM/mean/accuracy` and `dimensions`, and the same of the cascade that ends at M (`…+cascadeM`)."""
    run, suite = inputs.run, inputs.suite
    check_suite(run, len(suite.datasets) > 1, "several collections")
    collections = read_collections(suite)
    classes = list(collections.values())
    documents = [collection.embed_documents(model) for collection in classes]
    queries_QW = np.concatenate([model.encode(collection.retrieval.queries, "query") for collection in classes])
    classes_Q = np.repeat(np.arange(len(classes)), [len(collection.retrieval.queries) for collection in classes])
    widths = list_scored_widths(run)
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


# ---- probe


TRAINING, OTHERS = slice(0, None, 2), slice(1, None, 2)
"""Every other document, so that both halves cover all collections."""
INVERSE_REGULARISATION = 10.0
"""C of scikit-learn's LogisticRegression. It was not tuned."""
MAX_ITERATIONS = 500


def measure_probe(inputs: Inputs, model: Encoder, folder: Path) -> Measured:
    """Return `{suite}+linearM/mean/accuracy`, and the same of `tiedM`, `nearestM` and `cascadeM`, per width M.

    `…/family_accuracy` is the share of documents whose predicted collection belongs to the right family.

    Raises:
        ValueError: if the suite has a single collection.
    """
    run, suite = inputs.run, inputs.suite
    check_suite(run, len(suite.datasets) > 1, "several collections")
    collections = read_collections(suite)
    vectors = [collection.embed_documents(model) for collection in collections.values()]
    classes = np.arange(len(vectors))
    train_NW = np.concatenate([vectors_NW[TRAINING] for vectors_NW in vectors])
    other_TW = np.concatenate([vectors_NW[OTHERS] for vectors_NW in vectors])
    train_N = np.repeat(classes, [len(vectors_NW[TRAINING]) for vectors_NW in vectors])
    true_T = np.repeat(classes, [len(vectors_NW[OTHERS]) for vectors_NW in vectors])
    widths = list_scored_widths(run)
    predictions_LT, certainty_LT = classify_by_heads(train_NW, train_N, other_TW, widths)
    tied_head = fit_tied_head(train_NW, train_N, widths)
    predictions: dict[str, Sequence[np.ndarray]] = {
        "linear": list(predictions_LT),
        "tied": [compute_logits(tied_head, other_TW, width).argmax(axis=1) for width in widths],
        # the class of the most similar training document; ties go to the first
        "nearest": [train_N[find_nearest(other_TW, train_NW, width)] for width in widths],
    }
    metrics, arrays = compute_scores(suite.name, widths, predictions_LT == true_T, certainty_LT, alone="linear")
    families_C = np.array([dataset.family for dataset in suite.datasets])
    for kind, by_width in predictions.items():
        for width, predicted_T in zip(widths, by_width, strict=True):
            path = f"{suite.name}+{kind}{width}/mean"
            right_T = (predicted_T == true_T)[TEST]
            metrics[f"{path}/accuracy"] = float(right_T.mean())
            metrics[f"{path}/family_accuracy"] = float((families_C[predicted_T] == families_C[true_T])[TEST].mean())
            arrays[f"{path}/accuracy"] = right_T.astype(np.float32)
    counts = {"num_classes": len(classes), "num_training": len(train_N), "num_scored": int(true_T[TEST].size)}
    return Measured(metrics, arrays, {"name": suite.name, "datasets": describe_datasets(suite, collections), **counts})


def classify_by_heads(
    train_NW: np.ndarray, train_N: np.ndarray, other_TW: np.ndarray, widths: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the class of each text by a head of each width, int64 (L, T), and its probability in (0, 1], (L, T)."""
    heads = ((fit_tied_head(train_NW, train_N, (width,)), width) for width in widths)
    predicted, certainty = zip(
        *(choose_class(compute_logits(head, other_TW, width)) for head, width in heads), strict=True
    )
    return np.stack(predicted), np.stack(certainty)


Head = tuple[np.ndarray, np.ndarray]
"""Weights (W, C) and bias (C,) of a softmax head. The first M rows are the head of M dimensions, as in MRL-E."""


def compute_logits(head: Head, vectors_TW: np.ndarray, width: int) -> np.ndarray:
    """Return the logits of the prefixes of one width, float64 (T, C)."""
    weights_WC, bias_C = head
    logits_TC: np.ndarray = take_prefix(vectors_TW, width) @ weights_WC[:width] + bias_C
    return logits_TC


def fit_tied_head(train_NW: np.ndarray, train_N: np.ndarray, widths: Sequence[int]) -> Head:
    """Return the head that minimises the sum over widths of the mean cross-entropy, with an L2 penalty on the weights.

    With one width this is the objective of scikit-learn's LogisticRegression. The optimiser is L-BFGS.
    """
    from scipy.optimize import minimize

    num_texts, num_classes, full_width = len(train_N), int(train_N.max()) + 1, max(widths)
    prefixes: Mapping[int, np.ndarray] = {width: take_prefix(train_NW, width).astype(np.float64) for width in widths}
    target_NC = np.eye(num_classes)[train_N]
    penalty = 1 / (INVERSE_REGULARISATION * num_texts)

    def compute_loss(parameters: np.ndarray) -> tuple[float, np.ndarray]:
        weights_WC = parameters[:-num_classes].reshape(full_width, num_classes)
        loss = 0.5 * penalty * float((weights_WC**2).sum())
        gradient_WC, gradient_C = penalty * weights_WC, np.zeros(num_classes)
        for width, prefix_NM in prefixes.items():
            logits_NC = prefix_NM @ weights_WC[:width] + parameters[-num_classes:]
            logits_NC -= logits_NC.max(axis=1, keepdims=True)
            target_logits_N = logits_NC[np.arange(num_texts), train_N]
            # in place, because this function takes most of the time
            probabilities_NC = np.exp(logits_NC, out=logits_NC)
            sums_N = probabilities_NC.sum(axis=1)
            loss += float((np.log(sums_N) - target_logits_N).mean())
            probabilities_NC /= sums_N[:, None]
            error_NC = (probabilities_NC - target_NC) / num_texts
            gradient_WC[:width] += prefix_NM.T @ error_NC
            gradient_C += error_NC.sum(axis=0)
        return loss, np.concatenate([gradient_WC.ravel(), gradient_C])

    start = np.zeros(full_width * num_classes + num_classes)
    options = {"maxiter": MAX_ITERATIONS, "gtol": 1e-6}
    solution = minimize(compute_loss, start, jac=True, method="L-BFGS-B", options=options).x
    return solution[:-num_classes].reshape(full_width, num_classes), solution[-num_classes:]
