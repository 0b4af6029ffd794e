"""Provenance: a record names the versions of all packages that can move a number, and the state of the code."""

import ast
import subprocess
import sys
from importlib.metadata import packages_distributions, version
from pathlib import Path

import pytest

from repro.records import provenance
from repro.records.provenance import PACKAGES, get_code_identity, get_machine_kind, list_versions
from repro.storage.paths import PACKAGE

MOVE_NO_NUMBER = {
    # command line and output
    *("rich", "typer", "click", "jinja2", "markupsafe", "yaml", "matplotlib", "pandas", "statsmodels"),
    *("huggingface_hub", "datasets", "pyarrow", "beir"),  # they read text and weights, which have digests
}
OURS = {"repro", "experiments", "figures", "slurm"}


def list_imported_packages() -> set[str]:
    """Return the packages that `repro` imports anywhere, without the standard library and our own."""
    modules: set[str] = set()
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                modules |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level:
                modules.add(str(node.module))
    return {module.partition(".")[0] for module in modules} - set(sys.stdlib_module_names) - OURS


def test_relevant_packages_are_recorded() -> None:
    distributions = packages_distributions()
    unknown = {
        module: distributions.get(module)
        for module in list_imported_packages() - MOVE_NO_NUMBER
        if not {name.replace("_", "-") for name in distributions.get(module, ())} & set(PACKAGES)
    }
    assert not unknown


def test_versions_are_those_installed() -> None:
    recorded = list_versions()
    assert recorded["sentence-transformers"] == version("sentence-transformers")
    assert set(recorded) < {"python", *PACKAGES}, "of the two builds of faiss, one is installed"


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
    monkeypatch.setattr(provenance, "SOURCES", root)
    monkeypatch.setattr(provenance, "PACKAGE", root / "repro")
    return root


def git(root: Path, *words: str) -> str:
    """Return the output of a git command."""
    command = ("git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b", *words)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def hash_changes(checkout: Path, name: str, content: bytes) -> str | None:
    """Write a file of the checkout and return the digest of the uncommitted source."""
    (checkout / name).parent.mkdir(parents=True, exist_ok=True)
    (checkout / name).write_bytes(content)
    return get_code_identity()["uncommitted_sha256"]


@pytest.mark.parametrize(
    "name",
    ["experiments/e99_tour.py", "repro/data/deep.py", "repro/data/new.json", "repro/data/new.toml", "repro/module.py"],
)
def test_changed_code_is_uncommitted(name: str, checkout: Path) -> None:
    """New and edited modules of the code change the hash, also if a byte is no UTF-8."""
    hashes = {hash_changes(checkout, name, content) for content in (b"a = 2\n", b"# caf\xe9\n", b"# caf\xe8\n")}
    assert len(hashes) == 3 and None not in hashes


@pytest.mark.parametrize("name", ["repro/ignored.py", "notes.py", "tests/test_one.py", "README.md"])
def test_other_files_do_not_count(name: str, checkout: Path) -> None:
    assert hash_changes(checkout, name, b"a") is None
    git(checkout, "add", ".")
    assert get_code_identity()["uncommitted_sha256"] is None


def test_missing_git_is_recorded(checkout: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commit = git(checkout, "rev-parse", "HEAD")
    assert get_code_identity() == {"commit": commit, "uncommitted_sha256": None}
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    code = get_code_identity()
    assert code["commit"] is code["uncommitted_sha256"] is None and "git cannot be started" in code["git"]


def test_device_name_tells_its_kind() -> None:
    gpus = ("NVIDIA H100 80GB HBM3", "Quadro RTX 6000", "GeForce RTX 2080 Ti", "AMD Radeon PRO W7900")
    cpus = ("AMD Ryzen 7 5700G with Radeon Graphics", "Intel(R) Xeon(R) Processor")
    assert [*map(get_machine_kind, (*gpus, *cpus))] == ["gpu"] * 4 + ["cpu"] * 2
