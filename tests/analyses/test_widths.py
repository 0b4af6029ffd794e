"""Prefixes, SVD projections and whitening of vectors against brute force, under every context."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from repro.analyses import Measured, whitening
from repro.analyses.widths import compute_principal_directions, measure
from repro.data.beir import Suite
from repro.evaluate.adaptation import SHRINKAGES, Moments
from repro.evaluate.collections import Collection
from repro.evaluate.prefixes import take_prefix
from repro.evaluate.suites import Setting, evaluate_setting
from repro.pipeline.inputs import Inputs
from repro.spec import Run, base
from tests.analyses.by_hand import (
    HandMadePairs,
    RandomVectors,
    compute_ndcg,
    make_inputs,
    make_numbered_collection,
    write_collections,
)

NUM_DOCUMENTS, RELEVANT = 40, tuple(range(0, 40, 3))
TRAINING = [f"training text {row}" for row in range(100)]


def write_suite(folder: Path, *names: str) -> Suite:
    return write_collections(folder, *(make_numbered_collection(name, NUM_DOCUMENTS, RELEVANT) for name in names))


def write_inputs(folder: Path, run: Run, *names: str) -> Inputs:
    return make_inputs(run, suite=write_suite(folder, *names), pairs=HandMadePairs([0] * len(TRAINING), TRAINING))


def encode_collection(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the vectors of the queries and documents of a collection."""
    model, collection = RandomVectors(), make_numbered_collection(name, NUM_DOCUMENTS, RELEVANT)
    return model.encode(collection.queries, "query"), model.encode(collection.documents)


def score_prefix(name: str, width: int, rotation: np.ndarray) -> float:
    """Return NDCG@10 of the first dimensions after a rotation."""
    queries, documents = (side @ rotation for side in encode_collection(name))
    return compute_ndcg(queries[:, :width], documents[:, :width], RELEVANT)


def test_widths_match_brute_force(tmp_path: Path) -> None:
    """Each text is embedded once for all widths."""
    run, model = base("smoke", measure="widths", suite="desk"), RandomVectors()
    measured = measure(write_inputs(tmp_path, run, "one", "two"), model, tmp_path / "runs")
    rotations = {"width": np.eye(32), "svd": compute_principal_directions(RandomVectors().encode(TRAINING))}
    for width in (8, 16, 32):
        for kind, rotation in rotations.items():
            expected = np.mean([score_prefix(name, width, rotation) for name in ("one", "two")])
            assert measured.metrics[f"desk+{kind}{width}/mean/ndcg_at_10"] == pytest.approx(expected, abs=1e-6)
            assert len(measured.arrays[f"desk+{kind}{width}"]) == 2 * len(RELEVANT)
    assert measured.metrics["desk+width32/mean/ndcg_at_10"] == measured.metrics["desk/mean/ndcg_at_10"]
    assert measured.metrics["desk+width8/mean/ndcg_at_10"] != measured.metrics["desk/mean/ndcg_at_10"]
    assert model.num_texts == 2 * (NUM_DOCUMENTS + len(RELEVANT)) + len(TRAINING)


def test_contexts_stay_apart_across_widths(tmp_path: Path) -> None:
    model, suite = RandomVectors(), write_suite(tmp_path, "one", "two")
    setting = Setting(contexts=("own", "null"), num_contexts=1, widths=(8, 16))
    evaluation = evaluate_setting(model, suite, setting)
    assert model.num_texts == 2 * 2 * (NUM_DOCUMENTS + len(RELEVANT))
    views = {path.split("/")[0] for path in evaluation.metrics}
    assert views == {f"desk{view}" for view in ("", "+width8", "+width16", "+null", "+null-width8", "+null-width16")}
    assert len(evaluation.provenance["contexts"]) == 2 * 2, "a width is not another context"


def test_views_of_a_setting() -> None:
    options = {"contexts": ("own", "wrong"), "num_contexts": 1, "widths": (16, 8), "whitened": ("own",)}
    views = Setting(**options, directions_WW=np.eye(16)).views
    expected = ["whitened", "own", "width8", "width16", "wrong", "wrong-width8", "wrong-width16", "svd8", "svd16"]
    assert [*views] == expected
    assert views["wrong-width16"] == ("wrong", 16, False, None) and views["svd8"] == ("own", 8, True, None)


def test_prefixes_are_normalised_again() -> None:
    np.testing.assert_allclose(take_prefix(np.array([[3.0, 4.0, 12.0], [0.0, 0.0, 1.0]]), 2), [[0.6, 0.8], [0, 0]])


def test_svd_is_that_of_gram_matrix() -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 6)) @ np.diag([9, 5, 3, 2, 1, 0.5])
    directions = compute_principal_directions(vectors)
    eigenvectors = np.linalg.eigh(vectors.T @ vectors).eigenvectors[:, ::-1]
    np.testing.assert_allclose(np.abs(np.sum(directions * eigenvectors, axis=0)), 1, atol=1e-5)
    np.testing.assert_allclose(directions.T @ directions, np.eye(6), atol=1e-6)
    assert compute_principal_directions(vectors[:3]).shape == (6, 6), "a whole rotation even for few documents"


class Whitened(NamedTuple):
    """A measured model of random vectors, the number of texts it embedded, and the sizes of the samples of moments."""

    measured: Measured
    num_texts: int
    sample_sizes: list[int]


def measure_whitening(folder: Path, validation: Suite | None = None) -> Whitened:
    """Measure a model of random vectors on two collections."""
    model, sample_sizes = RandomVectors(), list[int]()
    compute_moments = Moments.of

    def record_size(vectors: np.ndarray) -> Moments:
        sample_sizes.append(len(vectors))
        return compute_moments(vectors)

    inputs = write_inputs(folder, base("smoke", measure="whitening", suite="desk"), "one", "two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(whitening, "load_validation_suite", lambda inputs: validation)
        patch.setattr(whitening.Moments, "of", record_size)
        measured = whitening.measure(inputs, model, folder / "run")
    return Whitened(measured, model.num_texts, sample_sizes)


@pytest.fixture(scope="module")
def whitened(tmp_path_factory: pytest.TempPathFactory) -> Whitened:
    """Two collections without a validation suite."""
    return measure_whitening(tmp_path_factory.mktemp("whitened"))


def score_whitened(name: str, source: str, shrinkage: float) -> float:
    """Return NDCG@10 of a collection that is whitened by the moments of the documents of a source."""
    sample = encode_collection(source)[1].astype(np.float64)
    covariance = np.cov(sample.T, bias=True)
    width = len(covariance)
    shrunk = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / width * np.eye(width)
    # The code under test takes another root of the inverse, which only differs by a rotation.
    root = np.linalg.cholesky(np.linalg.inv(shrunk))
    queries, documents = ((side - sample.mean(axis=0)) @ root for side in encode_collection(name))
    return compute_ndcg(queries, documents, RELEVANT)


def test_whitened_views_match_brute_force(whitened: Whitened) -> None:
    """Moments are from all documents of the own or the other corpus."""
    metrics = whitened.measured.metrics
    scores = {view: metrics[f"desk{view}/mean/ndcg_at_10"] for view in ("", "+whitened", "+whitened16", "+whitened256")}
    shrinkage = metrics["adaptation/whitened/parameter"]
    for view, sources in (("whitened", ("one", "two")), ("whitened-wrong", ("two", "one"))):
        first, second = (score_whitened(*names, shrinkage) for names in zip(("one", "two"), sources, strict=True))
        assert metrics[f"desk+{view}/one/ndcg_at_10"] == pytest.approx(first, abs=1e-6)
        assert metrics[f"desk+{view}/mean/ndcg_at_10"] == pytest.approx((first + second) / 2, abs=1e-6)
    assert scores["+whitened256"] == scores["+whitened"] != scores["+whitened16"]
    gain = metrics["adaptation/whitened/gain/difference"]
    assert gain == pytest.approx(scores["+whitened"] - scores[""], abs=1e-6)
    assert len(whitened.measured.arrays["desk+whitened-random64"]) == 2 * len(RELEVANT)


def test_whitening_embeds_and_samples_documents(whitened: Whitened) -> None:
    """Texts are embedded once, with as much training text as own text. Moments are never from queries."""
    assert whitened.num_texts == 2 * (NUM_DOCUMENTS + len(RELEVANT)) + NUM_DOCUMENTS
    assert set(whitened.sample_sizes) == {16, NUM_DOCUMENTS}


def test_evaluation_agrees_with_measure(whitened: Whitened, tmp_path: Path) -> None:
    """`evaluate --whiten` and the measure give the same scores at the same shrinkage."""
    metrics = whitened.measured.metrics
    setting = Setting(whitened=("own", "wrong"), shrinkage=metrics["adaptation/whitened/parameter"])
    scores = evaluate_setting(RandomVectors(), write_suite(tmp_path, "one", "two"), setting).metrics
    for view in ("", "+whitened", "+whitened-wrong"):
        path = f"desk{view}/mean/ndcg_at_10"
        assert scores[path] == pytest.approx(metrics[path], abs=1e-6)
    assert scores["desk+whitened/mean/ndcg_at_10"] != scores["desk+whitened-wrong/mean/ndcg_at_10"]


def test_parameters_come_from_validation(tmp_path: Path) -> None:
    """The shrinkage is the best of the grid on the validation collection, fitted to its own documents."""
    measured = measure_whitening(tmp_path, write_suite(tmp_path, "valid")).measured
    scores = {value: score_whitened("valid", "valid", value) for value in SHRINKAGES}
    assert measured.metrics["adaptation/whitened/parameter"] == max(scores, key=scores.__getitem__)
    recorded = measured.provenance["validation"]["whitened"]
    assert recorded == {str(value): pytest.approx(score, abs=1e-6) for value, score in scores.items()}
    assert set(measured.provenance["parameters"]) == set(measured.provenance["validation"])


def test_draws_are_nested_and_seeded() -> None:
    """The 16 drawn documents are among the 64, and another seed draws others."""
    collection = Collection(make_numbered_collection("one", 100, ()), whitening.CollectionRules())
    first, same, other = (whitening.embed(RandomVectors(), 0, seed, collection) for seed in (0, 0, 1))
    assert set(first.order_D[:16]) == set(same.order_D[:16]) != set(other.order_D[:16])
    few, more = ({row.tobytes() for row in first.draw(count)} for count in (16, 64))
    assert len(few) == 16 and few < more


def test_contextual_models_embed_under_own_corpus() -> None:
    """Before a corpus is embedded, its context is drawn from it."""
    model, retrieval = RandomVectors(), make_numbered_collection("one", NUM_DOCUMENTS, (0,))
    whitening.embed(model, 4, 0, Collection(retrieval, whitening.CollectionRules()))
    assert len({*model.context} & {*retrieval.documents}) == 4
