"""The developer's cluster changes no folder that it did not create. test_cluster.py tests it while it runs."""

import os
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "slurm" / "dev-cluster.sh"


def run_script(verb: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Start or stop the cluster of a folder."""
    env = {**os.environ, "REPRO_DEV_CLUSTER": str(folder)}
    return subprocess.run([SCRIPT, verb], env=env, capture_output=True, text=True)


@pytest.mark.parametrize("verb", ["up", "down"])
def test_foreign_folder_is_left_alone(tmp_path: Path, verb: str) -> None:
    (tmp_path / "thesis").write_text("all of it")
    mode = tmp_path.stat().st_mode
    done = run_script(verb, tmp_path)
    assert done.returncode == 1 and str(tmp_path) in done.stderr and not done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"] and tmp_path.stat().st_mode == mode
