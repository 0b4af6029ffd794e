"""A record tells the version of all that a run computes with."""

import ast
import sys
from importlib.metadata import packages_distributions, version

from repro.records.provenance import PACKAGES, versions
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
