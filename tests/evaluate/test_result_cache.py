"""Cached results: a stopped evaluation resumes, and a result of other inputs or a damaged one is never used."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.data.beir import Suite, load_suite
from repro.evaluate.result_cache import ResultCache
from repro.evaluate.suites import CollectionEnd, Evaluation, EvaluationOutputs, evaluate_bm25, evaluate_setting
from tests.evaluate.scored import SETTING, FakeEncoder


class Counting(FakeEncoder):
    """Counts its calls and raises KeyboardInterrupt after a number of them."""

    def __init__(self, max_calls: int = 10**6) -> None:
        super().__init__()
        self.calls, self.max_calls = 0, max_calls

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        if self.calls == self.max_calls:
            raise KeyboardInterrupt
        self.calls += 1
        return super().encode(texts, prompt)


def open_cache(folder: Path, **key: Any) -> tuple[EvaluationOutputs, list[CollectionEnd]]:
    """Return outputs with a cache, and the list that receives the event at the end of each collection."""
    events: list[CollectionEnd] = []
    cache = ResultCache(folder / "kept", {"model": "x", **key})
    return EvaluationOutputs(runs=folder / "trec", cache=cache, callback=events.append), events


def assert_equal_evaluations(actual: Evaluation, expected: Evaluation) -> None:
    assert actual.metrics == expected.metrics and actual.provenance == expected.provenance
    assert actual.per_query.keys() == expected.per_query.keys()
    for name, values in expected.per_query.items():
        np.testing.assert_array_equal(actual.per_query[name], values)


def test_killed_evaluation_resumes(suite: Suite, tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        evaluate_setting(Counting(max_calls=9), suite, SETTING, open_cache(tmp_path)[0])
    encoder, (outputs, events) = Counting(), open_cache(tmp_path)
    resumed = evaluate_setting(encoder, suite, SETTING, outputs)
    assert encoder.calls == 18 - 8, "four of nine results were cached"
    assert_equal_evaluations(resumed, evaluate_setting(FakeEncoder(), suite, SETTING))
    assert [(event.dataset, event.was_cached) for event in events] == [("ants", True), ("bees", False), ("oaks", False)]


DAMAGE: dict[str, Callable[[str], str]] = {"damaged": lambda text: text[:40], "a list": lambda text: "[]"}


@pytest.mark.parametrize("change", ["seed", "num_contexts", "model", "text", "run", *DAMAGE])
def test_other_results_are_computed_again(suite: Suite, tmp_path: Path, change: str) -> None:
    evaluate_setting(FakeEncoder(), suite, SETTING, open_cache(tmp_path / "a")[0])
    setting, key, path = SETTING, {}, suite.datasets[0].path / "corpus.jsonl"
    if change in ("seed", "num_contexts"):
        setting, key = replace(SETTING, **{change: 2}), {change: 2}
    if change == "model":
        key = {"model": "y"}
    if change == "text":
        path.write_text(path.read_text().replace("document ants 3", "document ants 4"))
    if change == "run":
        for run in (tmp_path / "a" / "trec").rglob("ants*"):
            run.write_bytes(b"another run")
    if change in DAMAGE:
        for file in (tmp_path / "a" / "kept").glob("ants*"):
            file.write_text(DAMAGE[change](file.read_text()))
    encoder = Counting()
    evaluation = evaluate_setting(encoder, suite, setting, open_cache(tmp_path / "a", **key)[0])
    # A changed text is also the out-of-corpus context of another collection.
    assert encoder.calls == {"text": 8, "run": 6, **dict.fromkeys(DAMAGE, 6)}.get(change, 18)
    assert_equal_evaluations(evaluation, evaluate_setting(FakeEncoder(), load_suite(path.parents[1]), setting))


def test_bm25_is_kept_with_its_parameters(suite: Suite, tmp_path: Path) -> None:
    expected = evaluate_bm25(suite)
    assert {path.split("/")[0] for path in expected.metrics} == {"zoo"} and len(expected.per_query["zoo"]) == 34
    assert expected.provenance["bm25"]["k1"] == 0.9
    for is_cached in (False, True):
        outputs, events = open_cache(tmp_path)
        assert_equal_evaluations(evaluate_bm25(suite, outputs=outputs), expected)
        assert [event.was_cached for event in events] == [is_cached] * 3
