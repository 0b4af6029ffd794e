"""Classification of documents by their collection: heads and neighbours against scikit-learn and torch."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier
from torch.nn.functional import cross_entropy

from repro.analyses import classification
from repro.evaluate.prefixes import find_nearest, take_prefix
from repro.spec import base
from tests.analyses.by_hand import RandomVectors, make_inputs, make_numbered_collection, write_collections

WIDTH = 12


@pytest.fixture(scope="module")
def texts() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Vectors and classes of training texts, and vectors of other texts. Classes overlap, so that no head is perfect."""
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(4, WIDTH))
    classes = rng.integers(0, 4, 300)
    vectors = centres[classes] + 1.5 * rng.normal(size=(300, WIDTH))
    return vectors[:200], classes[:200], vectors[200:]


@pytest.mark.parametrize("width", (3, WIDTH))
def test_head_matches_scikit_learn(texts: tuple[np.ndarray, np.ndarray, np.ndarray], width: int) -> None:
    train, classes, others = texts
    expected = LogisticRegression(C=classification.INVERSE_REGULARISATION, tol=1e-10, max_iter=5000)
    expected.fit(take_prefix(train, width), classes)
    probabilities = expected.predict_proba(take_prefix(others, width))
    predicted, certainty = classification.classify_by_heads(train, classes, others, (width,))
    assert predicted[0].tolist() == probabilities.argmax(axis=1).tolist()
    np.testing.assert_allclose(certainty[0], probabilities.max(axis=1), atol=1e-3)


def test_tied_head_matches_autograd(texts: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    """The rows of a narrow width are shared, so the optimum differs from that of separate heads."""
    train, classes, others = texts
    widths = (3, WIDTH)
    weights = torch.zeros(WIDTH, 4, dtype=torch.float64, requires_grad=True)
    bias = torch.zeros(4, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([weights, bias], max_iter=2000, tolerance_grad=1e-9, line_search_fn="strong_wolfe")
    prefixes = {width: torch.tensor(take_prefix(train, width), dtype=torch.float64) for width in widths}

    def compute_loss() -> torch.Tensor:
        optimizer.zero_grad()
        loss = sum(cross_entropy(rows @ weights[:m] + bias, torch.tensor(classes)) for m, rows in prefixes.items())
        loss = loss + (weights**2).sum() / (2 * classification.INVERSE_REGULARISATION * len(classes))
        loss.backward()
        return loss

    optimizer.step(compute_loss)
    head = classification.fit_tied_head(train, classes, widths)
    np.testing.assert_allclose(head[0], weights.detach().numpy(), atol=0.02)
    separate = classification.fit_tied_head(train, classes, (3,))
    logits, separate_logits = (classification.compute_logits(each, others, 3) for each in (head, separate))
    assert np.abs(logits - separate_logits).max() > 0.1


def test_nearest_class_matches_scikit_learn(texts: tuple[np.ndarray, np.ndarray, np.ndarray]) -> None:
    train, classes, others = texts
    for width in (3, WIDTH):
        neighbour = KNeighborsClassifier(1, metric="cosine").fit(train[:, :width], classes)
        nearest = classes[find_nearest(others, train, width)]
        assert nearest.tolist() == neighbour.predict(others[:, :width]).tolist()


def test_quarter_of_documents_is_scored(tmp_path: Path) -> None:
    collections = [make_numbered_collection(name, 12, (0, 2)) for name in ("cats", "dogs", "cows")]
    suite = write_collections(tmp_path, *collections)
    run = base("smoke", measure="probe", nested_sizes="8+16+32")
    measured = classification.measure_probe(make_inputs(run, suite=suite), RandomVectors(), tmp_path)
    assert (measured.provenance["num_training"], measured.provenance["num_scored"]) == (18, 9)
    for kind in ("linear", "tied", "nearest"):
        path = f"desk+{kind}16/mean"
        assert measured.metrics[f"{path}/accuracy"] == measured.arrays[f"{path}/accuracy"].mean()
        # every collection is a family of its own
        assert measured.metrics[f"{path}/family_accuracy"] == measured.metrics[f"{path}/accuracy"]
    assert measured.metrics["desk+cascade8/mean/accuracy"] == measured.metrics["desk+linear8/mean/accuracy"]
