"""Prefixes, SVD projections and whitening of vectors against brute force, under every context."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from repro.analyses import Measured
from repro.analyses import whitening as module
from repro.analyses.widths import compute_principal_directions, measure
from repro.data.beir import Suite
from repro.evaluate.adaptation import SHRINKAGES, Moments
from repro.evaluate.prefixes import list_rotated_views, list_views, parse_view, take_prefix
from repro.evaluate.suites import Setting, evaluate_setting
from repro.pipeline.inputs import Inputs
from repro.spec import Run, base
from tests.analyses.by_hand import HandMadePairs, compute_ndcg, make_collection, make_inputs, write_collections

WIDTH, NUM_DOCUMENTS = 32, 12
RELEVANT = (0, 3, 5)


class Hashed:
    """A model whose unit vectors of 32 dimensions are drawn from the text, the prompt and the context."""

    def __init__(self) -> None:
        self.context = ""
        self.num_texts = 0

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        self.context = texts[0] if texts else ""

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        self.num_texts += len(texts)
        rows = [np.random.default_rng([*f"{self.context}{prompt}{text}".encode()]).normal(size=WIDTH) for text in texts]
        found = np.array(rows) / np.linalg.norm(rows, axis=1, keepdims=True)
        return found.astype(np.float32)


def write_inputs(folder: Path, run: Run, *names: str) -> Inputs:
    documents = [f"text {place}" for place in range(NUM_DOCUMENTS)]
    suite = write_collections(
        folder, *(make_collection(name, [f"{name} {d}" for d in documents], RELEVANT) for name in names)
    )
    return make_inputs(run, suite=suite, pairs=HandMadePairs([0] * 40))


def score_prefix(model: Hashed, name: str, width: int, rotation: np.ndarray | None = None) -> float:
    """Return NDCG@10 of the first dimensions after a rotation."""
    rotation = np.eye(WIDTH) if rotation is None else rotation
    documents = model.encode([f"{name} text {place}" for place in range(NUM_DOCUMENTS)]) @ rotation
    queries = model.encode([f"{name} asks {number}" for number in range(len(RELEVANT))], "query") @ rotation
    return compute_ndcg(queries[:, :width], documents[:, :width], RELEVANT)


def test_widths_match_brute_force(tmp_path: Path) -> None:
    run, model = base("smoke", measure="widths", suite="desk"), Hashed()
    found = measure(write_inputs(tmp_path, run, "one", "two"), model, tmp_path / "runs")
    directions = compute_principal_directions(model.encode([f"document {row}" for row in range(40)]))
    for width in (8, 16, 32):
        for kind, rotation in (("width", None), ("svd", directions)):
            expected = np.mean([score_prefix(model, name, width, rotation) for name in ("one", "two")])
            assert found.metrics[f"desk+{kind}{width}/mean/ndcg_at_10"] == pytest.approx(expected, abs=1e-6)
            assert len(found.arrays[f"desk+{kind}{width}"]) == 6
    assert found.metrics["desk+width32/mean/ndcg_at_10"] == found.metrics["desk/mean/ndcg_at_10"]
    assert found.metrics["desk+width8/mean/ndcg_at_10"] != found.metrics["desk/mean/ndcg_at_10"]


def test_texts_are_embedded_once(tmp_path: Path) -> None:
    model = Hashed()
    run = base("smoke", measure="widths", suite="desk")
    found = measure(write_inputs(tmp_path, run, "one", "two"), model, tmp_path / "runs")
    assert {path.split("/")[0] for path in found.metrics} >= {"desk", "desk+width8", "desk+svd8"}
    assert model.num_texts == 2 * (NUM_DOCUMENTS + len(RELEVANT)) + 40, "collections and training documents"


def test_nested_runs_use_their_widths(tmp_path: Path) -> None:
    run = base("smoke", measure="widths", suite="desk", nested_sizes="4+16")
    found = measure(write_inputs(tmp_path, run, "one"), Hashed(), tmp_path / "runs")
    assert {path.split("/")[0] for path in found.metrics} == {"desk", "desk+width4", "desk+width16"}


def test_contexts_stay_apart_across_widths(tmp_path: Path) -> None:
    suite, model = (
        write_collections(tmp_path, *(make_collection(name, ["a 1", "b 2"], [1]) for name in ("one", "two"))),
        Hashed(),
    )
    setting = Setting(contexts=("own", "null"), num_contexts=1, widths=(8, 16))
    found = evaluate_setting(model, suite, setting)
    assert model.num_texts == 2 * 2 * 3
    contexts = {path.split("/")[0] for path in found.metrics}
    assert contexts == {f"desk{view}" for view in ("", "+width8", "+width16", "+null", "+null-width8", "+null-width16")}
    assert len(found.provenance["contexts"]) == 2 * 2, "a width is not another context"


class Filled(Hashed):
    """A model for four context documents that stores how many were set when it last encoded."""

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        self.context_CE = np.ones((4, 1)) if texts else np.zeros((4, 1))

    def tokenize(self, texts: Sequence[str], prompt: str) -> Sequence[str]:
        return texts

    def set_context_tokens(self, texts: Sequence[str]) -> None:
        self.context_CE = np.ones((len(texts), 1))

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        self.num_filled = int(self.context_CE.sum())
        return super().encode(texts, prompt)


@pytest.mark.parametrize(("num_test_contexts", "num_filled"), [(None, 4), (2, 2)])
def test_contexts_are_those_of_the_run(num_test_contexts: int | None, num_filled: int, tmp_path: Path) -> None:
    model, contexts = Filled(), {"test_contexts": "own+wrong", "num_test_contexts": num_test_contexts}
    run = base("smoke", measure="widths", suite="desk", architecture="contextual", nested_sizes="4+16", **contexts)
    found = measure(write_inputs(tmp_path, run, "one"), model, tmp_path / "runs")
    assert model.num_filled == num_filled
    assert {path.split("/")[0] for path in found.metrics} == {"desk", "desk+width4", "desk+width16"}


def test_views_are_read_as_written() -> None:
    assert list_views(("own", "wrong"), (16, 8)) == [
        *("own", "width8", "width16"),
        *("wrong", "wrong-width8", "wrong-width16"),
    ]
    assert list_rotated_views((16, 8)) == ["svd8", "svd16"]
    assert [parse_view(view) for view in ("own", "width8", "wrong-width16", "null", "svd16")] == [
        *(("own", None, False), ("own", 8, False)),
        *(("wrong", 16, False), ("null", None, False), ("own", 16, True)),
    ]


def test_prefixes_are_normalised_again() -> None:
    np.testing.assert_allclose(take_prefix(np.array([[3.0, 4.0, 12.0], [0.0, 0.0, 1.0]]), 2), [[0.6, 0.8], [0, 0]])


def test_svd_is_that_of_gram_matrix() -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 6)) @ np.diag([9, 5, 3, 2, 1, 0.5])
    directions = compute_principal_directions(vectors)
    eigenvectors = np.linalg.eigh(vectors.T @ vectors).eigenvectors[:, ::-1]
    np.testing.assert_allclose(np.abs(np.sum(directions * eigenvectors, axis=0)), 1, atol=1e-5)
    np.testing.assert_allclose(directions.T @ directions, np.eye(6), atol=1e-6)
    assert compute_principal_directions(vectors[:3]).shape == (6, 6), "a whole rotation even for few documents"


WHITENING_NUM_DOCUMENTS, WHITENING_RELEVANT = 40, tuple(range(0, 40, 3))
TRAINING = [f"training text {row}" for row in range(100)]


def list_documents(name: str) -> list[str]:
    """Return the documents of a collection."""
    return [f"{name} text {place}" for place in range(WHITENING_NUM_DOCUMENTS)]


def write_suite(folder: Path, *names: str) -> Suite:
    return write_collections(
        folder, *(make_collection(name, list_documents(name), WHITENING_RELEVANT) for name in names)
    )


def measure_two(folder: Path, monkeypatch: pytest.MonkeyPatch, validation: str | None = None) -> tuple[Measured, int]:
    """Measure a model of random vectors on two collections. Also return the number of embedded texts."""
    suite = write_suite(folder, "one", "two")
    chosen_on = None if validation is None else write_suite(folder, validation)
    monkeypatch.setattr(module, "load_validation_suite", lambda inputs: chosen_on)
    run, model = base("smoke", measure="whitening", suite="desk"), Hashed()
    inputs = make_inputs(run, suite=suite, pairs=HandMadePairs([0] * len(TRAINING), TRAINING))
    return module.measure(inputs, model, folder / "run"), model.num_texts


def score_whitened(name: str, fitted_to: np.ndarray, shrinkage: float) -> float:
    """Return NDCG@10 of a collection that is whitened by the moments of some vectors."""
    model = Hashed()
    queries = model.encode([f"{name} asks {number}" for number in range(len(WHITENING_RELEVANT))], "query")
    documents = model.encode(list_documents(name))
    centred = fitted_to.astype(np.float64) - fitted_to.mean(axis=0, dtype=np.float64)
    covariance = centred.T @ centred / len(centred)
    width = len(covariance)
    shrunk = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / width * np.eye(width)
    # the code under test takes another root of the inverse, which only differs by a rotation
    root = np.linalg.cholesky(np.linalg.inv(shrunk))
    queries, documents = ((side - fitted_to.mean(axis=0)) @ root for side in (queries, documents))
    return compute_ndcg(queries, documents, WHITENING_RELEVANT)


def test_views_match_brute_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments are from all documents of the own or the other corpus. Texts are embedded once."""
    found, num_texts = measure_two(tmp_path, monkeypatch)
    shrinkage, model = found.metrics["adaptation/whitened/parameter"], Hashed()
    for view, source in (("whitened", {}), ("whitened-wrong", {"one": "two", "two": "one"})):
        each = [
            score_whitened(name, model.encode(list_documents(source.get(name, name))), shrinkage)
            for name in ("one", "two")
        ]
        assert found.metrics[f"desk+{view}/one/ndcg_at_10"] == pytest.approx(each[0], abs=1e-6)
        assert found.metrics[f"desk+{view}/mean/ndcg_at_10"] == pytest.approx(np.mean(each), abs=1e-6)
    assert found.metrics["desk+whitened256/mean/ndcg_at_10"] == found.metrics["desk+whitened/mean/ndcg_at_10"]
    assert found.metrics["desk+whitened16/mean/ndcg_at_10"] != found.metrics["desk+whitened/mean/ndcg_at_10"]
    gain = found.metrics["desk+whitened/mean/ndcg_at_10"] - found.metrics["desk/mean/ndcg_at_10"]
    assert found.metrics["adaptation/whitened/gain/difference"] == pytest.approx(gain, abs=1e-6)
    assert len(found.arrays["desk+whitened-random64"]) == 2 * len(WHITENING_RELEVANT)
    assert num_texts == 2 * (WHITENING_NUM_DOCUMENTS + len(WHITENING_RELEVANT)) + WHITENING_NUM_DOCUMENTS, (
        "as much training text as own text"
    )


def test_evaluation_agrees_with_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`evaluate --whiten` and the measure give the same scores at the same shrinkage."""
    found, _ = measure_two(tmp_path / "measured", monkeypatch)
    suite = write_suite(tmp_path, "one", "two")
    pool = make_collection("pool", TRAINING, ())
    setting = Setting(
        whitened=("own", "wrong", "random"), shrinkage=found.metrics["adaptation/whitened/parameter"], pool=pool
    )
    scores = evaluate_setting(Hashed(), suite, setting).metrics
    for view in ("", "+whitened", "+whitened-wrong"):
        path = f"desk{view}/mean/ndcg_at_10"
        assert scores[path] == pytest.approx(found.metrics[path], abs=1e-6)
    assert len({scores[f"desk+whitened{source}/mean/ndcg_at_10"] for source in ("", "-wrong", "-random")}) == 3
    with pytest.raises(ValueError, match="pool"):
        Setting(whitened=("random",))


def test_moments_exclude_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Moments are computed from 16 or all 40 documents, never from queries."""
    counts: list[int] = []
    real = Moments.of

    def record(vectors: np.ndarray) -> Moments:
        counts.append(len(vectors))
        return real(vectors)

    monkeypatch.setattr(module.Moments, "of", record)
    measure_two(tmp_path, monkeypatch)
    assert set(counts) == {16, WHITENING_NUM_DOCUMENTS}


def test_parameters_come_from_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shrinkage is the best of the grid on the validation collection, fitted to its own documents."""
    found, _ = measure_two(tmp_path, monkeypatch, "valid")
    own = Hashed().encode(list_documents("valid"))
    scores = {value: score_whitened("valid", own, value) for value in SHRINKAGES}
    assert found.metrics["adaptation/whitened/parameter"] == max(scores, key=scores.__getitem__)
    recorded = found.provenance["validation"]["whitened"]
    assert recorded == {str(value): pytest.approx(score, abs=1e-6) for value, score in scores.items()}
    assert set(found.provenance["parameters"]) == set(found.provenance["validation"])


def test_draws_are_nested_and_seeded() -> None:
    """The 16 drawn documents are among the 64, and another seed draws others."""
    one = module.Collection(make_collection("one", [f"t {n}" for n in range(100)], ()), module.Quirks())
    first, same, other = (module.Embedder(Hashed(), 0, seed).embed(one) for seed in (0, 0, 1))
    assert set(first.order_D[:16]) == set(same.order_D[:16]) != set(other.order_D[:16])
    few, more = ({row.tobytes() for row in first.draw(count)} for count in (16, 64))
    assert len(few) == 16 and few < more


def test_contextual_models_embed_under_own_corpus() -> None:
    """Before a corpus is embedded, its context is drawn from it."""
    model = Hashed()
    one = module.Collection(make_collection("one", list_documents("one"), (0,)), module.Quirks())
    module.Embedder(model, 4, 0).embed(one)
    assert model.context in list_documents("one")
