"""The table of a file of runs says what sets each run apart, and what the seeds of a setting have in common."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from repro.records.store import write_record
from repro.report.scores import make_pivot_view, make_scores_view
from repro.spec import Run, base, grid
from repro.spec.identity import run_id
from repro.storage.paths import get_local_records
from tests.hand_made import write_scores


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder without records."""
    monkeypatch.setenv("REPRO_HOME", str(tmp_path))


def record(run: Run, score: float) -> None:
    """Write the record of a run that scores this on its one dataset."""
    write_scores(get_local_records(), run, np.full(4, score, np.float32))


def test_a_grid_is_told_apart_by_what_it_varies_and_each_setting_has_the_mean_of_its_seeds() -> None:
    runs = grid(base("desk", batch_size=64), learning_rate=(0.001, 0.002), seed=(7, 8))
    for run, score in zip(runs, (0.5, 0.25, 0.75, 0.75), strict=True):
        record(run, score)
    bm25 = base("desk", architecture="bm25", num_pairs=None)
    record(bm25, 0.125)
    view = make_scores_view([*runs, bm25])
    assert view.header[:5] == ("run", "model", "seed", "learning_rate", "mean")
    assert [line[1:5] for line in view.rows] == [
        ("biencoder", "7", "0.001", "50.0"),
        ("biencoder", "8", "0.001", "25.0"),
        ("biencoder", "7", "0.002", "75.0"),
        ("biencoder", "8", "0.002", "75.0"),
        ("bm25", "", "", "12.5"),
        ("biencoder", "", "0.001", "37.5 ± 17.7"),
        ("biencoder", "", "0.002", "75.0 ± 0.0"),
    ]
    assert [line[0] for line in view.rows[5:]] == ["2 seeds", "2 seeds"] and "±" in view.notes[-1]


def test_a_run_alone_is_called_by_its_architecture() -> None:
    recorded, missing = grid(base("desk", batch_size=77), seed=(0, 1))
    record(recorded, 0.5)
    view = make_scores_view([recorded, missing])
    assert [line[1] for line in view.rows] == ["biencoder"] and not view.notes


def test_context_blind_run_has_its_name() -> None:
    """A run without a score under its own corpus has a line of its own, in the table and in a pivot."""
    runs = grid(
        base("desk", architecture="contextual", sequence_dropout=1.0, test_contexts="null"),
        learning_rate=(0.001, 0.002),
    )
    for run, score in zip(runs, (0.5, 0.25), strict=True):
        metrics = {f"desk+null/{name}/ndcg_at_10": score for name in ("a", "mean")}
        write_record(get_local_records(), run, metrics=metrics, arrays={}, provenance={"suite": {"datasets": []}})
    assert [line[:2] for line in make_scores_view(runs).rows] == [
        (run_id(run), "contextual, null context") for run in runs
    ]
    one, other = (replace(run, batch_size=size) for run, size in zip(runs, (16, 64), strict=True))
    for run in (one, other):
        metrics = {"desk+null/mean/ndcg_at_10": 0.75}
        write_record(get_local_records(), run, metrics=metrics, arrays={}, provenance={"suite": {"datasets": []}})
    cells = [
        cell for line in make_pivot_view([*runs, one, other], "learning_rate", "batch_size").rows for cell in line[1:]
    ]
    assert sorted(cells) == ["25.0", "50.0", "75.0", "75.0", "–", "–"]


def test_pivot_has_the_mean_of_each_cell() -> None:
    """Rows and columns in the order of their values, the mean over seeds in each cell, BM25 named as left out."""
    runs = grid(base("desk", batch_size=64), learning_rate=(0.002, 0.001), batch_size=(128, 16), seed=(7, 8))
    for number, run in enumerate(runs):
        record(run, number / 16)
    bm25 = base("desk", architecture="bm25", num_pairs=None)
    record(bm25, 0.125)
    view = make_pivot_view([*runs, bm25], "learning_rate", "batch_size")
    assert view.header == ("batch_size", "learning_rate=0.001", "learning_rate=0.002")
    assert [[cell.split(" ")[0] for cell in line] for line in view.rows] == [
        ["16", "40.6", "15.6"],  # 100 / 16 × the mean of 6 and 7, and of 2 and 3
        ["128", "28.1", "3.1"],
    ]
    assert "seed" in view.notes[0] and "1 run" in view.notes[1]
    with pytest.raises(ValueError, match="temperature does not vary"):
        make_pivot_view(runs, "temperature", "batch_size")
    with pytest.raises(ValueError, match="did you mean 'batch_size'"):
        make_pivot_view(runs, "batch_siz", "learning_rate")
