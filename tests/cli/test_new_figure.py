"""The figure recipe of CONTRIBUTING.md is one file. It works in a copy of the project."""

import re
import shutil
from pathlib import Path

import pytest

from repro.spec.registry import experiments
from repro.storage.paths import CHECKOUT
from tests.commands import run_module

NOT_COPIED = (".git", ".venv", "out", ".*_cache", "__pycache__", "*.egg-info", ".hypothesis")


def read_golden(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in (folder / "tests" / "golden").glob("*.json")}


@pytest.mark.slow
def test_figure_is_one_file_and_command(tmp_path: Path) -> None:
    """Slow: judges and draws everything in a copy of the project. Existing golden metrics stay."""
    tree = tmp_path / "tree"
    shutil.copytree(CHECKOUT, tree, ignore=shutil.ignore_patterns(*NOT_COPIED))
    number = max(experiment.number for experiment in experiments()) + 1
    recipe, *_ = re.findall(r"```python\n(.*?)```", (CHECKOUT / "CONTRIBUTING.md").read_text(), re.DOTALL)
    (tree / "experiments" / f"e{number:02d}_scratch.py").write_text(recipe)
    places = {"folder": tree, "source": tree, "REPRO_HOME": str(tmp_path / "home")}
    before = read_golden(tree)
    written = run_module("repro", "check", "--write", **places)
    assert written.returncode == 0, written.stderr
    after = read_golden(tree)
    assert after.keys() - before.keys() == {"gain_by_batch_size.json"}
    assert after == before | {"gain_by_batch_size.json": after["gain_by_batch_size.json"]}
    selected = f"scratch or gain_by_batch_size or test_pages or golden or claim or {number}"
    files = ("tests/test_pages.py", "tests/records/test_golden.py", "tests/test_artefacts.py")
    tests = run_module("pytest", *files, "-k", selected, "-vv", "-p", "no:cacheprovider", SLOW="1", **places)
    assert tests.returncode == 0, tests.stdout[-3000:]
    assert "test_every_artefact_runs_at_smoke[gain_by_batch_size] PASSED" in tests.stdout
