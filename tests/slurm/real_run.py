"""A real run in one process, which runs in several processes must equal up to rounding."""

import shutil
from pathlib import Path

import pytest

from repro.spec import base
from repro.spec.identity import run_id
from repro.storage.paths import get_home, run_folder
from repro.train.checkpoint import read_metrics

RUN = base("smoke", num_steps=60)


def copy_stages(trained_home: Path) -> None:
    """Copy the stages of the trained run into this home, so that they need not be built again."""
    shutil.copytree(trained_home / "stages", get_home() / "stages")


def check_training(trained_home: Path) -> None:
    """Check that batches are equal and in order, and that losses differ by rounding only."""
    metrics = read_metrics(run_folder(run_id(RUN)))
    expected = read_metrics(trained_home / "runs" / run_id(RUN))
    for name in ("step", "batch"):
        assert [line[name] for line in metrics] == [line[name] for line in expected]
    assert [line["loss"] for line in metrics] == pytest.approx([line["loss"] for line in expected], rel=1e-4)
