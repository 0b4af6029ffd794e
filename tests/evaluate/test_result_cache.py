"""Cached results: a stopped evaluation resumes, and a result of other inputs or a damaged one is never used."""

import hashlib
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.data.beir import Retrieval, Suite, load_suite
from repro.evaluate.result_cache import ResultCache, compute_content_digest
from repro.evaluate.suites import CollectionEnd, EvaluationOutputs, Setting, evaluate_bm25, evaluate_setting
from repro.model.config import ModelConfig
from repro.model.start import build_model
from tests.evaluate.test_suites import FakeEncoder, suite

assert suite, "a fixture"
SETTING = Setting(contexts=("own", "wrong", "null"), num_contexts=4, seed=1)


class Counting(FakeEncoder):
    """Counts its calls and raises KeyboardInterrupt after a given number."""

    def __init__(self, dies_after: int = 10**6) -> None:
        super().__init__()
        self.calls, self.dies_after = 0, dies_after

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        self.calls += 1
        if self.calls > self.dies_after:
            raise KeyboardInterrupt
        return super().encode(texts, prompt)


def cache_in(folder: Path, ends: list[CollectionEnd] | None = None, **system: Any) -> EvaluationOutputs:
    """Return outputs with a cache. `ends` receives what is reported after each collection."""
    cache = ResultCache(folder / "kept", {"model": "x", **system})
    return EvaluationOutputs(runs=folder / "trec", cache=cache, callback=(ends if ends is not None else []).append)


def test_killed_evaluation_resumes(suite: Suite, tmp_path: Path) -> None:
    whole = evaluate_setting(FakeEncoder(), suite, SETTING)
    with pytest.raises(KeyboardInterrupt):
        evaluate_setting(Counting(dies_after=9), suite, SETTING, cache_in(tmp_path / "a"))
    again, ends = Counting(), []
    found = evaluate_setting(again, suite, SETTING, cache_in(tmp_path / "a", ends))
    assert again.calls == 18 - 8, "four of nine results were cached"
    assert found.metrics == whole.metrics and found.provenance == whole.provenance
    for name, values in whole.per_query.items():
        np.testing.assert_array_equal(found.per_query[name], values)
    assert [(one.dataset, one.was_cached) for one in ends] == [("ants", True), ("bees", False), ("oaks", False)]


def spoil_number(text: str) -> str:
    """Change a score of a cached result to 4.5."""
    changed = re.sub(r'(ndcg_at_10\\": \[)[^,\]]+', r"\g<1>4.5", text)
    assert changed != text
    return changed


DAMAGE: dict[str, Callable[[str], str]] = {
    "damaged": lambda text: text[:40],
    "a list": lambda text: "[]",
    "a number": spoil_number,
}


@pytest.mark.parametrize("change", ["seed", "num_contexts", "model", "text", "run", *DAMAGE])
def test_other_results_are_computed_again(suite: Suite, tmp_path: Path, change: str) -> None:
    evaluate_setting(FakeEncoder(), suite, SETTING, cache_in(tmp_path / "a"))
    setting, system, path = SETTING, {}, suite.datasets[0].path / "corpus.jsonl"
    if change in ("seed", "num_contexts"):
        setting, system = replace(SETTING, **{change: 2}), {change: 2}
    if change == "model":
        system = {"model": "y"}
    if change == "text":
        path.write_text(path.read_text().replace("document ants 3", "document ants 4"))
    if change == "run":
        for run in (tmp_path / "a" / "trec").rglob("ants*"):
            run.write_bytes(b"another run")
    if change in DAMAGE:
        for file in (tmp_path / "a" / "kept").glob("ants*"):
            file.write_text(DAMAGE[change](file.read_text()))
    encoder = Counting()
    found = evaluate_setting(encoder, suite, setting, cache_in(tmp_path / "a", **system))
    # a changed text is also the out-of-corpus context of another collection
    assert encoder.calls == {"text": 8, "run": 6, **dict.fromkeys(DAMAGE, 6)}.get(change, 18)
    assert found.metrics == evaluate_setting(FakeEncoder(), load_suite(path.parents[1]), setting).metrics


def test_collections_are_digested_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.evaluate.result_cache.TEXTS_PER_CHUNK", 2)
    for size in (0, 1, 2, 5):
        ids, texts = tuple(map(str, range(size))), tuple(f'ä "{number}"' for number in range(size))
        retrieval = Retrieval("name", ids, texts, (), (), {})
        whole = "name" + json.dumps(ids) + json.dumps(texts) + "[]" + "[]" + "{}"
        assert compute_content_digest(retrieval) == hashlib.sha256(whole.encode()).hexdigest()[:16]


def test_bm25_is_kept_with_its_parameters(suite: Suite, tmp_path: Path) -> None:
    whole = evaluate_bm25(suite)
    assert {path.split("/")[0] for path in whole.metrics} == {"zoo"} and len(whole.per_query["zoo"]) == 34
    assert whole.provenance["bm25"]["k1"] == 0.9
    for _ in range(2):
        ends = []
        found = evaluate_bm25(suite, outputs=cache_in(tmp_path, ends))
        assert found.metrics == whole.metrics and found.provenance == whole.provenance
    assert all(one.was_cached for one in ends)


def test_texts_are_tokenised_once(suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = {"hidden_size": 16, "num_heads": 2, "intermediate_size": 24, "num_contexts": 4}
    model = build_model(ModelConfig(architecture="contextual", **sizes)).eval()
    alone = {kind: evaluate_setting(model, suite, replace(SETTING, contexts=(kind,))) for kind in SETTING.contexts}
    calls, real = [], type(model).tokenize
    monkeypatch.setattr(
        type(model), "tokenize", lambda self, texts, role: (calls.append(len(texts)), real(self, texts, role))[1]
    )
    found = evaluate_setting(model, suite, SETTING)
    # queries and documents of three collections, and their in-corpus and out-of-corpus contexts
    collections, contexts = 2 * 3, 2 * 3
    assert len(calls) == collections + contexts
    for one in alone.values():
        assert one.metrics.items() <= found.metrics.items()
