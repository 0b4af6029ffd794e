"""Two tiny collections that a contextual model is measured on."""

from pathlib import Path

import pytest

from repro.pipeline.inputs import Inputs
from repro.spec import base
from tests.analyses.by_hand import make_collection, make_inputs, write_collections


@pytest.fixture
def no_headroom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip the headroom, which needs training text."""
    monkeypatch.setattr("repro.analyses.context_effect.compute_word_scores", lambda *arguments: None)


@pytest.fixture
def searched(tmp_path: Path, no_headroom: None) -> Inputs:
    """Two collections of two numbered documents. The first document answers "home", the second one "rival"."""
    home = make_collection("home", ("home says 1", "home says 2"), relevant=(0, 0))
    rival = make_collection("rival", ("rival says 1", "rival says 2"), relevant=(1,))
    run = base("desk", architecture="contextual", num_contexts=2)
    return make_inputs(run, suite=write_collections(tmp_path, home, rival))
