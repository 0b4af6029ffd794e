"""A model card has the scores that a record has by query, and says so where there are none, whatever was measured."""

import pytest

from repro.interop.card import model_card
from repro.interop.opening import Opened
from repro.records.store import read_records
from repro.spec import TRAINED
from repro.storage.paths import published_records
from tests.interop.test_sentence_transformers import model_of

BY_MEASURE = {
    record.run.measure: record for record in read_records(published_records()) if record.run.architecture in TRAINED
}


@pytest.mark.parametrize("measure", sorted(BY_MEASURE))
def test_a_run_of_any_measure_has_a_card(measure: str) -> None:
    record = BY_MEASURE[measure]
    opened = Opened(model_of(record.run.architecture), record.id, record.run)
    card = model_card(opened, "a model", "sentence-transformers", ["pass"])
    (scores,) = card.split("## Scores")[1].split("## Use")[:1]
    found = record.metrics.get(f"{record.run.suite}/mean/ndcg_at_10")
    by_query = found is not None or measure in ("adaptive", "headroom")  # of shortlists, of words weighted otherwise
    assert by_query == ("NDCG@10" in scores) != ("Not evaluated by retrieval here." in scores)
    assert found is None or f"| mean | {100 * found:.1f} |" in scores
