"""Installation with make, and with the lines of the README, from an index of small stand-in packages."""

import os
import re
import shlex
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib.metadata import distribution, files
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from repro.spec.registry import artefacts
from repro.storage.paths import CHECKOUT
from tests.commands import PACKAGES, PROJECT_FILES, copy_project

LOCK = {
    canonicalize_name(name): version
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", (CHECKOUT / "requirements.lock").read_text(), re.M)
}
# Requirements of the stand-in for PyPI's torch, which the lock does not name.
CUDA = {"nvidia-cudnn-cu13": "9.20.0", "triton": "3.8.0"}


def write_wheel(folder: Path, name: str, version: str, *, needs: Iterable[str] = (), code: str = "") -> None:
    """Write the smallest wheel that pip accepts, with one module."""
    module = re.sub(r"[-.]", "_", name)
    info = f"{module}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
    members = {
        f"{module}.py": code.encode(),
        f"{info}/METADATA": "\n".join([*lines, ""]).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    write_archive(folder / f"{module}-{version}-py3-none-any.whl", f"{info}/RECORD", members)


def write_archive(path: Path, record: str, members: dict[str, bytes]) -> None:
    """Write a wheel of these files. pip reads no digests, so the record has none."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
        archive.writestr(record, "".join(f"{name},,\n" for name in (*members, record)))


def pack_setuptools(folder: Path) -> None:
    """Pack the setuptools of this environment, which also builds the project in the fresh one."""
    skipped = {"..", "tests", "RECORD", "INSTALLER", "REQUESTED", "direct_url.json"}
    paths = [path for path in files("setuptools") or () if not skipped & {*path.parts} and path.suffix != ".pyc"]
    members = {str(path): path.read_binary() for path in paths}
    info = next(path.parts[0] for path in paths if path.name == "METADATA" and len(path.parts) == 2)
    write_archive(folder / f"setuptools-{LOCK['setuptools']}-py3-none-any.whl", f"{info}/RECORD", members)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny wheel per line of the lock, and a torch that, like PyPI's, cannot be imported without its libraries."""
    folder = tmp_path_factory.mktemp("index")
    for name, version in (LOCK | CUDA).items():
        if name not in ("setuptools", "torch"):
            write_wheel(folder, name, version)
    # The lock decides, not the newest version.
    write_wheel(folder, "numpy", "99.0")
    pack_setuptools(folder)
    needs = [*(f"{name}=={version}" for name, version in CUDA.items()), "setuptools>=77"]
    write_wheel(folder, "torch", LOCK["torch"], needs=needs, code="import nvidia_cudnn_cu13")
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the project without tests and documents."""
    copy_project(tmp_path, *PACKAGES, *PROJECT_FILES)
    return tmp_path


def run_line(line: str, folder: Path, *indexes: Path) -> str:
    """Run a shell line in a folder. pip finds packages in these indexes only. Return the output."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "MAKE"))}
    pip = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": " ".join(map(str, indexes))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{inherited['PATH']}"
    environment = inherited | pip | {"PATH": path}
    result = subprocess.run(line, shell=True, cwd=folder, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def list_installed(folder: Path) -> dict[str, str]:
    """Return the versions of the packages in the environment of a folder."""
    return dict(re.findall(r"^(\S+)==(\S+)$", run_line(".venv/bin/python -m pip list --format freeze", folder), re.M))


def read_lines_without_make() -> list[str]:
    """Return the two lines of the README for machines without make."""
    return (CHECKOUT / "README.md").read_text().split("Without make:")[1].split("```")[1].strip().splitlines()


@pytest.mark.slow
def test_make_installs_locked_versions(index: Path, copy: Path) -> None:
    """Slow: installs every locked name into an environment."""
    run_line(f"make PYTHON={sys.executable} .venv/.built-from-lock", copy, index)
    installed = {canonicalize_name(name): version for name, version in list_installed(copy).items()}
    assert CUDA.items() <= installed.items()
    assert [name for name in LOCK if installed.get(name, LOCK[name]) != LOCK[name]] == []
    run_line(".venv/bin/python -c 'import torch'", copy)
    # A second call installs nothing.
    run_line("make .venv/.built-from-lock && test ! .venv -nt .venv/.built-from-lock", copy)


@pytest.mark.slow
def test_cpu_torch_brings_no_cuda(index: Path, copy: Path, tmp_path: Path) -> None:
    """Slow: installs every locked name into an environment."""
    (tmp_path / "cpu").mkdir()
    write_wheel(tmp_path / "cpu", "torch", f"{LOCK['torch']}+cpu", needs=["setuptools>=77"])
    run_line(read_lines_without_make()[0], copy, tmp_path / "cpu", index)
    installed = list_installed(copy)
    assert installed["torch"] == f"{LOCK['torch']}+cpu" and not installed.keys() & CUDA.keys()


@pytest.mark.parametrize(
    ("built", "words", "verbs", "extras"),
    [
        (None, "", ["install"], "[cpu,dev]"),
        ("gpu,dev", "", [], ""),
        ("gpu,dev", "EXTRAS=gpu,dev", [], ""),
        ("gpu,dev", "EXTRAS=cpu,dev", ["uninstall", "install"], "[cpu,dev]"),
        ("gpu,dev", "--assume-new=requirements.lock", ["install"], "[gpu,dev]"),
    ],
)
def test_make_keeps_built_extras(built: str | None, words: str, verbs: list[str], extras: str, copy: Path) -> None:
    """An environment keeps its faiss until another one is requested, which replaces it."""
    if built:
        (copy / ".venv").mkdir()
        (copy / ".venv" / ".built-from-lock").write_text(f"{built}\n")
    output = run_line(f"make --dry-run {words} .venv/.built-from-lock", copy)
    assert re.findall(r"-m pip (\w+)", output) == verbs and extras in output


def test_lines_without_make_match() -> None:
    setup, use = read_lines_without_make()
    recipe = (CHECKOUT / "Makefile").read_text()
    recipe = recipe.replace("$(BIN)/python -m pip", ".venv/bin/pip").replace("$(EXTRAS)", "cpu,dev")
    in_make = next(line for line in recipe.splitlines() if "pip install" in line and not line.startswith("#"))
    output_options = {"--quiet", "--disable-pip-version-check", "--no-compile"}
    create, install = setup.split(" && ")
    assert create == "python3 -m venv .venv"
    assert shlex.split(install) == [word for word in shlex.split(in_make) if word not in output_options]
    first, second = use.split(" && ")
    assert first.removeprefix(".venv/bin/python -m repro.") in artefacts()
    assert second == ".venv/bin/python -m pytest"


def test_second_line_starts_from_a_copy(copy: Path) -> None:
    """The commands of the second line start in a copy of the project. Options keep them from training and testing."""
    (copy / ".venv").symlink_to(sys.prefix)
    line = read_lines_without_make()[1]
    for word, option in (("repro.table1", "--help"), ("pytest", "--version")):
        assert line.count(f"-m {word}") == 1
        line = line.replace(f"-m {word}", f"-m {word} {option}")
    assert "table1" in run_line(line, copy)


def iter_required(requirement: str, seen: set[str]) -> Iterator[str]:
    """Yield every package that a requirement needs here, except those that only torch needs."""
    parsed = Requirement(requirement)
    for extra in ("", *parsed.extras):
        key = f"{canonicalize_name(parsed.name)}[{extra}]"
        if key in seen:
            continue
        seen.add(key)
        yield canonicalize_name(parsed.name)
        for further in distribution(parsed.name).requires or () if parsed.name != "torch" else ():
            marker = Requirement(further).marker
            if marker is None or marker.evaluate({"extra": extra}):
                yield from iter_required(further, seen)


def test_lock_names_every_requirement() -> None:
    required = set(iter_required("cde-repro[cpu,dev]", set())) - {"cde-repro"}
    assert required - LOCK.keys() == set()
    assert LOCK.keys() - required <= {"networkx", "mpmath", "sympy"}, "only torch needs these"
