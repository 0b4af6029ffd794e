"""Cascades: thresholds against brute force, and scores on the other half of the texts."""

from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import cdist
from scipy.special import softmax

from repro.analyses.classification import (
    GRID,
    NEVER,
    choose_thresholds,
    classify_texts,
    compute_class_means,
    compute_scores,
    find_stops,
    measure_cascade,
)
from repro.data.beir import Suite
from repro.evaluate.prefixes import take_prefix
from repro.spec import base
from tests.analyses.by_hand import RandomVectors, make_inputs, make_numbered_collection, write_collections


def draw_answers(num_widths: int, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return whether answers are right, and their sureness. Wider and surer answers are right more often."""
    rng = np.random.default_rng(seed)
    sureness = rng.uniform(size=(num_widths, count))
    good = 0.3 + 0.1 * np.arange(num_widths)[:, None] + 0.4 * sureness
    return rng.uniform(size=(num_widths, count)) < good, sureness


def test_classes_follow_nearest_mean() -> None:
    rng = np.random.default_rng(0)
    documents = [rng.normal(size=(30, 16)) + 2 * rng.normal(size=16) for _ in range(5)]
    texts = rng.normal(size=(40, 16)) + 1.0
    for width in (4, 16):
        means = compute_class_means(documents, width)
        chosen, sureness = classify_texts(texts, means, 0.1)
        expected = cdist(texts[:, :width], means, "cosine").argmin(axis=1)
        assert chosen.tolist() == expected.tolist()
        probabilities = softmax(take_prefix(texts, width) @ means.T / 0.1, axis=1)
        np.testing.assert_allclose(sureness, probabilities.max(axis=1), rtol=1e-5)
    assert len(set(chosen.tolist())) > 1


def choose_by_brute_force(is_right: np.ndarray, sureness: np.ndarray) -> list[float]:
    remaining, chosen = set(range(is_right.shape[1])), []
    for level in range(len(is_right) - 1):
        for threshold in [*GRID, NEVER]:
            stopped = [text for text in remaining if sureness[level, text] >= threshold]
            if is_right[level, stopped].sum() >= is_right[-1, stopped].sum():
                break
        chosen.append(float(threshold))
        remaining -= set(stopped)
    return chosen


@pytest.mark.parametrize("seed", range(4))
def test_thresholds_match_brute_force(seed: int) -> None:
    is_right, sureness = draw_answers(4, 200, seed)
    thresholds = choose_thresholds(is_right, sureness)
    assert thresholds.tolist() == pytest.approx(choose_by_brute_force(is_right, sureness))
    stops = find_stops(sureness, thresholds)
    assert is_right[stops, np.arange(200)].mean() >= is_right[-1].mean()
    assert len(set(stops.tolist())) > 2, "texts stop at several widths"


def test_extreme_widths_stop_none_or_all() -> None:
    sureness = np.full((3, 6), 0.9)
    never = np.array([[0] * 6, [1] * 6, [1] * 6], bool)
    assert choose_thresholds(never, sureness).tolist() == [pytest.approx(0.91), 0.0]
    assert find_stops(sureness, choose_thresholds(never, sureness)).tolist() == [1] * 6
    sure = np.ones((3, 6))
    assert choose_thresholds(never, sure).tolist() == [NEVER, 0.0], "surer than any threshold on the grid"


def test_scores_come_from_other_half() -> None:
    is_right, sureness = draw_answers(3, 100, 5)
    metrics, arrays = compute_scores("zoo", (8, 16, 32), is_right, sureness)
    thresholds = choose_thresholds(is_right[:, ::2], sureness[:, ::2])
    stops = find_stops(sureness[:, 1::2], thresholds)
    answers = is_right[:, 1::2][stops, np.arange(50)]
    assert metrics["zoo+cascade32/mean/dimensions"] == pytest.approx(np.array([8, 16, 32])[stops].mean())
    assert metrics["zoo+cascade32/mean/accuracy"] == pytest.approx(answers.mean())
    assert metrics["zoo+width32/mean/accuracy"] == is_right[2, 1::2].mean()
    assert metrics["zoo+cascade8/mean/dimensions"] == metrics["zoo+width8/mean/dimensions"] == 8
    assert arrays["zoo+cascade32/mean/accuracy"].tolist() == answers.tolist()


def test_every_collection_is_a_class(tmp_path: Path) -> None:
    collections = [make_numbered_collection(name, 6, (0, 2, 3, 5)) for name in ("cats", "dogs", "cows")]
    suite = write_collections(tmp_path, *collections)
    run = base("smoke", measure="cascade", nested_sizes="8+16+32")
    measured = measure_cascade(make_inputs(run, suite=suite), RandomVectors(), tmp_path)
    assert measured.provenance["num_classes"] == 3
    assert len(measured.arrays["desk+width32/mean/accuracy"]) == measured.provenance["num_scored"]
    alone = Suite("alone", suite.datasets[:1])
    with pytest.raises(ValueError, match="several collections"):
        measure_cascade(make_inputs(run, suite=alone), RandomVectors(), tmp_path)
