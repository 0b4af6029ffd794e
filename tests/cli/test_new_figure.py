"""The figure recipe of CONTRIBUTING.md is one file. It works in a copy of the project."""

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
from tests.commands import run_module

NOT_COPIED = (".git", ".venv", "out", ".*_cache", "__pycache__", "*.egg-info", ".hypothesis")
NUMBER = max(experiment.number for experiment in experiments()) + 1


def read_example() -> str:
    """Return the example of CONTRIBUTING.md with the next free number."""
    block = re.search(r"```python\n(.*?)```", (CHECKOUT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    assert block is not None
    return re.sub(r"number=\d+", f"number={NUMBER}", block[1])


@pytest.fixture(scope="module")
def copied(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with the example."""
    folder = tmp_path_factory.mktemp("newcomer") / "tree"
    shutil.copytree(CHECKOUT, folder, ignore=shutil.ignore_patterns(*NOT_COPIED))
    (folder / "experiments" / f"e{NUMBER:02d}_scratch.py").write_text(read_example())
    return folder


def run_in(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a module of the copy, with slow tests."""
    return run_module(*words, folder=folder, source=folder, REPRO_HOME=str(folder.parent / "home"), SLOW="1")


def test_example_passes_lint(tmp_path: Path) -> None:
    path = tmp_path / "experiments" / f"e{NUMBER:02d}_scratch.py"
    path.parent.mkdir()
    path.write_text(read_example())
    for verb in (["check"], ["format", "--check"]):
        command = [sys.executable, "-m", "ruff", *verb, "--no-cache", "--config", str(CHECKOUT / "pyproject.toml")]
        result = subprocess.run([*command, str(path)], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stdout + result.stderr
    names: dict[str, Any] = {}
    exec(read_example(), names)
    (claim,), (figure,) = names["EXPERIMENT"].claims, names["EXPERIMENT"].artefacts
    assert isinstance(claim, Interaction), "the claim compares batch sizes, as the title does"
    for word in ("clusters", "gain", "small batches"):
        assert word in figure.title and word in claim.statement


@pytest.mark.slow
def test_figure_is_one_file_and_command(copied: Path) -> None:
    """Slow: judges and draws everything in a copy of the project. Existing golden metrics stay."""
    golden = {path.name: path.read_bytes() for path in (copied / "tests" / "golden").glob("*.json")}
    written = run_in(copied, "repro", "check", "--write")
    assert written.returncode == 0, written.stderr
    after = {path.name: path.read_bytes() for path in (copied / "tests" / "golden").glob("*.json")}
    assert after.keys() - golden.keys() == {"figure19.json"}
    assert {name: after[name] for name in golden} == golden
    selected_tests = f"scratch or figure19 or test_pages or golden or claim or {NUMBER}"
    files = ("tests/test_pages.py", "tests/records/test_golden.py", "tests/test_artefacts.py")
    tests = run_in(copied, "pytest", *files, "-k", selected_tests, "-vv", "-p", "no:cacheprovider")
    assert tests.returncode == 0, tests.stdout[-3000:]
    assert "test_every_artefact_runs_at_smoke[figure19] PASSED" in tests.stdout
