"""A model card shows the scores of its record, or states that the model was not evaluated by retrieval."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.interop.card import make_model_card
from repro.interop.opening import Opened
from repro.records.store import Record
from repro.report.scores import find_records
from repro.spec.registry import find_experiment
from tests.interop.small import export_small_model, make_model


def find_record(artefact: str, architecture: str, **fields: Any) -> Record:
    """Return the first published record of an artefact at `desk` with these fields."""
    wanted = {"architecture": architecture, **fields}.items()
    runs = find_experiment(artefact).runs("desk")
    return find_records([run for run in runs if all(getattr(run, name) == value for name, value in wanted)][:1])[0]


def make_card(record: Record, **changes: Any) -> str:
    """Return the card of a model with the record of a run, and with these fields of the run changed."""
    model = make_model(record.run.architecture, sequence_dropout=record.run.sequence_dropout)
    opened = Opened(model, record.id, replace(record.run, **changes))
    return make_model_card(opened, "a model", ["pass"], "`pip install x`")


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_card_shows_its_scores(architecture: str) -> None:
    """Only the card of a contextual model mentions contexts."""
    record = find_record("table1", architecture)
    card = make_card(record)
    scores = card.split("## Scores")[1].split("## Use")[0]
    mean = 100 * record.metrics["desk/mean/ndcg_at_10"]
    assert f"| mean | {mean:.1f} |" in scores and scores.count("95 %") == (3 if architecture == "contextual" else 1)
    assert ("null context" in card) == ("compare only scores" in card) == (architecture == "contextual")


def test_columns_are_named_by_variant() -> None:
    header = make_card(find_record("whitening", "biencoder")).split("## Scores")[1].split("|\n", 1)[0].split("|")
    assert "NDCG@10" in map(str.strip, header) and len({*header[1:]}) == len(header[1:]) > 3


def test_card_names_corpora_of_both_phases() -> None:
    record = find_record("table1", "contextual")
    first = {"pretraining_corpus": "all", "num_pretraining_steps": 3}
    card = make_card(record, corpus="mine", sources="left+right", **first)
    assert "Trained on the corpus `all`, then on the corpus `mine` (sources left+right); " in card.split("## Data")[1]


def test_record_without_scores_is_named() -> None:
    assert "Not evaluated by retrieval here." in make_card(find_record("table2", "contextual"))


def test_blind_card_mentions_no_documents() -> None:
    card = make_card(find_record("context_blind", "contextual", sequence_dropout=1.0))
    (line,) = card.split("## Context\n\n")[1].split("\n\n## ")[0].splitlines()
    assert "the null context alone" in line and "compare only scores" not in card


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_code_of_a_card_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str) -> None:
    model, folder = export_small_model(tmp_path, architecture)
    card = (folder / "README.md").read_text()
    assert card.count("Not known") == 2 and "pip install" in card and "Not evaluated here" in card
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    model.set_context(names["documents"])
    scores = model.encode(["why does bread rise?"], "query") @ model.encode(names["documents"]).T
    np.testing.assert_allclose(names["scores"], scores, atol=1e-5)
