"""Installation with make, and with the lines of the README. The lock names every requirement."""

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from importlib.metadata import distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from repro.spec.registry import artefacts
from repro.storage.paths import CHECKOUT
from tests.commands import PROJECT_FILES, copy_project

LOCK = {
    canonicalize_name(name): version
    for name, version in re.findall(r"^([\w.-]+)==(\S+)$", (CHECKOUT / "requirements.lock").read_text(), re.M)
}


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
def test_make_keeps_built_extras(built: str | None, words: str, verbs: list[str], extras: str, tmp_path: Path) -> None:
    """An environment keeps its faiss until another one is requested, which replaces it."""
    copy_project(tmp_path, *PROJECT_FILES)
    if built:
        (tmp_path / ".venv").mkdir()
        (tmp_path / ".venv" / ".built-from-lock").write_text(f"{built}\n")
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    command = ["make", "--dry-run", *words.split(), ".venv/.built-from-lock"]
    result = subprocess.run(command, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True)
    assert re.findall(r"-m pip (\w+)", result.stdout) == verbs and extras in result.stdout


def test_lines_without_make_match() -> None:
    """The README installs and runs what make installs and runs."""
    readme = (CHECKOUT / "README.md").read_text()
    setup, use = readme.split("Without make:")[1].split("```")[1].strip().splitlines()
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
