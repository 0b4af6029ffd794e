"""Set-up brings what the packages that it finds declare: make and README's line, tried on an index of stand-ins."""

import base64
import hashlib
import os
import re
import shlex
import shutil
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

ROOT = Path(__file__).resolve().parent.parent
LOCK = {
    canonicalize_name(name): version
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", (ROOT / "requirements.lock").read_text(), re.M)
}
CUDA = {"nvidia-cudnn-cu13": "9.20.0", "triton": "3.8.0"}
"""What the stand-in for PyPI's torch declares; the lock knows nothing of these."""
OF_A_COPY = ("repro", "experiments", "figures", "slurm", "pyproject.toml", "setup.py", "requirements.lock", "README.md")


def write_wheel(folder: Path, name: str, version: str, *, needs: Iterable[str] = (), code: str = "") -> None:
    """Write the smallest wheel that pip takes, with one module."""
    module = re.sub(r"[-.]", "_", name)
    info = f"{module}-{version}.dist-info"
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {n}" for n in needs)]
    held = {
        f"{module}.py": code.encode(),
        f"{info}/METADATA": "\n".join([*lines, ""]).encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    write_archive(folder / f"{module}-{version}-py3-none-any.whl", f"{info}/RECORD", held)


def write_archive(path: Path, record: str, held: dict[str, bytes]) -> None:
    """Write a wheel of these files."""
    rows = []
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in held.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={digest},{len(content)}\n")
            archive.writestr(name, content)
        archive.writestr(record, "".join([*rows, f"{record},,\n"]))


def pack_setuptools(folder: Path) -> None:
    """Pack the setuptools of this environment, which builds the project in the fresh one too."""
    paths = {str(path): path for path in files("setuptools") or () if ".." not in path.parts and path.suffix != ".pyc"}
    info = next(name.split("/")[0] for name in paths if ".dist-info/" in name)
    skipped = {f"{info}/{name}" for name in ("RECORD", "INSTALLER", "REQUESTED", "direct_url.json")}
    held = {name: path.read_binary() for name, path in paths.items() if name not in skipped and "/tests/" not in name}
    write_archive(folder / f"setuptools-{LOCK['setuptools']}-py3-none-any.whl", f"{info}/RECORD", held)


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny wheel for each line of the lock, and a torch like PyPI's, of no use without its libraries."""
    folder = tmp_path_factory.mktemp("index")
    for name, version in (LOCK | CUDA).items():
        if name not in ("setuptools", "torch"):
            write_wheel(folder, name, version)
    write_wheel(folder, "numpy", "99.0")  # the lock, not the newest, decides
    pack_setuptools(folder)
    needs = [*(f"{name}=={version}" for name, version in CUDA.items()), "setuptools>=77"]
    write_wheel(folder, "torch", LOCK["torch"], needs=needs, code="import nvidia_cudnn_cu13")
    return folder


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The project as a user has it."""
    for name in (*OF_A_COPY, "LICENSE", "Makefile"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def typed(line: str, folder: Path, *indexes: Path) -> str:
    """Type a line in a copy of the project; pip sees these folders and nothing else."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "PYTHON", "MAKE"))}
    own = {"PIP_CONFIG_FILE": os.devnull, "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": " ".join(map(str, indexes))}
    path = f"{Path(sys.executable).parent}{os.pathsep}{kept['PATH']}"
    done = subprocess.run(line, shell=True, cwd=folder, env=kept | own | {"PATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def installed(folder: Path) -> dict[str, str]:
    """The packages in the environment that was set up there."""
    return dict(re.findall(r"^(\S+)==(\S+)$", typed(".venv/bin/python -m pip list --format freeze", folder), re.M))


def lines_without_make() -> list[str]:
    """The two lines that README gives for machines without make."""
    return (ROOT / "README.md").read_text().split("Without make:")[1].split("```")[1].strip().splitlines()


def test_make_announces_the_installation(copy: Path) -> None:
    command = ["make", "--dry-run", f"PYTHON={sys.executable}", ".venv/.built-from-lock"]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=True)
    lines = done.stdout.splitlines()
    (said,) = (place for place, line in enumerate(lines) if line.startswith("echo") and "minute" in line)
    (silent,) = (place for place, line in enumerate(lines) if "pip install" in line)
    assert said < silent


@pytest.mark.slow
def test_make_installs_locked_versions(index: Path, copy: Path) -> None:
    """Slow: installs every locked name into an environment."""
    typed(f"make PYTHON={sys.executable} .venv/.built-from-lock", copy, index)
    there = {canonicalize_name(name): version for name, version in installed(copy).items()}
    assert CUDA.items() <= there.items()
    assert {name: version for name, version in there.items() if name in LOCK}.items() <= LOCK.items()
    typed(".venv/bin/python -c 'import torch'", copy)
    typed("make .venv/.built-from-lock && test ! .venv -nt .venv/.built-from-lock", copy)  # nothing is done twice


@pytest.mark.slow
def test_cpu_torch_brings_no_cuda(index: Path, copy: Path, tmp_path: Path) -> None:
    """Slow: installs every locked name into an environment."""
    (tmp_path / "cpu").mkdir()
    write_wheel(tmp_path / "cpu", "torch", f"{LOCK['torch']}+cpu", needs=["setuptools>=77"])
    typed(lines_without_make()[0], copy, tmp_path / "cpu", index)
    there = installed(copy)
    assert there["torch"] == f"{LOCK['torch']}+cpu" and not there.keys() & CUDA.keys()


def test_lines_without_make_match() -> None:
    setup, use = lines_without_make()
    recipe = (
        (ROOT / "Makefile").read_text().replace("$(BIN)/python -m pip", ".venv/bin/pip").replace("$(EXTRAS)", "cpu,dev")
    )
    install = next(line for line in recipe.splitlines() if "pip install" in line and not line.startswith("#"))
    wordy = {"--quiet", "--disable-pip-version-check", "--no-compile"}
    assert setup.split(" && ")[0] == "python3 -m venv .venv"
    assert shlex.split(setup.split(" && ")[1]) == [word for word in shlex.split(install) if word not in wordy]
    first, second = use.split(" && ")
    assert first.removeprefix(".venv/bin/python -m repro.") in artefacts()
    assert second == ".venv/bin/python -m pytest"


def test_second_line_starts_from_a_copy(copy: Path) -> None:
    (copy / ".venv").symlink_to(sys.prefix)
    line = lines_without_make()[1]
    for word, without_the_work in (("repro.table1", "--dry-run"), ("pytest", "--version")):
        assert line.count(f"-m {word}") == 1
        line = line.replace(f"-m {word}", f"-m {word} {without_the_work}")
    assert re.search(r"^\d+ runs asked for, 0 recorded", typed(line, copy), re.M)


def needed(requirement: str, seen: set[str]) -> Iterator[str]:
    """Every package a requirement brings here, but for what torch alone brings."""
    asked = Requirement(requirement)
    for extra in ("", *asked.extras):
        key = f"{canonicalize_name(asked.name)}[{extra}]"
        if key in seen:
            continue
        seen.add(key)
        yield canonicalize_name(asked.name)
        for further in distribution(asked.name).requires or () if asked.name != "torch" else ():
            marker = Requirement(further).marker
            if marker is None or marker.evaluate({"extra": extra}):
                yield from needed(further, seen)


def test_lock_names_what_is_needed() -> None:
    brought = set(needed("cde-repro[cpu,dev]", set())) - {"cde-repro"}
    of_torch = {"networkx", "mpmath", "sympy"}
    assert brought - LOCK.keys() == set()
    assert LOCK.keys() - brought <= of_torch
