"""Numbers in files of runs and profiles that were once accepted or refused without a name."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from repro.records.lookup import read_runs
from repro.spec import base
from repro.spec.identity import get_training_id, run_id


@pytest.mark.parametrize("value", [1, 1.0])
def test_whole_floats_are_integers(tmp_path: Path, value: float) -> None:
    path = tmp_path / "x.json"
    path.write_text(json.dumps([{"scale": "smoke", "first_stage_rate": value, "filter_margin": -0.0}]))
    assert [run_id(run) for run in read_runs(path)] == [run_id(base("smoke", first_stage_rate=1.0, filter_margin=0.0))]
    negative_zero = replace(base("smoke", learning_rate=value), filter_margin=np.float64(-0.0))
    assert get_training_id(negative_zero) == get_training_id(base("smoke", learning_rate=1.0, filter_margin=0.0))
