"""One query explained: a word weighs what it turns, ranks are those of the scores, a blind model shows no change."""

from pathlib import Path

import numpy as np
import pytest

from repro.analyses import retrieval
from repro.analyses.batch_text import shorten
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
from repro.data.paper.quirks import find_quirks
from repro.evaluate.collections import Collection
from repro.model.contextual import ContextualModel
from repro.report.context import make_context_views
from repro.spec import base
from tests.analyses.by_hand import Ranker, collection, inputs_of, suite_of
from tests.interop.test_sentence_transformers import model_of

DOCUMENTS = ("rain falls on green hills", "Rain and snow, rain again", "a kettle on the stove", "bread and butter")
OTHER = collection("away", ("copper wires carry current", "a drum and a violin"), relevant=(0,))
HOME = Collection(collection("home", DOCUMENTS, relevant=(0, 1)), find_quirks("home"))
KINDS = ("own", "wrong", "null")


def told_of(model: object, query: Query, **changes: object) -> Explanation:
    """Explain a query, its hits scored as they stand."""
    swap = Swap(model, HOME, OTHER, KINDS, 2)  # type: ignore[arg-type]
    retrieval = HOME.retrieval

    def hits_of(kind: str) -> dict[str, float]:
        scores = swap.encoder.encode([query.text], "query") @ swap.encoder.encode(retrieval.documents, "document").T
        return dict(zip(retrieval.document_ids, map(float, scores[0]), strict=True))

    return explain_query(swap, query, hits_of, called="m", suite="s", **changes)  # type: ignore[arg-type]


def test_a_word_is_left_out_wherever_it_stands_and_no_other_word_is() -> None:
    assert list_words(DOCUMENTS[1]) == ["rain", "and", "snow", "again"]
    assert remove_word(DOCUMENTS[1], "rain") == "and snow, again"
    assert remove_word("the then the", "the") == "then"


def test_a_words_weight_is_its_share_of_one_minus_the_cosine_without_it() -> None:
    model = model_of("contextual")
    told = told_of(model, Query("rain on hills", "home-q0"))
    model.set_context(None)
    whole, *rest = model.encode(["rain on hills", "on hills", "rain hills", "rain on"], "query").astype(np.float64)
    turned = [1 - one @ whole / np.linalg.norm(one) / np.linalg.norm(whole) for one in rest]
    assert [word.word for word in told.query.words] == ["rain", "on", "hills"]
    for word, expected in zip(told.query.words, turned, strict=True):
        assert word.shares["null"] == pytest.approx(expected / sum(turned), rel=1e-3)
    for kind in KINDS:
        assert sum(word.shares[kind] for word in told.query.words) == pytest.approx(1)
        assert sum(word.shares[kind] for word in told.document.words) == pytest.approx(1)
    assert told.query.words[0].gain == told.query.words[0].shares["own"] - told.query.words[0].shares["wrong"]


def test_vectors_move_by_one_minus_the_plain_cosine() -> None:
    model, vectors = model_of("contextual"), {}
    told = told_of(model, Query("rain on hills", "home-q0"))
    swap = Swap(model, HOME, OTHER, KINDS, 2)
    for kind in KINDS:
        swap.set_context(kind)
        vectors[kind] = model.encode(["rain on hills"], "query")[0].astype(np.float64)
    assert set(told.query.moved) == {"wrong", "null"}
    for kind, moved in told.query.moved.items():
        assert moved == pytest.approx(1 - vectors["own"] @ vectors[kind], abs=1e-6)


def test_ranks_are_those_of_the_scores_and_relevant_documents_are_marked() -> None:
    numbered = collection("rival", ("home says 1", "home says 2", "home says 3"), relevant=(2,))
    rival = collection("x", ("rival says 1", "rival says 2"), relevant=(0,))
    swap = Swap(Ranker(), Collection(numbered, find_quirks("rival")), rival, KINDS, 2)

    def hits_of(kind: str) -> dict[str, float]:
        query, documents = swap.encoder.encode(["q"], "query"), swap.encoder.encode(numbered.documents, "document")
        return dict(zip(numbered.document_ids, map(float, (query @ documents.T)[0]), strict=True))

    told = explain_query(swap, Query("q", "rival-q0"), hits_of, called="m", suite="s", top=1)
    found = {hit.id: (dict(hit.ranks), hit.is_relevant) for hit in told.hits}
    assert found == {
        "rival-d0": ({"own": 1, "wrong": 3, "null": 1}, False),
        "rival-d2": ({"own": 3, "wrong": 1, "null": 3}, True),
    }
    assert told.scores == pytest.approx({"own": 0.5, "wrong": 1.0, "null": 0.5})
    assert (told.document.id, told.num_relevant, told.is_judged) == ("rival-d2", 1, True)


def test_a_model_blind_to_its_context_gives_no_word_more_and_moves_no_rank() -> None:
    class Blind:
        """Vectors by the letters of a text."""

        def set_context(self, texts: object, seed: int = 0, prompt: str = "document") -> None:
            """Take no notice."""

        def encode(self, texts: list[str], prompt: str = "document") -> np.ndarray:
            """Return unit vectors."""
            counts = np.array([[text.count(letter) + 0.1 for letter in "abcdefghilnorst"] for text in texts])
            return (counts / np.linalg.norm(counts, axis=1, keepdims=True)).astype(np.float32)

    told = told_of(Blind(), Query("rain on hills"))
    assert {word.gain for word in (*told.query.words, *told.document.words)} == {0.0}
    assert set(told.query.moved.values()) == set(told.document.moved.values()) == {0.0}
    assert all(len(set(hit.ranks.values())) == 1 for hit in told.hits)
    assert (told.is_judged, told.scores, told.num_relevant) == (False, {}, 0)
    assert "nothing judges this query" in " ".join(make_context_views(told)[0].notes)


def test_only_what_the_model_reads_is_looked_at() -> None:
    model = model_of("contextual", max_tokens=8, prompts="task")
    assert isinstance(model, ContextualModel)
    text = "rain snow iron copper violin drum kettle lamp"
    read = truncate_to_model(model, text, "document")
    assert text.startswith(read) and 0 < len(list_words(read)) < 6
    np.testing.assert_allclose(_plain(model, read), _plain(model, text), atol=1e-6)
    assert truncate_to_model(retrieval.WithNulls(model), text, "document") == read
    assert truncate_to_model(Ranker(), text, "document") == text


def _plain(model: ContextualModel, text: str) -> np.ndarray:
    model.set_context(None)
    return model.encode([text], "document")


def test_a_record_tells_of_the_query_that_gains_most(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.analyses.context_effect.compute_word_scores", lambda *given: None)
    home = collection("home", ("home says 1", "home says 2"), relevant=(1, 0, 0))
    rival = collection("rival", ("rival says 1", "rival says 2"), relevant=(1,))
    run = base("desk", architecture="contextual", num_contexts=2)
    rows = retrieval.measure(inputs_of(run, suite=suite_of(tmp_path, home, rival)), Ranker(), tmp_path / "run").exhibits
    assert rows[EXHIBIT][0] == {"what": "context from", "text": "", "own": "home", "wrong": "rival", "null": "nothing"}
    assert rows[EXHIBIT][1] == {
        "what": "query, NDCG@10", "text": "home asks 1", "own": "100.0", "wrong": "63.1", "null": "100.0"
    }  # fmt: skip
    ranks = [
        (row["text"], row["own"], row["wrong"]) for row in rows[EXHIBIT] if row["what"] == "relevant document, rank"
    ]
    assert ranks == [("home says 1", "1", "2")]


def test_the_first_of_equal_queries_is_taken() -> None:
    assert find_largest_moves(np.array([0.0, 0.5, 0.9, 0.5]), np.array([0.0, 0.1, 0.5, 0.1])) == 1


def test_telling_words_run_from_the_largest_gain_to_the_largest_loss() -> None:
    words = [Word(name, {"own": own, "wrong": 0.2}) for name, own in (("a", 0.2), ("b", 0.1), ("c", 0.5), ("d", 0.25))]
    assert [word.word for word in find_changed_words(words, 3)] == ["c", "d", "b"]


def test_every_line_of_the_tables_fits_into_a_hundred_columns() -> None:
    told = told_of(model_of("contextual"), Query("rain " * 60 + "x" * 90, ""), top=2)
    for view in make_context_views(told):
        widths = [max(len(line[n]) for line in (view.header, *view.rows)) + 3 for n in range(len(view.header))]
        assert sum(widths) <= 100 and all(len(note) <= 100 for note in view.notes), view.title
    assert shorten("one two three", 9) == "one …" and shorten("abcdefghijkl", 6) == "abcd …"
