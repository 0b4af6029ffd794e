"""A record tells the version of all that a run computes with."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

from repro.records import provenance
from repro.records.provenance import PACKAGES, code_identity, versions
from repro.storage.paths import PACKAGE

MOVE_NO_NUMBER = {
    *("rich", "typer", "click", "jinja2", "markupsafe", "yaml"),  # what is typed and shown
    *("huggingface_hub", "datasets", "pyarrow", "beir"),  # where text and weights are read from: their digests decide
}
OURS = {"repro", "experiments", "figures", "slurm"}


def imported() -> set[str]:
    """Modules that `repro` imports anywhere, by their first word; those of Python and our own left out."""
    found: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                found.add(str(node.module).partition(".")[0])
    return found - set(sys.stdlib_module_names) - OURS


def test_every_package_that_can_move_a_number_is_recorded() -> None:
    distributions = packages_distributions()
    unknown = {
        module: distributions.get(module)
        for module in imported() - MOVE_NO_NUMBER
        if not {name.replace("_", "-") for name in distributions.get(module, ())} & set(PACKAGES)
    }
    assert not unknown


def test_versions_are_those_installed_and_absent_packages_are_left_out() -> None:
    told = versions()
    assert told["sentence-transformers"] == version("sentence-transformers")
    assert set(told) < {"python", *PACKAGES}, "faiss is installed for a CPU or for a GPU, not twice"


def test_a_new_module_is_an_uncommitted_change_and_what_git_ignores_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)

    def write(name: str, text: str) -> str | None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        found: str | None = code_identity()["uncommitted_sha256"]
        return found

    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b")
    (tmp_path / ".gitignore").write_text("ignored*\n")
    for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", "first")):
        subprocess.run([*git, *words], check=True)
    assert write("repro/ignored.py", "x") is None and write("notes.py", "x") is None
    first = write("experiments/e99_tour.py", "a = 1\n")
    assert first and write("experiments/e99_tour.py", "a = 2\n") not in (None, first)
    (tmp_path / "experiments" / "e99_tour.py").unlink()
    assert write("repro/data/deep.py", "a = 1\n") not in (None, first)
