"""A model card has the scores that a record has by query, and says so where there are none, whatever was measured."""

from dataclasses import replace

import pytest

from repro.interop.beside import SHOWN, make_measures_view
from repro.interop.card import make_model_card
from repro.interop.opening import Opened
from repro.records.store import Record, read_records
from repro.spec import TRAINED
from repro.storage.paths import get_published_records
from tests.interop.test_sentence_transformers import model_of


@pytest.fixture(scope="module")
def trained() -> list[Record]:
    """The published records of runs that train a model."""
    return [record for record in read_records(get_published_records()) if record.run.architecture in TRAINED]


@pytest.fixture
def scored(trained: list[Record]) -> list[Record]:
    """Those of them with scores by query."""
    return [record for record in trained if record.run.measure == "retrieval" and record.arrays]


def test_every_analysis_has_a_card(trained: list[Record]) -> None:
    """It shows NDCG@10 if the record has scores by query, and otherwise says that there are none."""
    models = {architecture: model_of(architecture) for architecture in TRAINED}
    by_measure = {record.run.measure: record for record in trained}
    assert len(by_measure) > 5
    for measure, record in by_measure.items():
        opened = Opened(models[record.run.architecture], record.id, record.run)
        card = make_model_card(opened, "a model", "sentence-transformers", ["pass"])
        (scores,) = card.split("## Scores")[1].split("## Use")[:1]
        found = record.metrics.get(f"{record.run.suite}/mean/ndcg_at_10")
        by_query = found is not None or measure in ("adaptive", "headroom")
        assert by_query == ("NDCG@10" in scores) != ("Not evaluated by retrieval here." in scores)
        assert found is None or f"| mean | {100 * found:.1f} |" in scores


def test_only_contextual_cards_mention_contexts(scored: list[Record]) -> None:
    cards = {}
    for architecture in TRAINED:
        record = next(one for one in scored if one.run.architecture == architecture)
        opened = Opened(model_of(architecture), record.id, record.run)
        cards[architecture] = make_model_card(opened, "a model", "sentence-transformers", ["pass"])
    for words in ("own context", "context documents: compare", "null context", "embedded again"):
        assert words in cards["contextual"] and words not in cards["biencoder"], words


def test_card_names_corpora_of_both_phases(scored: list[Record]) -> None:
    record = next(one for one in scored if one.run.pretraining_corpus)
    run = replace(record.run, corpus="mine", sources="left+right", pretraining_corpus="all")
    card = make_model_card(
        Opened(model_of(run.architecture), record.id, run), "a model", "sentence-transformers", ["pass"]
    )
    assert "Trained on the corpus `all`, then on the corpus `mine` (sources left+right); " in card.split("## Data")[1]


def test_table_has_context_column_if_needed() -> None:
    metrics = {f"mine/{one}/{measure}": 0.5 for one in ("a", "mean") for measure in SHOWN}
    told = {"datasets": [{"name": "a"}]}
    view = make_measures_view("title", "mine", metrics, told, {})
    assert view.header[:2] == ("collection", *SHOWN.values())[:2] and view.rows[0][0] == "a" and len(view.rows[0]) == 4
    drawn = told | {"contexts": [{"kind": "own", "dataset": "a"}]}
    assert make_measures_view("title", "mine", metrics, drawn, {}).rows[0][1] == "own"
