"""Golden metrics: missing files are found and written from smoke runs, and the committed ones match today's runs."""

import json
from pathlib import Path

from repro.records import golden
from repro.records.store import Record
from repro.spec import base
from repro.spec.identity import run_id
from repro.spec.registry import experiments


def test_missing_golden_files_are_found(tmp_path: Path) -> None:
    first, *others = experiments()
    assert golden.list_without_golden(tmp_path) == [first, *others]
    run = base("smoke")
    record = Record(run_id(run), run, {"train/loss": 0.25}, {}, Path("none"))
    path = golden.write_golden(first.artefact_names[0], [record], tmp_path)
    assert json.loads(path.read_text()) == {run_id(run): {"train/loss": 0.25}}
    assert golden.list_without_golden(tmp_path) == others


def test_golden_files_hold_todays_runs() -> None:
    missing = [experiment.title for experiment in golden.list_without_golden()]
    assert missing == [], "run `python -m repro check --write`"
    for experiment in experiments():
        stored = json.loads(golden.get_golden_path(experiment.artefact_names[0]).read_text())
        assert set(stored) == {run_id(run) for run in golden.list_golden_runs(experiment)}, experiment.title
