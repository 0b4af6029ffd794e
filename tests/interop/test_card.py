"""A model card shows the scores of its record, or states that the model was not evaluated by retrieval."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.interop.card import make_model_card
from repro.interop.opening import Opened
from repro.report.scores import find_records
from repro.spec.registry import find_experiment
from tests.interop.small import export_small_model, make_model


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_card_shows_its_scores(architecture: str) -> None:
    """Only the card of a contextual model mentions contexts."""
    run = next(run for run in find_experiment("table1").runs("desk") if run.architecture == architecture)
    (record,) = find_records([run])
    model = make_model(architecture, sequence_dropout=run.sequence_dropout)
    card = make_model_card(Opened(model, record.id, run), "a model")
    scores = card.split("## Scores")[1].split("## Use")[0]
    mean = 100 * record.metrics["desk/mean/ndcg_at_10"]
    assert f"| mean | {mean:.1f} |" in scores and scores.count("95 %") == (3 if architecture == "contextual" else 1)
    assert ("null context" in card) == ("compare only scores" in card) == (architecture == "contextual")


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
