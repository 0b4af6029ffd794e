"""Adaptation to a corpus: each method against numpy, scipy or a loop."""

import numpy as np
import pytest
from scipy.linalg import fractional_matrix_power

from repro.evaluate.adaptation import (
    FEEDBACK_DEPTH,
    HUB_NEIGHBOURS,
    Moments,
    add_feedback,
    all_but_the_top,
    compute_hub_scores,
    describe_small_sample,
    make_centring_map,
    make_whitening_map,
    normalize,
    subtract_hubness,
)


def draw_vectors(count: int, seed: int = 0, width: int = 12) -> np.ndarray:
    """Unit vectors with a mean and unequal variances."""
    rng = np.random.default_rng(seed)
    vectors = rng.normal(size=(count, width)) * np.linspace(0.2, 2.0, width) @ rng.normal(size=(width, width))
    return normalize(vectors + rng.normal(size=width))


def test_moments_match_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mean and covariance, computed in blocks, equal those of numpy."""
    vectors = draw_vectors(100)
    monkeypatch.setattr("repro.evaluate.adaptation.BLOCK", 7)
    moments = Moments.of(vectors)
    np.testing.assert_allclose(moments.mean_H, vectors.astype(np.float64).mean(axis=0), atol=1e-12)
    np.testing.assert_allclose(moments.covariance_HH, np.cov(vectors.T.astype(np.float64), bias=True), atol=1e-12)


@pytest.mark.parametrize("shrinkage", [0.0, 0.3, 0.8, 1.0])
def test_whitening_matches_matrix_power(shrinkage: float) -> None:
    """The map is the normalised W (x − m), where W is scipy's power of the shrunk covariance."""
    vectors, others = draw_vectors(40), draw_vectors(9, seed=1)
    covariance = np.cov(vectors.T.astype(np.float64), bias=True)
    shrunk = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / 12 * np.eye(12)
    expected = (others - vectors.mean(axis=0, dtype=np.float64)) @ fractional_matrix_power(shrunk, -0.5).T
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(make_whitening_map(Moments.of(vectors), shrinkage)(others), expected, atol=1e-6)


def test_centring_and_top_removal() -> None:
    """Centring subtracts the mean. All-but-the-top also removes the leading right singular vectors."""
    vectors, others = draw_vectors(60), draw_vectors(5, seed=3)
    mean = vectors.mean(axis=0, dtype=np.float64)
    np.testing.assert_allclose(make_centring_map(Moments.of(vectors))(others), normalize(others - mean), atol=1e-6)
    top = np.linalg.svd(vectors - mean, full_matrices=False)[2][:3]
    expected = normalize((others - mean) - (others - mean) @ top.T @ top)
    np.testing.assert_allclose(all_but_the_top(Moments.of(vectors), 3)(others), expected, atol=1e-5)


def test_feedback_matches_loop() -> None:
    """Each query moves towards the mean of its best documents."""
    documents, queries = draw_vectors(30), draw_vectors(6, seed=4)
    for moved, query in zip(add_feedback(queries, documents, 0.5), queries, strict=True):
        best = sorted(range(30), key=lambda place: -float(query @ documents[place]))[:FEEDBACK_DEPTH]
        expected = query + 0.5 * documents[best].mean(axis=0)
        np.testing.assert_allclose(moved, expected / np.linalg.norm(expected), atol=1e-6)


def test_hubness_matches_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A score is the cosine minus the weighted mean cosine between the document and its nearest documents."""
    monkeypatch.setattr("repro.evaluate.adaptation.BLOCK", 28)
    documents, queries = draw_vectors(25), draw_vectors(6, seed=5)
    cosines = documents @ documents.T
    hubs = [np.sort(np.delete(row, index))[-HUB_NEIGHBOURS:].mean() for index, row in enumerate(cosines)]
    np.testing.assert_allclose(compute_hub_scores(documents), hubs, atol=1e-6)
    new_queries, new_documents = subtract_hubness(queries, documents, 0.5)
    np.testing.assert_allclose(new_queries @ new_documents.T, queries @ documents.T - 0.5 * np.array(hubs), atol=1e-5)
    assert compute_hub_scores(documents[:1]).tolist() == [0.0]


def test_small_corpora_are_reported() -> None:
    """One document or a covariance without inverse is an error. Fewer than 16 documents give a warning."""
    with pytest.raises(ValueError, match="1 documents"):
        Moments.of(draw_vectors(1))
    with pytest.raises(ValueError, match="no inverse"):
        make_whitening_map(Moments.of(draw_vectors(5)), 0.0)
    with pytest.raises(ValueError, match="no inverse"):
        make_whitening_map(Moments.of(np.repeat(draw_vectors(1), 20, axis=0)), 0.9)
    assert describe_small_sample(15) is not None and describe_small_sample(16) is None
