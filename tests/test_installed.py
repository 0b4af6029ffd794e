"""A wheel, installed in a fresh environment, is complete, ignores a user's folders and knows its commit."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from repro.records.store import read_records
from repro.spec.identity import run_id
from repro.spec.registry import find_experiment
from repro.storage.paths import CHECKOUT
from tests.commands import PACKAGES, PROJECT_FILES, copy_project, run_module

RECORDS = {run_id(run) for run in find_experiment("table1").runs("desk")}
"""The only records in the wheel, because packing and unpacking all of them takes longer than everything else."""
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")


@dataclass(frozen=True)
class Installed:
    """An installed wheel: its environment, a user's working folder, the wheel and the commit of its sources."""

    environment: Path
    work: Path
    wheel: Path
    commit: str

    def call(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Call python in the environment as a user would, without variables of this project."""
        ours = ("REPRO_", "PYTHON", "XDG_")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(ours)}
        variables = inherited | {"HOME": str(self.work / "me"), "OMP_NUM_THREADS": "1", "COLUMNS": "200"} | changes
        command = [str(self.environment / "bin" / "python"), *words]
        return subprocess.run(command, cwd=self.work, env=variables, capture_output=True, text=True, timeout=900)


def commit_sources(folder: Path) -> str:
    """Copy the sources into a new repository and return its commit."""
    copy_project(folder, *PACKAGES, *PROJECT_FILES)
    for path in (folder / "experiments" / "records").glob("*.*"):
        if path.stem not in RECORDS:
            path.unlink()
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*GIT, *words], cwd=folder, check=True)
    result = subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True)
    return result.stdout.strip()


def call_pip(*words: str | Path) -> None:
    """Call pip outside the checkout, so that it does not find the project installed."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    result = subprocess.run(command, env=variables, cwd="/", capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Build and install a wheel, in the repository of a user whose folders have the same names as ours."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "sources").mkdir()
    commit = commit_sources(folder / "sources")
    call_pip("wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder, folder / "sources")
    wheel = next(folder.glob("*.whl"))
    work = folder / "work"
    for name in PACKAGES[1:]:
        (work / name).mkdir(parents=True)
        (work / name / "__init__.py").write_text("raise ImportError('a folder of the user')")
    subprocess.run([*GIT, "init", "-q"], cwd=work, check=True)
    subprocess.run([*GIT, "commit", "-q", "--allow-empty", "-m", "not ours"], cwd=work, check=True)
    environment = work / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    call_pip("--python", environment, "install", "-q", "--no-deps", "--no-index", "--no-compile", wheel)
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "packages.pth").write_text(sysconfig.get_path("purelib"))
    shutil.rmtree(folder / "sources")
    return Installed(environment, work, wheel, commit)


def test_wheel_holds_every_file(installed: Installed) -> None:
    command = ["git", "ls-files", *PACKAGES]
    listed = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=True).stdout.splitlines()
    names = [name for name in listed if "experiments/records/" not in name or Path(name).stem in RECORDS]
    expected = {name if name.startswith("repro/") else f"repro/bundled/{name}" for name in names}
    packed = set(zipfile.ZipFile(installed.wheel).namelist())
    assert len(expected) > 400 and not expected - packed
    assert {name.split("/")[0] for name in packed} == {"repro", installed.wheel.name.split("-py3")[0] + ".dist-info"}


def test_installed_copy_shows_the_same(installed: Installed) -> None:
    words = ("show", "table1", "--format", "csv")
    result = installed.call("-m", "repro", *words)
    assert result.returncode == 0, result.stderr
    assert ",published,3/3," in result.stdout
    assert result.stdout == run_module("repro", *words).stdout


def test_home_follows_the_platform(installed: Installed) -> None:
    def get_home(**changes: str) -> str:
        return installed.call(
            "-c", "from repro.storage.paths import get_home; print(get_home())", **changes
        ).stdout.strip()

    default = str(installed.work / "me" / ".local" / "share" / "cde-repro")
    assert get_home() == get_home(XDG_DATA_HOME="not/absolute") == get_home(REPRO_HOME="") == default
    assert get_home(XDG_DATA_HOME="/data") == "/data/cde-repro"
    assert get_home(XDG_DATA_HOME="/data", REPRO_HOME="/mine") == "/mine"


def test_installed_copy_names_its_commit(installed: Installed) -> None:
    code = "import json; from repro.records.provenance import get_code_identity; print(json.dumps(get_code_identity()))"
    result = installed.call("-c", code)
    assert json.loads(result.stdout) == {"commit": installed.commit, "uncommitted_sha256": None}


@pytest.mark.slow
def test_installed_copy_trains(installed: Installed) -> None:
    """Slow: trains in a fresh environment."""
    home = installed.work / "trained"
    runs = installed.work / "runs.json"
    runs.write_text(json.dumps([{"scale": "smoke", "num_steps": 5}]))
    result = installed.call("-m", "repro", "launch", str(runs), REPRO_HOME=str(home))
    assert result.returncode == 0, result.stdout + result.stderr
    [record] = read_records(home / "records")
    assert record.provenance["commit"] == installed.commit
