"""Effects of a context against plain computations. A model that ignores its context has no effects."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace

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
from repro.analyses.context_example import EXHIBIT
from repro.analyses.context_words import (
    Explanation,
    Query,
    Swap,
    Word,
    explain_query,
    find_changed_words,
    find_largest_gain,
    list_words,
    remove_word,
    truncate_to_model,
)
from repro.data.beir import Retrieval, Suite
from repro.data.paper.quirks import find_quirks
from repro.data.tokens import load_tokenizer
from repro.evaluate import headroom
from repro.evaluate.collections import Collection, read_collections
from repro.evaluate.comparison import Gap
from repro.evaluate.contexts import draw_context, wrong_corpora
from repro.evaluate.headroom import compute_word_scores, read_word_scores, write_word_scores
from repro.evaluate.lexical import K1, PRIOR, B
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs
from repro.report.context import make_context_views
from repro.spec import base
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
KINDS = ("own", "wrong", "null")
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
    shares = compute_headroom_shares({"mean": Gap.of(0.01, gain_R)}, {"mean": Gap.of(0.04, room_R)})
    assert shares["headroom_taken/mean/share"] == pytest.approx(0.25)
    low, high = np.quantile(gain_R / room_R, [0.025, 0.975])
    assert (shares["headroom_taken/mean/low"], shares["headroom_taken/mean/high"]) == pytest.approx((low, high))
    unclear = compute_headroom_shares({"mean": Gap.of(0.01, gain_R)}, {"mean": Gap.of(0.001, room_R - 0.039)})
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
        name: Collection(replace(collection.retrieval, queries=queries[name]), collection.quirks)
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


REPEATED = "Rain and snow, rain again"
QUERY = Query("rain on hills", "home-q0")
SWAPPED = make_collection("home", (HOME[0], REPEATED, *HOME[2:]), relevant=(0, 1))
OTHER = make_collection("away", ("copper wires carry current", "a drum and a violin"), relevant=(0,))


def make_swap(model: Encoder, home: Retrieval = SWAPPED, other: Retrieval = OTHER) -> Swap:
    return Swap(model, Collection(home, find_quirks(home.name)), other, KINDS, 2)


def explain(swap: Swap, query: Query, top: int = 5) -> Explanation:
    """Explain a query whose hits are scored by the model."""
    retrieval = swap.collection.retrieval

    def get_hits(kind: str) -> dict[str, float]:
        scores = swap.encoder.encode([query.text], "query") @ swap.encoder.encode(retrieval.documents, "document").T
        return dict(zip(retrieval.document_ids, map(float, scores[0]), strict=True))

    return explain_query(swap, query, get_hits, called="m", suite="s", top=top)


def test_words_are_removed_everywhere() -> None:
    assert list_words(REPEATED) == ["rain", "and", "snow", "again"]
    assert remove_word(REPEATED, "rain") == "and snow, again"
    assert remove_word("the then the", "the") == "then"


@pytest.mark.parametrize(
    ("text", "words", "without_first"),
    [
        ("हिन्दी में", ["हिन्दी", "में"], "में"),
        ("東京に行く", ["東", "京", "に", "行", "く"], "京に行く"),
        ("İzmir İzmir ve", ["i̇zmir", "ve"], "ve"),
    ],
    ids=["vowel signs", "no spaces", "dotted capital"],
)
def test_words_of_other_scripts(text: str, words: list[str], without_first: str) -> None:
    assert list_words(text) == words
    assert remove_word(text, words[0]) == without_first


def test_explanation_matches_cosines() -> None:
    """Word weights are shares of 1 − cosine without the word. Vectors move by 1 − cosine from the own context."""
    model = make_contextual()
    swap, vectors = make_swap(model), {}
    explained = explain(swap, QUERY)
    assert [word.word for word in explained.query.words] == ["rain", "on", "hills"]
    for kind in KINDS:
        swap.set_context(kind)
        vectors[kind], *without = model.encode([QUERY.text, "on hills", "rain hills", "rain on"], "query")
        distances = [1 - compute_cosine(vectors[kind].astype(np.float64), vector) for vector in without]
        shares = [word.shares[kind] for word in explained.query.words]
        assert shares == pytest.approx([distance / sum(distances) for distance in distances], rel=1e-3)
        assert sum(word.shares[kind] for word in explained.document.words) == pytest.approx(1)
    moved = {kind: pytest.approx(1 - vectors["own"] @ vectors[kind], abs=1e-6) for kind in ("wrong", "null")}
    assert explained.query.moved == moved
    word = explained.query.words[0]
    assert word.gain == word.shares["own"] - word.shares["wrong"]


def test_ranks_follow_scores() -> None:
    numbered = make_collection("rival", ("home says 1", "home says 2", "home says 3"), relevant=(2,))
    rival = make_collection("x", ("rival says 1", "rival says 2"), relevant=(0,))
    explained = explain(make_swap(Ranker(), numbered, rival), Query("q", "rival-q0"), top=1)
    assert {hit.id: (dict(hit.ranks), hit.is_relevant) for hit in explained.hits} == {
        "rival-d0": ({"own": 1, "wrong": 3, "null": 1}, False),
        "rival-d2": ({"own": 3, "wrong": 1, "null": 3}, True),
    }
    assert explained.scores == pytest.approx({"own": 0.5, "wrong": 1.0, "null": 0.5})
    assert (explained.document.id, explained.num_relevant, explained.is_judged) == ("rival-d2", 1, True)


def test_only_text_read_is_explained() -> None:
    model = make_contextual(max_tokens=8, prompts="task")
    text = "rain snow iron copper violin drum kettle lamp"
    read = truncate_to_model(model, text, "document")
    assert text.startswith(read) and 0 < len(list_words(read)) < 6
    model.set_context(None)
    np.testing.assert_allclose(model.encode([read], "document"), model.encode([text], "document"), atol=1e-6)
    assert truncate_to_model(retrieval.WithNulls(model), text, "document") == read
    assert truncate_to_model(Ranker(), text, "document") == text


def test_record_shows_query_that_gains_most(tmp_path: Path, no_headroom: SimpleNamespace) -> None:
    home = make_collection("home", ("home says 1", "home says 2"), relevant=(1, 0, 0))
    rival = make_collection("rival", ("rival says 1", "rival says 2"), relevant=(1,))
    inputs = make_inputs(RUN, suite=write_collections(tmp_path, home, rival), graph=no_headroom)
    rows = retrieval.measure(inputs, Ranker(), tmp_path / "run").exhibits[EXHIBIT]
    cells = {row["what"]: tuple(row[kind] for kind in ("text", *KINDS)) for row in rows[:2]}
    assert cells == {
        "context from": ("", "home", "rival", "nothing"),
        "query, NDCG@10": ("home asks 1", "100.0", "63.1", "100.0"),
    }
    ranks = [(row["text"], row["own"], row["wrong"]) for row in rows if row["what"] == "relevant document, rank"]
    assert ranks == [("home says 1", "1", "2")]


def test_first_of_equal_queries_is_taken() -> None:
    assert find_largest_gain(np.array([0.0, 0.5, 0.9, 0.5]), np.array([0.0, 0.1, 0.5, 0.1])) == 1


def test_changed_words_are_ordered_by_gain() -> None:
    shares = {"a": 0.2, "b": 0.1, "c": 0.5, "d": 0.25}
    words = [Word(name, {"own": share, "wrong": 0.2}) for name, share in shares.items()]
    assert [word.word for word in find_changed_words(words, 3)] == ["c", "d", "b"]


def test_unjudged_query_is_explained() -> None:
    """It has ranks, but no scores. Its tables fit 100 columns."""
    explained = explain(make_swap(make_contextual()), Query("rain " * 60 + "x" * 90), top=2)
    assert (explained.is_judged, explained.scores, explained.num_relevant) == (False, {}, 0)
    assert explained.hits and explained.document.moved.keys() == {"wrong", "null"}
    assert "nothing judges this query" in " ".join(make_context_views(explained)[0].notes)
    for view in make_context_views(explained):
        widths = [max(map(len, column)) + 3 for column in zip(view.header, *view.rows, strict=True)]
        assert sum(widths) <= 100 and all(len(note) <= 100 for note in view.notes), view.title
