"""A model card shows the scores of its record, or states that the model was not evaluated by retrieval."""

from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from repro.interop.card import make_model_card
from repro.interop.comparison import MEASURE_LABELS, make_measures_view
from repro.interop.opening import Opened
from repro.records.store import Record, read_records
from repro.spec import TRAINED
from repro.storage.paths import get_published_records
from tests.interop.small import make_model as make_small_model


@pytest.fixture(scope="module")
def trained() -> list[Record]:
    """The published records of runs that train a model."""
    return [record for record in read_records(get_published_records()) if record.run.architecture in TRAINED]


@pytest.fixture
def scored(trained: list[Record]) -> list[Record]:
    """The records with scores per query."""
    return [record for record in trained if record.run.measure == "retrieval" and record.arrays]


make_model = cache(make_small_model)


def make_card(record: Record, **changes: Any) -> str:
    """Return the card of a model with the record of a run, and with these fields of the run changed."""
    opened = Opened(make_model(record.run.architecture), record.id, replace(record.run, **changes))
    return make_model_card(opened, "a model", "sentence-transformers", ["pass"])


def test_every_analysis_has_a_card(trained: list[Record]) -> None:
    """It shows NDCG@10 if the record has scores per query. Otherwise it states that there are none."""
    by_measure = {record.run.measure: record for record in trained}
    assert len(by_measure) > 5
    for measure, record in by_measure.items():
        scores = make_card(record).split("## Scores")[1].split("## Use")[0]
        found = record.metrics.get(f"{record.run.suite}/mean/ndcg_at_10")
        by_query = found is not None or measure in ("adaptive", "headroom")
        assert by_query == ("NDCG@10" in scores) != ("Not evaluated by retrieval here." in scores)
        assert found is None or f"| mean | {100 * found:.1f} |" in scores


def test_only_contextual_cards_mention_contexts(scored: list[Record]) -> None:
    # A context-blind model reads no documents, so its card mentions no context either.
    seeing = [record for record in scored if record.run.sequence_dropout < 1]
    cards = {name: make_card(next(one for one in seeing if one.run.architecture == name)) for name in TRAINED}
    for words in ("own context", "context documents: compare", "null context", "embedded again"):
        assert words in cards["contextual"] and words not in cards["biencoder"], words


def test_card_names_corpora_of_both_phases(scored: list[Record]) -> None:
    record = next(one for one in scored if one.run.pretraining_corpus)
    card = make_card(record, corpus="mine", sources="left+right", pretraining_corpus="all")
    assert "Trained on the corpus `all`, then on the corpus `mine` (sources left+right); " in card.split("## Data")[1]


def test_table_has_context_column_if_needed() -> None:
    metrics = {f"mine/{one}/{measure}": 0.5 for one in ("a", "mean") for measure in MEASURE_LABELS}
    suite = {"datasets": [{"name": "a"}]}
    view = make_measures_view("title", "mine", metrics, suite, {})
    assert (
        view.header[:2] == ("collection", *MEASURE_LABELS.values())[:2]
        and view.rows[0][0] == "a"
        and len(view.rows[0]) == 4
    )
    with_context = suite | {"contexts": [{"kind": "own", "dataset": "a"}]}
    assert make_measures_view("title", "mine", metrics, with_context, {}).rows[0][1] == "own"
