"""The developer's cluster takes nothing for its own that it did not make; test_cluster.py has what it does when up."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "slurm" / "dev-cluster.sh"


@pytest.mark.parametrize("verb", ["up", "down"])
def test_foreign_folder_is_left_alone(tmp_path: Path, verb: str) -> None:
    (tmp_path / "thesis").write_text("all of it")
    mode = tmp_path.stat().st_mode
    done = subprocess.run(
        [SCRIPT, verb], env={**os.environ, "REPRO_DEV_CLUSTER": str(tmp_path)}, capture_output=True, text=True
    )
    assert done.returncode == 1 and str(tmp_path) in done.stderr and not done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"] and tmp_path.stat().st_mode == mode


def test_no_cluster_is_down(tmp_path: Path) -> None:
    environment = {**os.environ, "REPRO_DEV_CLUSTER": str(tmp_path / "none")}
    done = subprocess.run([SCRIPT, "down"], env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "dev-cluster: down\n")
