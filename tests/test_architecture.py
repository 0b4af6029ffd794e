"""The house holds: imports point one way, and nothing is named vaguely."""

import ast
import subprocess
import sys
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


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_one_way(path: Path) -> None:
    wrong = sorted(module for module in imported(path) if not allowed(path, module))
    assert not wrong, f"{path.relative_to(ROOT)} imports {wrong}"


def room(module: str) -> str:
    """The room of a module of `repro`; the package itself only opens the doors."""
    return module.split(".")[1] if "." in module else "import_hooks"


@pytest.mark.parametrize("path", sorted((ROOT / "repro").rglob("*.py")), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_room_imports_itself_and_the_rooms_below_it(path: Path) -> None:
    own = room(module_of(path))
    if own == "__main__":
        return
    assert own in ROOMS, f"{path.relative_to(ROOT)} stands in no room: {ROOMS}"
    rooms = {room(module) for module in imported(path) if module.split(".")[0] == "repro"}
    above = sorted(name for name in rooms if ROOMS.index(name) > ROOMS.index(own))
    assert not above, f"{path.relative_to(ROOT)} imports upwards: {above}"


def test_no_modules_import_each_other_in_a_circle() -> None:
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


def test_only_the_launcher_imports_submitit() -> None:
    users = {
        path.relative_to(ROOT).as_posix() for path in SOURCES if "submitit" in {m.split(".")[0] for m in imported(path)}
    }
    assert users <= {"slurm/launch.py"}


def test_no_underscored_name_crosses_a_file() -> None:
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in FOLDERS:
                crossing = [alias.name for alias in node.names if alias.name.startswith("_")]
                assert not crossing, f"{path}: {crossing}"


def test_measures_read_collections_by_their_table_of_oddities() -> None:
    """Which knows of splits, documents that lack, and self-hits; a bare BEIR folder does not."""
    bare = [path.name for path in (ROOT / "repro" / "analyses").glob("*.py") if "load_beir" in path.read_text()]
    assert not bare


def test_no_file_has_a_name_that_says_nothing() -> None:
    assert not [path for path in SOURCES if path.stem in FORBIDDEN_NAMES]


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_are_documented(path: Path) -> None:
    text = path.read_text()
    tree = ast.parse(text)
    assert ast.get_docstring(tree), f"{path} has no docstring"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            documented = node.name.startswith("_") or ast.get_docstring(node)
            nested = any(
                node in ast.walk(outer)
                for outer in ast.walk(tree)
                if isinstance(outer, ast.FunctionDef) and outer is not node
            )
            assert documented or nested or node.name == "__init__", f"{path}:{node.lineno} {node.name} has no docstring"


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
