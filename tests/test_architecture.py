"""Imports point one way, and light commands stay light."""

import ast
import subprocess
import sys
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("repro", "experiments", "figures", "slurm")
SOURCES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
# The packages of `repro` from the lowest to the highest. A package imports only itself and lower packages.
PACKAGES = (
    *("text", "seeds", "stopping", "storage", "spec", "data", "model", "batches", "records", "statistics", "evaluate"),
    *("pipeline", "train", "analyses", "report", "planning", "interop", "execute", "api", "cli"),
    "import_hooks",
)


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def list_imports(path: Path) -> set[str]:
    """Return every module that a file imports, at its top or inside a function."""
    modules = set()
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            modules.add(node.module or "")
    return modules


def may_import(path: Path, module: str) -> bool:
    """Return whether a file may import a module of this project. Modules of other projects are always allowed."""
    package = module.split(".")[0]
    if package not in FOLDERS or path.is_relative_to(ROOT / "repro" / "cli"):
        return True
    folder, kind = path.relative_to(ROOT).parts[0], path.parent.name
    if folder == "experiments":
        # The paper's experiments come first, then those of companion papers, then our own questions.
        later = {"experiments": ("companions", "ours"), "companions": ("ours",)}.get(kind, ())
        is_later = module.startswith(tuple(f"experiments.{name}" for name in later))
        return module == "repro.spec" or (package == "experiments" and not is_later)
    # `repro` loads experiments by name through the registry and imports none of them.
    return package == folder or (folder, package) == ("slurm", "repro")


def test_imports_point_one_way() -> None:
    wrong = [(path, module) for path in SOURCES for module in list_imports(path) if not may_import(path, module)]
    assert wrong == []


def get_package(module: str) -> str:
    """Return the package of a module of `repro`. `repro` itself only installs the import hooks."""
    return module.split(".")[1] if "." in module else "import_hooks"


def test_packages_import_only_lower_packages() -> None:
    upwards = []
    for path in sorted((ROOT / "repro").rglob("*.py")):
        if path == ROOT / "repro" / "__main__.py":
            continue
        package = get_package(get_module_name(path))
        used = {get_package(module) for module in list_imports(path) if module.split(".")[0] == "repro"}
        upwards += [(path, name) for name in used if PACKAGES.index(name) > PACKAGES.index(package)]
    assert upwards == []


def test_imports_have_no_cycles() -> None:
    names = {get_module_name(path) for path in SOURCES}
    graph = {get_module_name(path): list_imports(path) & names for path in SOURCES}
    # `repro` installs import hooks, which load the command line only when an artefact module is imported.
    graph["repro"] = set()
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"circular imports: {error.args[1]}")


def get_module_name(path: Path) -> str:
    """Return the dotted name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_private_names_stay_in_their_file() -> None:
    for path in SOURCES:
        for node in ast.walk(parse(path)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FOLDERS:
                crossing = [alias.name for alias in node.names if alias.name.startswith("_")]
                assert not crossing, f"{path}: {crossing}"


def test_analyses_read_collections_with_rules() -> None:
    """CollectionRules handle splits, missing documents and self-hits. `load_beir` alone does not."""
    analyses = (ROOT / "repro" / "analyses").glob("*.py")
    assert not [path.name for path in analyses if "load_beir" in path.read_text()]


def test_light_commands_load_no_torch() -> None:
    """Commands without computations start fast."""
    code = (
        "import sys; from repro.cli.main import app\n"
        "for words in (['list'], ['plan', 'table1', '--scale', 'large']): app(words, standalone_mode=False)\n"
        "print({'torch', 'transformers', 'matplotlib', 'scipy', 'pandas', 'mteb'} & set(sys.modules))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert result.stdout.splitlines()[-1:] == ["set()"], result.stderr
