"""Imports point one way, modules and functions are documented, and nothing is named vaguely."""

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
FORBIDDEN_NAMES = {"utils", "util", "misc", "helpers", "new", "v2", "final"}
ROOMS = (
    *("text", "seeds", "stopping", "storage", "spec", "data", "model", "batches", "records", "statistics", "evaluate"),
    *("pipeline", "train", "analyses", "report", "planning", "interop", "execute", "cli", "import_hooks"),
)
"""The rooms of `repro` from the ground up: a room imports itself and what stands before it here, nothing above."""


@cache
def imported(path: Path) -> set[str]:
    """Every module a file imports, at its top or inside a function."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative imports hide where a thing comes from"
            found.add(node.module or "")
    return found


def allowed(path: Path, module: str) -> bool:
    """Whether a file may import a module of ours."""
    package = module.split(".")[0]
    if package not in FOLDERS or path.is_relative_to(ROOT / "repro" / "cli"):
        return True
    folder = path.relative_to(ROOT).parts[0]
    if folder == "experiments":
        of_companion, of_ours = module.startswith("experiments.companions"), module.startswith("experiments.ours")
        kind = path.parent.name
        if (of_companion and kind == "experiments") or (of_ours and kind != "ours"):
            return False  # the paper's experiments come first, then those of companion papers, then our own questions
        return module == "repro.spec" or package == "experiments"
    if folder == "repro":
        # the registry is how experiments are found; it loads them by name and imports none
        return package == "repro"
    return package in {"slurm": ("repro", "slurm"), "figures": ("figures",)}[folder]


def test_imports_point_one_way() -> None:
    wrong = [(path, module) for path in SOURCES for module in imported(path) if not allowed(path, module)]
    assert wrong == []


def room(module: str) -> str:
    """The room of a module of `repro`; the package itself only opens the doors."""
    return module.split(".")[1] if "." in module else "import_hooks"


def test_packages_import_only_lower_packages() -> None:
    upwards = []
    for path in sorted((ROOT / "repro").rglob("*.py")):
        own = room(module_of(path))
        if own == "__main__":
            continue
        used = {room(module) for module in imported(path) if module.split(".")[0] == "repro"}
        upwards += [(path, name) for name in used if ROOMS.index(name) > ROOMS.index(own)]
    assert upwards == []


def test_imports_have_no_cycles() -> None:
    names = {module_of(path) for path in SOURCES}
    graph = {module_of(path): {m for m in imported(path) if m in names} for path in SOURCES}
    graph["repro"] = set()  # it puts the doors in place, which load the command line only when one is opened
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        pytest.fail(f"a circle of imports: {error.args[1]}")


def module_of(path: Path) -> str:
    """The dotted name of a file."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def test_only_launcher_imports_submitit() -> None:
    users = {
        path.relative_to(ROOT).as_posix() for path in SOURCES if "submitit" in {m.split(".")[0] for m in imported(path)}
    }
    assert users <= {"slurm/launch.py"}


def test_private_names_stay_in_their_file() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FOLDERS:
                crossing = [alias.name for alias in node.names if alias.name.startswith("_")]
                assert not crossing, f"{path}: {crossing}"


def test_analyses_read_collections_with_quirks() -> None:
    """The quirks know splits, missing documents and self-hits. A bare BEIR folder does not."""
    bare = [path.name for path in (ROOT / "repro" / "analyses").glob("*.py") if "load_beir" in path.read_text()]
    assert not bare


def test_no_file_has_an_empty_name() -> None:
    assert not [path for path in SOURCES if path.stem in FORBIDDEN_NAMES]


def test_modules_and_functions_have_docstrings() -> None:
    """Private functions and functions inside functions may go without one."""
    bare = []
    for path in SOURCES:
        tree = ast.parse(path.read_text())
        bare += [] if ast.get_docstring(tree) else [(path, 1)]
        waiting: list[ast.AST] = [tree]
        while waiting:
            for node in ast.iter_child_nodes(waiting.pop()):
                if isinstance(node, ast.FunctionDef):
                    is_public = not node.name.startswith("_")
                    bare += [(path, node.lineno)] if is_public and not ast.get_docstring(node) else []
                else:
                    waiting.append(node)
    assert bare == []


@pytest.mark.parametrize("words", [["list"], ["plan", "table1"]])
def test_light_verbs_load_no_torch(words: list[str]) -> None:
    code = (
        "import sys; from repro.cli.main import app\n"
        f"app({words!r}, standalone_mode=False)\n"
        "heavy = {'torch', 'transformers', 'matplotlib', 'scipy', 'pandas'} & set(sys.modules)\n"
        "sys.exit(f'loaded {heavy}' if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
