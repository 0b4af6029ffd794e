"""A record tells the version of all that a run computes with."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

from repro.records import provenance
from repro.records.provenance import PACKAGES, explain_git_is_silent, get_code_identity, versions
from repro.storage.paths import PACKAGE

MOVE_NO_NUMBER = {
    *("rich", "typer", "click", "jinja2", "markupsafe", "yaml", "matplotlib", "statsmodels"),  # what is typed and shown
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


def test_relevant_packages_are_recorded() -> None:
    distributions = packages_distributions()
    unknown = {
        module: distributions.get(module)
        for module in imported() - MOVE_NO_NUMBER
        if not {name.replace("_", "-") for name in distributions.get(module, ())} & set(PACKAGES)
    }
    assert not unknown


def test_versions_are_those_installed() -> None:
    told = versions()
    assert told["sentence-transformers"] == version("sentence-transformers")
    assert set(told) < {"python", *PACKAGES}, "faiss is installed for a CPU or for a GPU, not twice"


def test_new_module_is_uncommitted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(provenance, "CHECKOUT", tmp_path)

    def write(name: str, text: str) -> str | None:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
        found: str | None = get_code_identity()["uncommitted_sha256"]
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


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with a commit, taken for that of the code."""
    root = tmp_path / "checkout"
    (root / "repro").mkdir(parents=True)
    (root / "repro" / "module.py").write_text("a = 1\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    monkeypatch.setattr(provenance, "CHECKOUT", root)
    return root


def git(root: Path, *words: str) -> str:
    """Return the output of a git command."""
    command = ("git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", *words)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("how", ["branch", "packed", "detached", "worktree"])
def test_missing_git_is_recorded(how: str, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    if how == "packed":
        git(checkout, "pack-refs", "--all")
    if how == "detached":
        git(checkout, "checkout", "-q", "--detach")
    if how == "worktree":
        git(checkout, "worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
        monkeypatch.setattr(provenance, "CHECKOUT", tmp_path / "other")
    assert get_code_identity() == {"commit": commit, "uncommitted_sha256": None}
    monkeypatch.setenv("PATH", str(tmp_path / "nothing here"))
    assert get_code_identity() == {"commit": commit, "uncommitted_sha256": None, "uncommitted": "not known"}
    assert "git cannot be started" in explain_git_is_silent()


def test_binary_change_is_uncommitted(checkout: Path) -> None:
    found = set()
    for text in (b"# caf\xe9\n", b"# caf\xe8\n"):
        for name in ("module.py", "new.py"):
            (checkout / "repro" / name).write_bytes(text)
            found.add(get_code_identity()["uncommitted_sha256"])
    assert len(found) == 4 and None not in found


def test_edited_tests_do_not_count(checkout: Path) -> None:
    for name in ("tests/test_one.py", "README.md"):
        (checkout / name).parent.mkdir(exist_ok=True)
        (checkout / name).write_text("a")
    git(checkout, "add", ".")
    assert get_code_identity()["uncommitted_sha256"] is None
