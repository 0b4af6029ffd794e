"""Prefixes are searched as brute force would, under every context; the SVD is the best projection there is."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from repro.analyses.widths import compute_principal_directions, measure
from repro.evaluate.prefixes import list_rotated_views, list_views, parse_view, take_prefix
from repro.evaluate.suites import Setting, evaluate_setting
from repro.spec import Run, base
from tests.analyses.by_hand import HandMadePairs, collection, inputs_of, suite_of

WIDTH, NUM_DOCUMENTS = 32, 12
RELEVANT = (0, 3, 5)


class Hashed:
    """A model whose vectors are drawn from the text (and from whether there is a context), unit rows of 32."""

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


def inputs(folder: Path, run: Run, *names: str) -> object:
    documents = [f"text {place}" for place in range(NUM_DOCUMENTS)]
    suite = suite_of(folder, *(collection(name, [f"{name} {d}" for d in documents], RELEVANT) for name in names))
    return inputs_of(run, suite=suite, pairs=HandMadePairs([0] * 40))


def ndcg_by_brute_force(model: Hashed, name: str, width: int, turn: np.ndarray | None = None) -> float:
    turn = np.eye(WIDTH) if turn is None else turn
    documents = model.encode([f"{name} text {place}" for place in range(NUM_DOCUMENTS)]) @ turn
    queries = model.encode([f"{name} asks {number}" for number in range(len(RELEVANT))], "query") @ turn
    values = []
    for query, own in zip(queries, RELEVANT, strict=True):
        cosines = [
            query[:width] @ one[:width] / np.linalg.norm(query[:width]) / np.linalg.norm(one[:width])
            for one in documents
        ]
        place = int(np.sum(np.array(cosines) > cosines[own]))
        values.append(1 / np.log2(place + 2) if place < 10 else 0.0)
    return float(np.mean(values))


def test_every_width_scores_as_brute_force_does(tmp_path: Path) -> None:
    run, model = base("smoke", measure="widths", suite="desk"), Hashed()
    found = measure(inputs(tmp_path, run, "one", "two"), model, tmp_path / "runs")  # type: ignore[arg-type]
    turn = compute_principal_directions(model.encode([f"document {row}" for row in range(40)]))
    for width in (8, 16, 32):
        for kind, rotation in (("width", None), ("svd", turn)):
            expected = np.mean([ndcg_by_brute_force(model, name, width, rotation) for name in ("one", "two")])
            assert found.metrics[f"desk+{kind}{width}/mean/ndcg_at_10"] == pytest.approx(expected, abs=1e-6)
            assert len(found.arrays[f"desk+{kind}{width}"]) == 6
    assert found.metrics["desk+width32/mean/ndcg_at_10"] == found.metrics["desk/mean/ndcg_at_10"]
    assert found.metrics["desk+width8/mean/ndcg_at_10"] != found.metrics["desk/mean/ndcg_at_10"]


def test_texts_are_embedded_once_for_prefixes_and_for_prefixes_by_svd(tmp_path: Path) -> None:
    model = Hashed()
    run = base("smoke", measure="widths", suite="desk")
    found = measure(inputs(tmp_path, run, "one", "two"), model, tmp_path / "runs")  # type: ignore[arg-type]
    assert {path.split("/")[0] for path in found.metrics} >= {"desk", "desk+width8", "desk+svd8"}
    assert model.num_texts == 2 * (NUM_DOCUMENTS + len(RELEVANT)) + 40, "every collection, and the training documents"


def test_a_nested_run_is_scored_at_its_own_widths_and_without_svd(tmp_path: Path) -> None:
    run = base("smoke", measure="widths", suite="desk", nested_sizes="4+16")
    found = measure(inputs(tmp_path, run, "one"), Hashed(), tmp_path / "runs")  # type: ignore[arg-type]
    assert {path.split("/")[0] for path in found.metrics} == {"desk", "desk+width4", "desk+width16"}


def test_texts_are_embedded_once_for_all_widths_of_a_context_and_contexts_stay_apart(tmp_path: Path) -> None:
    suite, model = suite_of(tmp_path, *(collection(name, ["a 1", "b 2"], [1]) for name in ("one", "two"))), Hashed()
    setting = Setting(contexts=("own", "null"), num_contexts=1, widths=(8, 16))
    found = evaluate_setting(model, suite, setting)
    assert model.num_texts == 2 * 2 * 3
    contexts = {path.split("/")[0] for path in found.metrics}
    assert contexts == {f"desk{view}" for view in ("", "+width8", "+width16", "+null", "+null-width8", "+null-width16")}
    assert len(found.provenance["contexts"]) == 2 * 2, "a width is no context of its own"


class Filled(Hashed):
    """A model of four places for context documents that says how many were filled when it last read a text."""

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
def test_a_contextual_model_has_the_contexts_that_its_run_says_and_no_wrong_corpus_of_one(
    num_test_contexts: int | None, num_filled: int, tmp_path: Path
) -> None:
    model, told = Filled(), {"test_contexts": "own+wrong", "num_test_contexts": num_test_contexts}
    run = base("smoke", measure="widths", suite="desk", architecture="contextual", nested_sizes="4+16", **told)
    found = measure(inputs(tmp_path, run, "one"), model, tmp_path / "runs")  # type: ignore[arg-type]
    assert model.num_filled == num_filled
    assert {path.split("/")[0] for path in found.metrics} == {"desk", "desk+width4", "desk+width16"}


def test_views_are_read_as_they_are_written() -> None:
    assert list_views(("own", "wrong"), (16, 8)) == [
        *("own", "width8", "width16"),
        *("wrong", "wrong-width8", "wrong-width16"),
    ]
    assert list_rotated_views((16, 8)) == ["svd8", "svd16"]
    assert [parse_view(view) for view in ("own", "width8", "wrong-width16", "null", "svd16")] == [
        *(("own", None, False), ("own", 8, False)),
        *(("wrong", 16, False), ("null", None, False), ("own", 16, True)),
    ]


def test_a_prefix_is_normalised_anew_and_zeros_stay_zeros() -> None:
    np.testing.assert_allclose(take_prefix(np.array([[3.0, 4.0, 12.0], [0.0, 0.0, 1.0]]), 2), [[0.6, 0.8], [0, 0]])


def test_the_svd_is_that_of_the_gram_matrix_and_turns_without_changing_whole_vectors() -> None:
    vectors = np.random.default_rng(0).normal(size=(50, 6)) @ np.diag([9, 5, 3, 2, 1, 0.5])
    directions = compute_principal_directions(vectors)
    eigenvectors = np.linalg.eigh(vectors.T @ vectors).eigenvectors[:, ::-1]
    np.testing.assert_allclose(np.abs(np.sum(directions * eigenvectors, axis=0)), 1, atol=1e-5)
    np.testing.assert_allclose(directions.T @ directions, np.eye(6), atol=1e-6)
    assert compute_principal_directions(vectors[:3]).shape == (6, 6), "few documents still give a whole rotation"
