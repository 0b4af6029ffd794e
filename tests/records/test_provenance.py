"""Provenance: a record names the versions of all packages that can move a number, and the state of the code."""

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
    *("rich", "typer", "click", "jinja2", "markupsafe", "yaml", "matplotlib", "statsmodels"),  # command line and output
    *("huggingface_hub", "datasets", "pyarrow", "beir"),  # they read text and weights, which have digests
}
OURS = {"repro", "experiments", "figures", "slurm"}


def list_imported_packages() -> set[str]:
    """Return the packages that `repro` imports anywhere, without the standard library and our own."""
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
        for module in list_imported_packages() - MOVE_NO_NUMBER
        if not {name.replace("_", "-") for name in distributions.get(module, ())} & set(PACKAGES)
    }
    assert not unknown


def test_versions_are_those_installed() -> None:
    found = versions()
    assert found["sentence-transformers"] == version("sentence-transformers")
    assert set(found) < {"python", *PACKAGES}, "of the two builds of faiss, one is installed"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Make a checkout with one commit, which counts as that of the code."""
    root = tmp_path / "checkout"
    (root / "repro").mkdir(parents=True)
    (root / "repro" / "module.py").write_text("a = 1\n")
    (root / ".gitignore").write_text("ignored*\n")
    git(root, "init", "-q", "-b", "main")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "first")
    monkeypatch.setattr(provenance, "CHECKOUT", root)
    return root


def git(root: Path, *words: str) -> str:
    """Return the output of a git command."""
    command = ("git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", *words)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_new_module_is_uncommitted(checkout: Path) -> None:
    """New and edited modules of the code change the digest. Ignored files and other folders do not."""

    def write(name: str, text: str) -> str | None:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(text)
        return get_code_identity()["uncommitted_sha256"]

    assert write("repro/ignored.py", "x") is None and write("notes.py", "x") is None
    first = write("experiments/e99_tour.py", "a = 1\n")
    assert first and write("experiments/e99_tour.py", "a = 2\n") not in (None, first)
    (checkout / "experiments" / "e99_tour.py").unlink()
    assert write("repro/data/deep.py", "a = 1\n") not in (None, first)


@pytest.mark.parametrize("kind", ["branch", "packed", "detached", "worktree"])
def test_missing_git_is_recorded(kind: str, checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    if kind == "packed":
        git(checkout, "pack-refs", "--all")
    if kind == "detached":
        git(checkout, "checkout", "-q", "--detach")
    if kind == "worktree":
        git(checkout, "worktree", "add", "-q", "-b", "other", str(tmp_path / "other"))
        monkeypatch.setattr(provenance, "CHECKOUT", tmp_path / "other")
    assert get_code_identity() == {"commit": commit, "uncommitted_sha256": None}
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
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
