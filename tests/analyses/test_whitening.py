"""Scores of adapted vectors against plain computation: whose moments, how many documents, which parameter."""

from pathlib import Path

import numpy as np
import pytest

from repro.analyses import Measured
from repro.analyses import whitening as module
from repro.evaluate.adaptation import SHRINKAGES, Moments, normalize
from repro.evaluate.suites import Setting, evaluate_setting
from repro.spec import base
from tests.analyses.by_hand import HandMadePairs, collection, inputs_of, suite_of
from tests.analyses.test_widths import Hashed

NUM_DOCUMENTS, RELEVANT = 40, tuple(range(0, 40, 3))
TRAINING = [f"training text {row}" for row in range(100)]


def texts_of(name: str) -> list[str]:
    """The documents of a collection."""
    return [f"{name} text {place}" for place in range(NUM_DOCUMENTS)]


def measure_two(folder: Path, monkeypatch: pytest.MonkeyPatch, validation: str | None = None) -> tuple[Measured, int]:
    """Measure a model of random vectors on two collections; also return how many texts it embedded."""
    suite = suite_of(folder, *(collection(name, texts_of(name), RELEVANT) for name in ("one", "two")))
    chosen_on = None if validation is None else suite_of(folder, collection(validation, texts_of(validation), RELEVANT))
    monkeypatch.setattr(module, "load_validation_suite", lambda inputs: chosen_on)
    run, model = base("smoke", measure="whitening", suite="desk"), Hashed()
    inputs = inputs_of(run, suite=suite, pairs=HandMadePairs([0] * len(TRAINING), TRAINING))
    return module.measure(inputs, model, folder / "run"), model.num_texts


def ndcg_by_brute_force(name: str, fitted_to: np.ndarray, shrinkage: float) -> float:
    """NDCG@10 of a collection, whitened by the moments of some vectors."""
    model = Hashed()
    queries = model.encode([f"{name} asks {number}" for number in range(len(RELEVANT))], "query")
    documents = model.encode(texts_of(name))
    centred = fitted_to.astype(np.float64) - fitted_to.mean(axis=0, dtype=np.float64)
    covariance = centred.T @ centred / len(centred)
    width = len(covariance)
    shrunk = (1 - shrinkage) * covariance + shrinkage * np.trace(covariance) / width * np.eye(width)
    root = np.linalg.cholesky(np.linalg.inv(shrunk))  # another root than ours: rotations do not matter
    queries, documents = (normalize((side - fitted_to.mean(axis=0)) @ root) for side in (queries, documents))
    cosines = queries @ documents.T
    places = [int((row > row[own]).sum()) for row, own in zip(cosines, RELEVANT, strict=True)]
    return float(np.mean([1 / np.log2(place + 2) if place < 10 else 0.0 for place in places]))


def test_views_match_brute_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Own and wrong moments are those of all documents of the one and the other corpus. Texts are embedded once."""
    found, num_texts = measure_two(tmp_path, monkeypatch)
    shrinkage, model = found.metrics["adaptation/whitened/parameter"], Hashed()
    for view, source in (("whitened", {}), ("whitened-wrong", {"one": "two", "two": "one"})):
        each = [
            ndcg_by_brute_force(name, model.encode(texts_of(source.get(name, name))), shrinkage)
            for name in ("one", "two")
        ]
        assert found.metrics[f"desk+{view}/one/ndcg_at_10"] == pytest.approx(each[0], abs=1e-6)
        assert found.metrics[f"desk+{view}/mean/ndcg_at_10"] == pytest.approx(np.mean(each), abs=1e-6)
    assert found.metrics["desk+whitened256/mean/ndcg_at_10"] == found.metrics["desk+whitened/mean/ndcg_at_10"]
    assert found.metrics["desk+whitened16/mean/ndcg_at_10"] != found.metrics["desk+whitened/mean/ndcg_at_10"]
    gain = found.metrics["desk+whitened/mean/ndcg_at_10"] - found.metrics["desk/mean/ndcg_at_10"]
    assert found.metrics["adaptation/whitened/gain/difference"] == pytest.approx(gain, abs=1e-6)
    assert len(found.arrays["desk+whitened-random64"]) == 2 * len(RELEVANT)
    assert num_texts == 2 * (NUM_DOCUMENTS + len(RELEVANT)) + NUM_DOCUMENTS, "as much training text as own text"


def test_evaluation_agrees_with_measure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`evaluate --whiten` and the measure give the same scores at the same shrinkage."""
    found, _ = measure_two(tmp_path / "measured", monkeypatch)
    suite = suite_of(tmp_path, *(collection(name, texts_of(name), RELEVANT) for name in ("one", "two")))
    pool = collection("pool", TRAINING, ())
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
    """Every moment is of documents: of 16, or of all forty; never of queries."""
    counts: list[int] = []
    real = Moments.of

    def record(vectors: np.ndarray) -> Moments:
        counts.append(len(vectors))
        return real(vectors)

    monkeypatch.setattr(module.Moments, "of", record)
    measure_two(tmp_path, monkeypatch)
    assert set(counts) == {16, NUM_DOCUMENTS}


def test_parameters_come_from_validation(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The shrinkage is the best of the grid on the validation collection, by its own documents."""
    found, _ = measure_two(tmp_path, monkeypatch, "valid")
    own = Hashed().encode(texts_of("valid"))
    scores = {value: ndcg_by_brute_force("valid", own, value) for value in SHRINKAGES}
    assert found.metrics["adaptation/whitened/parameter"] == max(scores, key=scores.__getitem__)
    recorded = found.provenance["validation"]["whitened"]
    assert recorded == {str(value): pytest.approx(score, abs=1e-6) for value, score in scores.items()}
    assert set(found.provenance["parameters"]) == set(found.provenance["validation"])


def test_draws_are_nested_and_seeded() -> None:
    """Sixteen documents are among the sixty-four, and another seed draws others."""
    one = module.Collection(collection("one", [f"t {n}" for n in range(100)], ()), module.Quirks())
    first, same, other = (module.Embedder(Hashed(), 0, seed).embed(one) for seed in (0, 0, 1))
    assert set(first.order_D[:16]) == set(same.order_D[:16]) != set(other.order_D[:16])
    few, more = ({row.tobytes() for row in first.draw(count)} for count in (16, 64))
    assert len(few) == 16 and few < more


def test_contextual_models_embed_under_own_corpus() -> None:
    """The context of each corpus is drawn from it before it is embedded."""
    model = Hashed()
    one = module.Collection(collection("one", texts_of("one"), (0,)), module.Quirks())
    module.Embedder(model, 4, 0).embed(one)
    assert model.context in texts_of("one")
