"""Effects of a context against plain computations. A model that ignores its context has no effects."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from repro.analyses import retrieval
from repro.analyses.context_effect import (
    PREFIX,
    ContextProbe,
    compute_cosine_distance,
    compute_headroom_shares,
    compute_mean_cosines,
)
from repro.data.beir import Retrieval, Suite
from repro.data.tokens import load_tokenizer
from repro.evaluate import headroom
from repro.evaluate.collections import Collection, read_collections
from repro.evaluate.comparison import Gap
from repro.evaluate.contexts import draw_context, wrong_corpora
from repro.evaluate.headroom import compute_word_scores, read_word_scores, write_word_scores
from repro.evaluate.lexical import K1, PRIOR, B
from repro.pipeline.inputs import Inputs
from repro.spec import base
from repro.statistics.bootstrap import percentile_interval
from tests.analyses.by_hand import (
    ContextBlindRanker,
    HandMadePairs,
    Ranker,
    make_collection,
    make_inputs,
    write_collections,
)
from tests.interop.small import make_contextual

RUN = base("desk", architecture="contextual", num_contexts=2)
HOME = ("rain falls on green hills", "snow falls on white hills", "a kettle on the stove", "bread and butter")
AWAY = ("copper wires carry current", "iron bars and copper pots", "the drum of the band", "a violin and a drum")
TRAINING = (*HOME, *AWAY)


@pytest.fixture
def worded(tmp_path: Path) -> Inputs:
    """Two collections of real words, and their documents as training text."""
    home, away = make_collection("home", HOME, relevant=(0, 3)), make_collection("away", AWAY, relevant=(0, 3))
    return make_inputs(RUN, suite=write_collections(tmp_path, home, away), pairs=HandMadePairs([0] * 8, TRAINING))


def compute_cosine(first: np.ndarray, second: np.ndarray) -> float:
    return float(first @ second / np.linalg.norm(first) / np.linalg.norm(second))


def test_deaf_model_moves_nothing(searched: Inputs, tmp_path: Path) -> None:
    metrics = retrieval.measure(searched, ContextBlindRanker(), tmp_path / "run").metrics
    effects = {name: value for name, value in metrics.items() if name.startswith(f"{PREFIX}/")}
    assert {name.split("/")[1] for name in effects} == {
        *("own_minus_wrong", "own_minus_null", "moved_by_wrong", "moved_by_null")
    }
    assert set(effects.values()) == {0.0}


def test_differences_are_those_of_scores(searched: Inputs, tmp_path: Path) -> None:
    metrics = retrieval.measure(searched, Ranker(), tmp_path / "run").metrics
    for group in ("home", "rival", "family home", "mean"):
        own, wrong = (metrics[f"{name}/{group}/ndcg_at_10"] for name in ("desk", "desk+wrong"))
        path = f"{PREFIX}/own_minus_wrong/{group}"
        assert metrics[f"{path}/difference"] == pytest.approx(own - wrong, abs=1e-6)
        if f"{path}/low" in metrics:
            assert metrics[f"{path}/low"] <= metrics[f"{path}/difference"] <= metrics[f"{path}/high"]
    assert metrics[f"{PREFIX}/own_minus_wrong/home/difference"] > 0.3
    assert metrics[f"{PREFIX}/own_minus_null/mean/difference"] == 0


def test_own_context_alone_has_no_differences(searched: Inputs, tmp_path: Path) -> None:
    alone = make_inputs(replace(RUN, test_contexts="own"), suite=searched.suite)
    measured = retrieval.measure(alone, Ranker(), tmp_path / "run")
    assert not [name for name in measured.metrics if name.startswith(PREFIX)] and not measured.exhibits


def test_mean_cosine_is_over_all_pairs() -> None:
    rng = np.random.default_rng(0)
    corpora = [rng.random((size, 5)) for size in (4, 3, 1)]
    corpora = [vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in corpora]
    inside = [[a @ b for i, a in enumerate(c) for j, b in enumerate(c) if i != j] for c in corpora[:2]]
    between = [a @ b for i, c in enumerate(corpora) for j, d in enumerate(corpora) if i != j for a in c for b in d]
    within, across = compute_mean_cosines(corpora)
    assert within == pytest.approx(np.mean([np.mean(values) for values in inside]))
    assert across == pytest.approx(np.mean(between))
    assert compute_mean_cosines(corpora[:1])[1] is None and compute_mean_cosines([]) == (None, None)


def test_movement_is_one_minus_cosine(worded: Inputs) -> None:
    model = make_contextual()
    collections = read_collections(worded.suite)
    probe = ContextProbe(["wrong", "null"], 2, 0)
    others = wrong_corpora(worded.suite.datasets)
    for name in collections:
        probe.add(model, collections[name], {"wrong": collections[others[name]].retrieval})
    metrics = probe.compute_metrics([{"name": name, "family": "all", "num_queries": 2} for name in collections])
    vectors = {}
    for kind, source in (("own", "home"), ("wrong", "away"), ("null", None)):
        corpus = None if source is None else collections[source].retrieval
        model.set_context(draw_context(kind, corpus, num_contexts=2, seed=0).texts)
        vectors[kind] = model.encode(HOME, "document")
    for kind in ("wrong", "null"):
        cosines = list(map(compute_cosine, vectors["own"], vectors[kind]))
        assert metrics[f"moved_by_{kind}/home/cosine_distance"] == pytest.approx(1 - np.mean(cosines), abs=1e-6)
        assert metrics[f"moved_by_{kind}/mean/cosine_distance"] == metrics[f"moved_by_{kind}/all/cosine_distance"]
    for layer in (*(f"layer_{number}" for number in range(1, model.config.num_layers + 1)), "even"):
        shares = [metrics[f"attention/{layer}/{part}"] for part in ("contexts", "prompts", "text")]
        assert sum(shares) == pytest.approx(1)
    corpora = []
    for name in collections:
        model.set_context(draw_context("own", collections[name].retrieval, num_contexts=2, seed=0).texts)
        vectors_CD = model.context_vectors()[:2].double().numpy()
        corpora.append(vectors_CD / np.linalg.norm(vectors_CD, axis=1, keepdims=True))
    cosines = [metrics[f"context_cosine/{name}/cosine"] for name in ("within", "across")]
    assert cosines == pytest.approx(compute_mean_cosines(corpora))


def test_tiny_movements_are_exact() -> None:
    first, second = np.array([[1.0, 0.0]]), np.array([[np.cos(1e-6), np.sin(1e-6)]])
    assert compute_cosine_distance(first, second) == pytest.approx(0.5e-12, rel=1e-6)
    assert compute_cosine_distance(first, 3 * first) == 0.0 and compute_cosine_distance(first, -first) == 2.0


def test_headroom_share_is_a_ratio() -> None:
    """The share is not given if the interval of the headroom includes zero."""
    room_R, gain_R = np.linspace(0.03, 0.05, 101), np.full(101, 0.01)
    gains = {"mean": Gap(0.01, percentile_interval(gain_R), gain_R, 20)}
    shares = compute_headroom_shares(gains, {"mean": Gap(0.04, percentile_interval(room_R), room_R, 20)})
    assert shares["headroom_taken/mean/share"] == pytest.approx(0.25)
    low, high = np.quantile(gain_R / room_R, [0.025, 0.975])
    assert (shares["headroom_taken/mean/low"], shares["headroom_taken/mean/high"]) == pytest.approx((low, high))
    few = compute_headroom_shares(gains, {"mean": Gap(0.04, (0.01, 0.07), room_R, 19)})
    assert set(few) == {f"headroom/mean/{name}" for name in ("difference", "low", "high")} | {
        "headroom_taken/mean/share"
    }
    small_R = room_R - 0.039
    unclear = compute_headroom_shares(gains, {"mean": Gap(0.001, percentile_interval(small_R), small_R, 20)})
    assert set(unclear) == {"headroom/mean/difference", "headroom/mean/low", "headroom/mean/high"}


def compute_bm25_ndcg(retrieval: Retrieval, query: int, context: Sequence[str]) -> float:
    """Return the score of a query under BM25 whose IDF is from the context, smoothed by the training texts."""
    tokenizer = load_tokenizer("minilm")

    @cache
    def words(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    def idf(word: int) -> float:
        prior = (sum(word in words(text) for text in TRAINING) + 0.5) / (len(TRAINING) + 1)
        return -math.log((sum(word in words(text) for text in context) + PRIOR * prior) / (len(context) + PRIOR))

    mean = np.mean([len(words(text)) for text in retrieval.documents])
    scores = []
    for text in retrieval.documents:
        counts = Counter(words(text))
        norm = K1 * (1 - B + B * len(words(text)) / mean)
        scores.append(sum(idf(word) * counts[word] / (counts[word] + norm) for word in words(retrieval.queries[query])))
    order = sorted(range(len(scores)), key=lambda row: (-round(scores[row], 6), retrieval.document_ids[row]))
    (relevant,) = retrieval.judgements[retrieval.query_ids[query]]
    return 1 / math.log2(2 + order.index(retrieval.document_ids.index(relevant)))


def test_headroom_matches_bm25_formula(worded: Inputs) -> None:
    queries = {"home": ("rain snow", "bread kettle"), "away": ("copper wires", "band violin")}
    collections = {
        name: Collection(replace(collection.retrieval, queries=queries[name]), collection.rules)
        for name, collection in read_collections(worded.suite).items()
    }
    own_Q, wrong_Q = compute_word_scores(worded.suite, collections, worded.pairs, 2, seed=0)
    assert (own_Q != wrong_Q).sum() == 3, "three queries score differently under the two contexts"
    for actual_Q, sources in ((own_Q, ("home", "away")), (wrong_Q, ("away", "home"))):
        expected_Q = []
        for name, source in zip(("home", "away"), sources, strict=True):
            context = draw_context("own", collections[source].retrieval, num_contexts=2, seed=0).texts
            expected_Q += [compute_bm25_ndcg(collections[name].retrieval, query, context or ()) for query in range(2)]
        assert actual_Q == pytest.approx(expected_Q, abs=1e-6)


def test_headroom_needs_a_small_suite(worded: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def has_scores(name: str, suite: Suite) -> bool:
        (tmp_path / name).mkdir()
        write_word_scores(tmp_path / name, suite, worded.pairs, 2, 0)
        return read_word_scores(tmp_path / name) is not None

    monkeypatch.setattr(headroom, "MAX_DOCUMENTS", 8)
    assert has_scores("small", worded.suite)
    assert not has_scores("alone", Suite("alone", worded.suite.datasets[:1]))
    monkeypatch.setattr(headroom, "MAX_DOCUMENTS", 7)
    assert not has_scores("large", worded.suite)


def test_filler_vectors_are_no_context(worded: Inputs) -> None:
    model = make_contextual()
    assert model.config.num_contexts >= 3
    probe = ContextProbe([], 2, 0)
    probe.add(retrieval.WithNulls(model), read_collections(worded.suite)["home"], {})
    assert probe.vectors_CD[0].shape == (2, model.config.hidden_size)
