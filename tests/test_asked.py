"""The words of a command line mean runs: artefacts, all, or a file of runs."""

import json
from pathlib import Path

import pytest

from repro.asked import runs_asked, sweep_name
from repro.planning import make_plan
from repro.registry import experiment_of
from repro.spec import base


def test_an_artefact_means_its_runs_with_the_readers_seeds() -> None:
    experiment = experiment_of("table1")
    asked = runs_asked(["table1"], "smoke")
    assert {run.seed for run in asked} == set(experiment.local_seeds)
    assert set(runs_asked(["table1"], "smoke", all_seeds=True)) == set(experiment.runs("smoke"))
    assert {run.seed for run in runs_asked(["table1"], "smoke", seeds=[1])} == {1}
    assert runs_asked(["table1", "table1"], "smoke") == asked


def test_a_file_means_the_runs_in_it(tmp_path: Path) -> None:
    path = tmp_path / "grid.json"
    path.write_text(json.dumps([{"scale": "smoke", "seed": 4}, {"scale": "desk", "num_steps": 9}]))
    assert runs_asked([str(path)], "smoke") == [base("smoke", seed=4), base("desk", num_steps=9)]
    assert sweep_name([str(path)], "smoke") == "grid-smoke"


def test_a_printed_plan_is_a_file_of_runs(tmp_path: Path) -> None:
    runs = runs_asked(["table1"], "smoke")
    path = tmp_path / "plan.json"
    path.write_text(json.dumps(make_plan(runs, [tmp_path]).as_dict()))
    assert runs_asked([str(path)], "smoke") == runs


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not JSON"),
        ('{"runs": []}', "expected a list of objects"),
        ('[{"seed": 1}]', "each with its scale"),
        ('[{"scale": "smoke", "sead": 1}]', "unknown axis"),
        ('[{"scale": "tiny"}]', "unknown scale 'tiny'"),
        ('[{"scale": "smoke", "learning_rate": NaN}]', "is not JSON: NaN is no value of a run"),
        ('[{"scale": "smoke", "learning_rate": Infinity}]', "Infinity is no value"),
    ],
)
def test_a_mistake_in_the_file_is_one_clear_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "grid.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=message):
        runs_asked([str(path)], "smoke")


def test_no_run_is_an_error_and_so_is_an_unknown_word() -> None:
    with pytest.raises(ValueError, match="has no run at scale 'smoke' with seed"):
        runs_asked(["table1"], "smoke", seeds=[99])
    with pytest.raises(ValueError, match="unknown artefact"):
        runs_asked(["table99"], "smoke")
