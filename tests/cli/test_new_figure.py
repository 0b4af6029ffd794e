"""A figure is one file: the example of CONTRIBUTING.md, put into a copy of the tree, is all that a newcomer writes."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from repro.spec import Interaction
from repro.spec.registry import experiments
from repro.storage.paths import CHECKOUT

LEFT_OUT = (".git", ".venv", "out", ".*_cache", "__pycache__", "*.egg-info", ".hypothesis")
NUMBER = max(experiment.number for experiment in experiments()) + 1


def example() -> str:
    """Return the example of CONTRIBUTING.md with the next free number."""
    block = re.search(r"```python\n(.*?)```", (CHECKOUT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert block is not None
    return re.sub(r"number=\d+", f"number={NUMBER}", block[1])


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with one file more."""
    folder = tmp_path_factory.mktemp("newcomer") / "tree"
    shutil.copytree(CHECKOUT, folder, ignore=shutil.ignore_patterns(*LEFT_OUT))
    (folder / "experiments" / f"e{NUMBER:02d}_scratch.py").write_text(example())
    return folder


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the copy."""
    home = {"REPRO_HOME": str(folder.parent / "home"), "PYTHONPATH": str(folder)}
    environment = {**os.environ, **home, "OMP_NUM_THREADS": "1", "SLOW": "1"}
    return subprocess.run([sys.executable, "-m", *words], cwd=folder, env=environment, capture_output=True, text=True)


def test_example_passes_lint(tmp_path: Path) -> None:
    path = tmp_path / "experiments" / f"e{NUMBER:02d}_scratch.py"
    path.parent.mkdir()
    path.write_text(example())
    for verb in (["check"], ["format", "--check"]):
        words = [sys.executable, "-m", "ruff", *verb, "--no-cache", "--config", str(CHECKOUT / "pyproject.toml")]
        done = subprocess.run([*words, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    found: dict[str, Any] = {}
    exec(example(), found)
    (claim,), (figure,) = found["EXPERIMENT"].claims, found["EXPERIMENT"].shows
    assert isinstance(claim, Interaction), "it compares batch sizes, as the title does"
    for word in ("clusters", "gain", "small batches"):
        assert word in figure.title and word in claim.says


@pytest.mark.slow
def test_figure_is_one_file_and_command(copied: Path) -> None:
    """Slow: judges and draws a whole copy of the tree."""
    golden = {path.name: path.read_bytes() for path in (copied / "tests" / "golden").glob("*.json")}
    written = run_in(copied, "repro", "check", "--write")
    assert written.returncode == 0, written.stderr
    after = {path.name: path.read_bytes() for path in (copied / "tests" / "golden").glob("*.json")}
    assert after.keys() - golden.keys() == {"figure19.json"}
    assert {name: after[name] for name in golden} == golden, "golden metrics that were there stay as they are"
    chosen = f"scratch or figure19 or test_pages or golden or claim or {NUMBER}"
    files = ("tests/test_pages.py", "tests/records/test_golden.py", "tests/test_artefacts.py")
    tests = run_in(copied, "pytest", *files, "-k", chosen, "-vv", "-p", "no:cacheprovider")
    assert tests.returncode == 0, tests.stdout[-3000:]
    shown = r"test_every_artefact_runs_at_smoke\[figure19\] PASSED"
    assert re.search(shown, tests.stdout), "the new figure itself was among the tests"
