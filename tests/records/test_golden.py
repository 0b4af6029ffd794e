"""Golden metrics: missing files are found and written from smoke runs, and the committed ones match today's runs."""

import json
from pathlib import Path

from repro.records import golden
from repro.records.store import Record
from repro.spec import base
from repro.spec.identity import run_id
from repro.spec.registry import experiments


def test_headlines_are_kept() -> None:
    recorded = {
        "planted/mean/ndcg_at_10": 0.123456,
        "planted/a/ndcg_at_10": 0.2,
        "train/loss": 1.5,
        "train/pairs_per_second": 99.0,
        "train/masked_fraction": 0.1,
    }
    assert golden.compute_golden_metrics(recorded) == {"planted/mean/ndcg_at_10": 0.1235, "train/loss": 1.5}


def test_other_metrics_keep_first_twelve() -> None:
    recorded = {f"pca/{n:02d}/share": n / 100 for n in range(14, 0, -1)} | {"pca/00/x": 1.0, "train/loss": 0.5}
    assert list(golden.compute_golden_metrics(recorded)) == [
        "train/loss",
        *(f"pca/{n:02d}/share" for n in range(1, 13)),
    ]


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
