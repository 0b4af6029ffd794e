"""A model card shows the scores of its record, or states that the model was not evaluated by retrieval."""

import json
from dataclasses import replace
from typing import Any

import pytest

from repro.interop.arguments import FORMATS
from repro.interop.card import CONTEXT_NOTE, make_model_card
from repro.interop.comparison import MEASURE_LABELS, make_measures_view
from repro.interop.opening import Opened
from repro.records.store import Record, read_record
from repro.spec import TRAINED
from repro.storage.paths import get_published_records
from tests.interop.small import make_model


@pytest.fixture(scope="module")
def records() -> list[Record]:
    """A published record of each analysis of each trained architecture, with each pretraining and dropout."""
    paths = {}
    for path in get_published_records().glob("*.json"):
        # Reading all records with their checks takes 20 seconds.
        run = json.loads(path.read_bytes())["run"]
        if run["architecture"] in TRAINED:
            key = (run["measure"], run["architecture"], run.get("pretraining_corpus"), run.get("sequence_dropout"))
            paths[key] = path
    return [read_record(path) for path in sorted(paths.values())]


def make_card(record: Record, **changes: Any) -> str:
    """Return the card of a model with the record of a run, and with these fields of the run changed."""
    opened = Opened(make_model(record.run.architecture), record.id, replace(record.run, **changes))
    return make_model_card(opened, "a model", "sentence-transformers", ["pass"])


def test_every_analysis_has_a_card(records: list[Record]) -> None:
    """It shows NDCG@10 if the record has scores per query. Otherwise it states that there are none."""
    # A record with scores under its own context comes last, and is taken.
    ordered = sorted(records, key=lambda record: f"{record.run.suite}/mean/ndcg_at_10" in record.metrics)
    by_measure = {record.run.measure: record for record in ordered}
    assert len(by_measure) > 5
    for measure, record in by_measure.items():
        section = make_card(record).split("## Scores")[1].split("## Use")[0]
        score = record.metrics.get(f"{record.run.suite}/mean/ndcg_at_10")
        has_scores = score is not None or measure in ("adaptive", "headroom")
        assert has_scores == ("NDCG@10" in section) != ("Not evaluated by retrieval here." in section)
        assert score is None or f"| mean | {100 * score:.1f} |" in section


def test_only_contextual_cards_mention_contexts(records: list[Record]) -> None:
    retrieval = [record for record in records if record.run.measure == "retrieval"]
    cards = {record.run.architecture: make_card(record) for record in retrieval if record.run.sequence_dropout < 1}
    for words in ("own context", "context documents: compare", "null context", "embedded again"):
        assert words in cards["contextual"] and words not in cards["biencoder"], words


def test_blind_card_mentions_no_documents(records: list[Record]) -> None:
    """A model that was trained without documents has the null context alone."""
    record = next(record for record in records if record.run.sequence_dropout == 1)
    opened = Opened(make_model("contextual", sequence_dropout=1.0), record.id, record.run)
    for library in FORMATS:
        card = make_model_card(opened, "a model", library, ["pass"])
        (line,) = card.split("## Context\n\n")[1].split("\n\n## ")[0].splitlines()
        assert "the null context alone" in line and CONTEXT_NOTE not in card


def test_card_names_corpora_of_both_phases(records: list[Record]) -> None:
    record = next(record for record in records if record.run.pretraining_corpus)
    card = make_card(record, corpus="mine", sources="left+right", pretraining_corpus="all")
    assert "Trained on the corpus `all`, then on the corpus `mine` (sources left+right); " in card.split("## Data")[1]


@pytest.mark.parametrize(("contexts", "columns"), [([], ["a"]), ([{"kind": "own", "dataset": "a"}], ["a", "own"])])
def test_table_has_context_column_if_needed(contexts: list[dict[str, str]], columns: list[str]) -> None:
    metrics = {f"mine/{name}/{measure}": 0.5 for name in ("a", "mean") for measure in MEASURE_LABELS}
    suite = {"datasets": [{"name": "a"}], "contexts": contexts}
    view = make_measures_view("title", "mine", metrics, suite, {}, {})
    assert list(view.rows[0][: len(columns)]) == columns
    assert len(view.rows[0]) == len(view.header) == len(columns) + len(MEASURE_LABELS)
