"""Effects of a context against plain computations. A model that ignores its context has no effects."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
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
from repro.analyses.context_example import EXHIBIT, find_changed_words
from repro.analyses.context_words import (
    Explanation,
    Query,
    Swap,
    Word,
    explain_query,
    find_largest_moves,
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
from repro.model.contextual import ContextualModel
from repro.pipeline.inputs import Inputs
from repro.report.context import make_context_views
from repro.spec import base
from tests.analyses.by_hand import (
    Deaf,
    HandMadePairs,
    Ranker,
    make_collection,
    make_inputs,
    write_collections,
    write_home_and_rival,
)
from tests.interop.small import make_model

RUN = base("desk", architecture="contextual", num_contexts=2)
DOCUMENTS = {
    "home": ("rain falls on green hills", "snow falls on white hills", "a kettle on the stove", "bread and butter"),
    "away": ("copper wires carry current", "iron bars and copper pots", "the drum of the band", "a violin and a drum"),
}


@pytest.fixture
def searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Inputs:
    """Two collections of two numbered documents. No headroom is computed."""
    monkeypatch.setattr("repro.analyses.context_effect.compute_word_scores", lambda *given: None)
    return make_inputs(RUN, suite=write_home_and_rival(tmp_path))


@pytest.fixture
def texts(tmp_path: Path) -> Inputs:
    """Two collections of real words, and their words as training text."""
    both = [make_collection(name, documents, relevant=(0, 3)) for name, documents in DOCUMENTS.items()]
    pairs = HandMadePairs([0] * 8, [text for documents in DOCUMENTS.values() for text in documents])
    return make_inputs(RUN, suite=write_collections(tmp_path, *both), pairs=pairs)


def test_deaf_model_moves_nothing(searched: Inputs, tmp_path: Path) -> None:
    found = retrieval.measure(searched, Deaf(), tmp_path / "run").metrics
    shown = {name: value for name, value in found.items() if name.startswith(f"{PREFIX}/")}
    assert {name.split("/")[1] for name in shown} == {
        *("own_minus_wrong", "own_minus_null", "moved_by_wrong", "moved_by_null")
    }
    assert set(shown.values()) == {0.0}


def test_differences_are_those_of_scores(searched: Inputs, tmp_path: Path) -> None:
    found = retrieval.measure(searched, Ranker(), tmp_path / "run").metrics
    for group in ("home", "rival", "family home", "mean"):
        own, wrong = (found[f"{name}/{group}/ndcg_at_10"] for name in ("desk", "desk+wrong"))
        path = f"{PREFIX}/own_minus_wrong/{group}"
        assert found[f"{path}/difference"] == pytest.approx(own - wrong, abs=1e-6)
        assert found[f"{path}/low"] <= found[f"{path}/difference"] <= found[f"{path}/high"]
    assert found[f"{PREFIX}/own_minus_wrong/home/difference"] > 0.3 > found[f"{PREFIX}/own_minus_null/mean/difference"]


def test_own_context_alone_has_no_differences(searched: Inputs, tmp_path: Path) -> None:
    alone = make_inputs(
        base("desk", architecture="contextual", num_contexts=2, test_contexts="own"), suite=searched.suite
    )
    found = retrieval.measure(alone, Ranker(), tmp_path / "run")
    assert not [name for name in found.metrics if "minus" in name or "moved" in name] and not found.exhibits


def test_mean_cosine_is_over_all_pairs() -> None:
    rng = np.random.default_rng(0)
    corpora = [
        vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        for vectors in map(rng.random, ((4, 5), (3, 5), (1, 5)))
    ]
    inside = [[a @ b for i, a in enumerate(c) for j, b in enumerate(c) if i != j] for c in corpora[:2]]
    between = [a @ b for i, c in enumerate(corpora) for j, d in enumerate(corpora) if i != j for a in c for b in d]
    within, across = compute_mean_cosines(corpora)
    assert within == pytest.approx(np.mean([np.mean(values) for values in inside]))
    assert across == pytest.approx(np.mean(between))
    assert compute_mean_cosines(corpora[:1])[1] is None and compute_mean_cosines([]) == (None, None)


def test_movement_is_one_minus_cosine(texts: Inputs) -> None:
    model = make_model("contextual")
    assert isinstance(model, ContextualModel)
    collections = read_collections(texts.suite)
    probe = ContextProbe(["wrong", "null"], 2, 0)
    others = wrong_corpora(texts.suite.datasets)
    for dataset in texts.suite.datasets:
        probe.add(model, collections[dataset.name], {"wrong": collections[others[dataset.name]].retrieval})
    rows = [{"name": name, "family": "all", "num_queries": 2} for name in DOCUMENTS]
    found, vectors = probe.compute_metrics(rows), {}
    for kind, source in (("own", "home"), ("wrong", "away"), ("null", None)):
        corpus = None if source is None else collections[source].retrieval
        model.set_context(draw_context(kind, corpus, num_contexts=2, seed=0).texts)
        vectors[kind] = model.encode(DOCUMENTS["home"], "document")
    for kind in ("wrong", "null"):
        cosines = [
            a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(vectors["own"], vectors[kind], strict=True)
        ]
        assert found[f"moved_by_{kind}/home/cosine_distance"] == pytest.approx(1 - np.mean(cosines), abs=1e-6)
        assert found[f"moved_by_{kind}/mean/cosine_distance"] == found[f"moved_by_{kind}/all/cosine_distance"]
    for layer in (*(f"layer_{number}" for number in range(1, model.config.num_layers + 1)), "even"):
        shares = [found[f"attention/{layer}/{part}"] for part in ("contexts", "prompts", "text")]
        assert sum(shares) == pytest.approx(1)
    assert -1 <= found["context_cosine/across/cosine"] < found["context_cosine/within/cosine"] + 1 <= 2.001


def test_tiny_movements_are_exact() -> None:
    first, second = np.array([[1.0, 0.0]]), np.array([[np.cos(1e-6), np.sin(1e-6)]])
    assert compute_cosine_distance(first, second) == pytest.approx(0.5e-12, rel=1e-6)
    assert compute_cosine_distance(first, 3 * first) == 0.0 and compute_cosine_distance(first, -first) == 2.0


def test_headroom_share_is_a_ratio() -> None:
    room_R, gained_R = np.linspace(0.03, 0.05, 101), np.full(101, 0.01)
    taken = compute_headroom_shares({"mean": Gap.of(0.01, gained_R)}, {"mean": Gap.of(0.04, room_R)})
    assert taken["headroom_taken/mean/share"] == pytest.approx(0.25)
    low, high = np.quantile(gained_R / room_R, [0.025, 0.975])
    assert (taken["headroom_taken/mean/low"], taken["headroom_taken/mean/high"]) == pytest.approx((low, high))
    nothing = compute_headroom_shares({"mean": Gap.of(0.01, gained_R)}, {"mean": Gap.of(0.001, room_R - 0.039)})
    assert set(nothing) == {"headroom/mean/difference", "headroom/mean/low", "headroom/mean/high"}


def test_headroom_matches_bm25_formula(texts: Inputs) -> None:
    queries = {"home": ("rain snow", "bread kettle"), "away": ("copper wires", "band violin")}
    collections = {
        name: Collection(replace(one.retrieval, queries=queries[name]), one.quirks)
        for name, one in read_collections(texts.suite).items()
    }
    own_Q, wrong_Q = compute_word_scores(texts.suite, collections, texts.pairs, 2, seed=0)
    assert (own_Q != wrong_Q).sum() == 3, "three queries score differently under the two contexts"
    expected: dict[str, list[float]] = {"own": [], "wrong": []}
    for name, other in (("home", "away"), ("away", "home")):
        for kind, source in (("own", name), ("wrong", other)):
            given = draw_context("own", collections[source].retrieval, num_contexts=2, seed=0).texts
            assert given is not None
            expected[kind] += [_compute_bm25_ndcg(collections[name].retrieval, q, given) for q in range(2)]
    assert own_Q == pytest.approx(expected["own"], abs=1e-6) and wrong_Q == pytest.approx(expected["wrong"], abs=1e-6)


def test_headroom_needs_a_small_suite(texts: Inputs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def has_scores(name: str, suite: Suite) -> bool:
        (tmp_path / name).mkdir()
        write_word_scores(tmp_path / name, suite, texts.pairs, 2, 0)
        return read_word_scores(tmp_path / name) is not None

    num_documents = sum(len(documents) for documents in DOCUMENTS.values())
    monkeypatch.setattr(headroom, "MAX_DOCUMENTS", num_documents)
    assert has_scores("small", texts.suite)
    assert not has_scores("alone", Suite("alone", texts.suite.datasets[:1]))
    monkeypatch.setattr(headroom, "MAX_DOCUMENTS", num_documents - 1)
    assert not has_scores("large", texts.suite)


def _compute_bm25_ndcg(one: Retrieval, query: int, given: Sequence[str]) -> float:
    """Return the score of a query under BM25 whose IDF is from the given documents, smoothed by the training texts."""
    tokenizer = load_tokenizer("minilm")

    def words(text: str) -> list[int]:
        return tokenizer.encode(text, add_special_tokens=False).ids

    training = [text for documents in DOCUMENTS.values() for text in documents]

    def idf(word: int) -> float:
        prior = (sum(word in words(text) for text in training) + 0.5) / (len(training) + 1)
        return -math.log((sum(word in words(text) for text in given) + PRIOR * prior) / (len(given) + PRIOR))

    mean = np.mean([len(words(text)) for text in one.documents])
    scores = []
    for text in one.documents:
        counts = Counter(words(text))
        norm = K1 * (1 - B + B * len(words(text)) / mean)
        scores.append(sum(idf(word) * counts[word] / (counts[word] + norm) for word in words(one.queries[query])))
    order = sorted(range(len(scores)), key=lambda place: (-round(scores[place], 6), one.document_ids[place]))
    (relevant,) = one.judgements[one.query_ids[query]]
    return 1 / math.log2(2 + order.index(one.document_ids.index(relevant)))


def test_filler_vectors_are_no_context(texts: Inputs) -> None:
    model = make_model("contextual")
    assert isinstance(model, ContextualModel) and model.config.num_contexts >= 3
    probe = ContextProbe([], 2, 0)
    probe.add(retrieval.WithNulls(model), read_collections(texts.suite)["home"], {})
    assert probe.vectors_CD[0].shape == (2, model.config.hidden_size)


HOME_DOCUMENTS = (
    "rain falls on green hills",
    "Rain and snow, rain again",
    "a kettle on the stove",
    "bread and butter",
)
OTHER = make_collection("away", ("copper wires carry current", "a drum and a violin"), relevant=(0,))
HOME = Collection(make_collection("home", HOME_DOCUMENTS, relevant=(0, 1)), find_quirks("home"))
KINDS = ("own", "wrong", "null")


def explain_at_home(model: object, query: Query, **changes: object) -> Explanation:
    """Explain a query on HOME, whose hits are scored by the model."""
    swap = Swap(model, HOME, OTHER, KINDS, 2)  # type: ignore[arg-type]
    retrieval = HOME.retrieval

    def hits_of(kind: str) -> dict[str, float]:
        scores = swap.encoder.encode([query.text], "query") @ swap.encoder.encode(retrieval.documents, "document").T
        return dict(zip(retrieval.document_ids, map(float, scores[0]), strict=True))

    return explain_query(swap, query, hits_of, called="m", suite="s", **changes)  # type: ignore[arg-type]


def test_words_are_removed_everywhere() -> None:
    assert list_words(HOME_DOCUMENTS[1]) == ["rain", "and", "snow", "again"]
    assert remove_word(HOME_DOCUMENTS[1], "rain") == "and snow, again"
    assert remove_word("the then the", "the") == "then"


def test_word_weights_match_cosine_shares() -> None:
    model = make_model("contextual")
    explained = explain_at_home(model, Query("rain on hills", "home-q0"))
    model.set_context(None)
    whole, *rest = model.encode(["rain on hills", "on hills", "rain hills", "rain on"], "query").astype(np.float64)
    distances = [1 - one @ whole / np.linalg.norm(one) / np.linalg.norm(whole) for one in rest]
    assert [word.word for word in explained.query.words] == ["rain", "on", "hills"]
    for word, distance in zip(explained.query.words, distances, strict=True):
        assert word.shares["null"] == pytest.approx(distance / sum(distances), rel=1e-3)
    for kind in KINDS:
        assert sum(word.shares[kind] for word in explained.query.words) == pytest.approx(1)
        assert sum(word.shares[kind] for word in explained.document.words) == pytest.approx(1)
    assert (
        explained.query.words[0].gain
        == explained.query.words[0].shares["own"] - explained.query.words[0].shares["wrong"]
    )


def test_vectors_move_by_one_minus_cosine() -> None:
    model, vectors = make_model("contextual"), {}
    explained = explain_at_home(model, Query("rain on hills", "home-q0"))
    swap = Swap(model, HOME, OTHER, KINDS, 2)
    for kind in KINDS:
        swap.set_context(kind)
        vectors[kind] = model.encode(["rain on hills"], "query")[0].astype(np.float64)
    assert set(explained.query.moved) == {"wrong", "null"}
    for kind, moved in explained.query.moved.items():
        assert moved == pytest.approx(1 - vectors["own"] @ vectors[kind], abs=1e-6)


def test_ranks_follow_scores() -> None:
    numbered = make_collection("rival", ("home says 1", "home says 2", "home says 3"), relevant=(2,))
    rival = make_collection("x", ("rival says 1", "rival says 2"), relevant=(0,))
    swap = Swap(Ranker(), Collection(numbered, find_quirks("rival")), rival, KINDS, 2)

    def hits_of(kind: str) -> dict[str, float]:
        query, documents = swap.encoder.encode(["q"], "query"), swap.encoder.encode(numbered.documents, "document")
        return dict(zip(numbered.document_ids, map(float, (query @ documents.T)[0]), strict=True))

    explained = explain_query(swap, Query("q", "rival-q0"), hits_of, called="m", suite="s", top=1)
    found = {hit.id: (dict(hit.ranks), hit.is_relevant) for hit in explained.hits}
    assert found == {
        "rival-d0": ({"own": 1, "wrong": 3, "null": 1}, False),
        "rival-d2": ({"own": 3, "wrong": 1, "null": 3}, True),
    }
    assert explained.scores == pytest.approx({"own": 0.5, "wrong": 1.0, "null": 0.5})
    assert (explained.document.id, explained.num_relevant, explained.is_judged) == ("rival-d2", 1, True)


def test_blind_model_moves_no_rank() -> None:
    class Blind:
        """A model whose vectors count the letters of a text."""

        def set_context(self, texts: object, seed: int = 0, prompt: str = "document") -> None:
            """Do nothing."""

        def encode(self, texts: list[str], prompt: str = "document") -> np.ndarray:
            """Return unit vectors."""
            counts = np.array([[text.count(letter) + 0.1 for letter in "abcdefghilnorst"] for text in texts])
            return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)

    explained = explain_at_home(Blind(), Query("rain on hills"))
    assert {word.gain for word in (*explained.query.words, *explained.document.words)} == {0.0}
    assert set(explained.query.moved.values()) == set(explained.document.moved.values()) == {0.0}
    assert all(len(set(hit.ranks.values())) == 1 for hit in explained.hits)
    assert (explained.is_judged, explained.scores, explained.num_relevant) == (False, {}, 0)
    assert "nothing judges this query" in " ".join(make_context_views(explained)[0].notes)


def test_only_text_read_is_explained() -> None:
    model = make_model("contextual", max_tokens=8, prompts="task")
    assert isinstance(model, ContextualModel)
    text = "rain snow iron copper violin drum kettle lamp"
    read = truncate_to_model(model, text, "document")
    assert text.startswith(read) and 0 < len(list_words(read)) < 6
    np.testing.assert_allclose(_encode_under_null(model, read), _encode_under_null(model, text), atol=1e-6)
    assert truncate_to_model(retrieval.WithNulls(model), text, "document") == read
    assert truncate_to_model(Ranker(), text, "document") == text


def _encode_under_null(model: ContextualModel, text: str) -> np.ndarray:
    model.set_context(None)
    return model.encode([text], "document")


def test_record_shows_query_that_gains_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.analyses.context_effect.compute_word_scores", lambda *given: None)
    home = make_collection("home", ("home says 1", "home says 2"), relevant=(1, 0, 0))
    rival = make_collection("rival", ("rival says 1", "rival says 2"), relevant=(1,))
    inputs = make_inputs(RUN, suite=write_collections(tmp_path, home, rival))
    rows = retrieval.measure(inputs, Ranker(), tmp_path / "run").exhibits
    assert rows[EXHIBIT][0] == {"what": "context from", "text": "", "own": "home", "wrong": "rival", "null": "nothing"}
    assert rows[EXHIBIT][1] == {
        "what": "query, NDCG@10", "text": "home asks 1", "own": "100.0", "wrong": "63.1", "null": "100.0"
    }  # fmt: skip
    ranks = [
        (row["text"], row["own"], row["wrong"]) for row in rows[EXHIBIT] if row["what"] == "relevant document, rank"
    ]
    assert ranks == [("home says 1", "1", "2")]


def test_first_of_equal_queries_is_taken() -> None:
    assert find_largest_moves(np.array([0.0, 0.5, 0.9, 0.5]), np.array([0.0, 0.1, 0.5, 0.1])) == 1


def test_changed_words_are_ordered_by_gain() -> None:
    words = [Word(name, {"own": own, "wrong": 0.2}) for name, own in (("a", 0.2), ("b", 0.1), ("c", 0.5), ("d", 0.25))]
    assert [word.word for word in find_changed_words(words, 3)] == ["c", "d", "b"]


def test_tables_fit_a_hundred_columns() -> None:
    explained = explain_at_home(make_model("contextual"), Query("rain " * 60 + "x" * 90, ""), top=2)
    for view in make_context_views(explained):
        widths = [max(len(line[n]) for line in (view.header, *view.rows)) + 3 for n in range(len(view.header))]
        assert sum(widths) <= 100 and all(len(note) <= 100 for note in view.notes), view.title
