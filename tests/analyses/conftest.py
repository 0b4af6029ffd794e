"""Two tiny collections that a contextual model is measured on."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from repro.pipeline.inputs import Inputs
from repro.spec import base
from tests.analyses.by_hand import make_collection, make_inputs, write_collections


@pytest.fixture
def no_headroom(tmp_path: Path) -> SimpleNamespace:
    """A graph whose stage of the headroom is empty, as for a large suite. The headroom needs training text."""
    return SimpleNamespace(headroom=SimpleNamespace(build=lambda: tmp_path / "headroom"))


@pytest.fixture
def searched(tmp_path: Path, no_headroom: SimpleNamespace) -> Inputs:
    """Two collections of two numbered documents. The first document answers "home", the second one "rival"."""
    home = make_collection("home", ("home says 1", "home says 2"), relevant=(0, 0))
    rival = make_collection("rival", ("rival says 1", "rival says 2"), relevant=(1,))
    run = base("desk", architecture="contextual", num_contexts=2)
    return make_inputs(run, suite=write_collections(tmp_path, home, rival), graph=no_headroom)
