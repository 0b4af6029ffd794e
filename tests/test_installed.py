"""An installed copy, from a wheel in an environment of its own: whole, in nobody's way, and it knows its commit."""

import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from repro.records.store import read_records

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("repro", "experiments", "figures", "slurm")
BUILT_OF = (*FOLDERS, "pyproject.toml", "setup.py", "requirements.lock", "README.md", "LICENSE")
GIT = ("git", "-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main")


@dataclass(frozen=True)
class Installed:
    """A copy from a wheel: the environment it lies in, a user's folder to work in, and what it was built from."""

    environment: Path
    work: Path
    wheel: Path
    commit: str

    def call(self, *words: str, **changes: str) -> subprocess.CompletedProcess[str]:
        """Call python there as a user would, with nothing of ours in the surroundings."""
        own = {name: value for name, value in os.environ.items() if not name.startswith(("REPRO_", "PYTHON", "XDG_"))}
        surroundings = own | {"HOME": str(self.work / "me"), "OMP_NUM_THREADS": "1", "COLUMNS": "200"} | changes
        command = [str(self.environment / "bin" / "python"), *words]
        return subprocess.run(command, cwd=self.work, env=surroundings, capture_output=True, text=True, timeout=900)


def sources(folder: Path) -> str:
    """Copy the sources into a repository of their own and return its commit."""
    for name in BUILT_OF:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, folder / name)
    for words in (["init", "-q"], ["add", "."], ["commit", "-q", "-m", "all"]):
        subprocess.run([*GIT, *words], cwd=folder, check=True)
    return subprocess.run([*GIT, "rev-parse", "HEAD"], cwd=folder, check=True, capture_output=True, text=True).stdout


def pip(*words: str | Path) -> None:
    """Call pip where it does not see that the checkout is there already."""
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, words)]
    surroundings = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, env=surroundings, cwd="/", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """A wheel, installed beside this environment's own packages; in the folder of a user who has an own repository."""
    folder = tmp_path_factory.mktemp("installed")
    (folder / "sources").mkdir()
    commit = sources(folder / "sources").strip()
    pip("wheel", "-q", "--no-build-isolation", "--no-deps", "--no-index", "-w", folder, folder / "sources")
    wheel = next(folder.glob("*.whl"))
    work = folder / "work"
    for name in FOLDERS[1:]:  # a user's own folders, of the same names
        (work / name).mkdir(parents=True)
        (work / name / "__init__.py").write_text("raise ImportError('a folder of the user')")
    subprocess.run([*GIT, "init", "-q"], cwd=work, check=True)
    subprocess.run([*GIT, "commit", "-q", "--allow-empty", "-m", "not ours"], cwd=work, check=True)
    environment = work / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    pip("--python", environment, "install", "-q", "--no-deps", "--no-index", "--no-compile", wheel)
    site = next(environment.glob("lib/python*/site-packages"))
    (site / "packages.pth").write_text(sysconfig.get_path("purelib"))
    shutil.rmtree(folder / "sources")
    return Installed(environment, work, wheel, commit)


def checkout(*words: str, home: Path) -> str:
    """What the checkout prints."""
    surroundings = os.environ | {"REPRO_HOME": str(home), "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    command = [sys.executable, "-m", "repro", *words]
    done = subprocess.run(command, env=surroundings, cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def test_wheel_holds_every_file(installed: Installed) -> None:
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    there = {name if name.startswith("repro/") else f"repro/bundled/{name}" for name in listed.splitlines()}
    packed = set(zipfile.ZipFile(installed.wheel).namelist())
    assert len(there) > 700 and not there - packed
    assert {name.split("/")[0] for name in packed} == {"repro", installed.wheel.name.split("-py3")[0] + ".dist-info"}


def test_installed_copy_shows_the_same(installed: Installed, tmp_path: Path) -> None:
    words = ("show", "table1", "--format", "csv")
    done = installed.call("-m", "repro", *words)
    assert done.returncode == 0, done.stderr
    assert ",published,3/3," in done.stdout
    assert done.stdout == checkout(*words, home=tmp_path)


@pytest.mark.slow
def test_installed_copy_judges_without_pages(installed: Installed) -> None:
    """Slow: judges every claim in a fresh environment."""
    done = installed.call(str(installed.environment / "bin" / "repro"), "check", "--write")
    assert re.search(r"Contextual Document Embeddings: .* [1-9]\d HOLDS", done.stdout)
    assert done.returncode == 2 and "pages are renewed in a checkout, not in an installed copy" in done.stderr


def test_pictures_go_to_readers_folder(installed: Installed) -> None:
    done = installed.call("-m", "repro", "show", "figure1")
    assert done.returncode == 0, done.stderr
    figures = installed.work / "me" / ".local" / "share" / "cde-repro" / "figures"
    assert f"drawn: {figures}/figure1-desk-published.svg" in done.stderr
    assert list(figures.glob("*.png"))


def test_home_follows_the_platform(installed: Installed) -> None:
    def home(**changes: str) -> str:
        return installed.call("-c", "from repro.storage.paths import home; print(home())", **changes).stdout.strip()

    unnamed = str(installed.work / "me" / ".local" / "share" / "cde-repro")
    assert home() == home(XDG_DATA_HOME="not/absolute") == home(REPRO_HOME="") == unnamed
    assert home(XDG_DATA_HOME="/data") == "/data/cde-repro"
    assert home(XDG_DATA_HOME="/data", REPRO_HOME="/mine") == "/mine"


def test_installed_copy_names_its_commit(installed: Installed) -> None:
    code = "import json; from repro.records.provenance import get_code_identity; print(json.dumps(get_code_identity()))"
    done = installed.call("-c", code)
    assert json.loads(done.stdout) == {"commit": installed.commit, "uncommitted_sha256": None}


@pytest.mark.slow
def test_installed_copy_trains(installed: Installed) -> None:
    """Slow: trains in a fresh environment."""
    home = installed.work / "trained"
    runs = installed.work / "runs.json"
    runs.write_text(json.dumps([{"scale": "smoke", "num_steps": 5}]))
    done = installed.call("-m", "repro", "launch", str(runs), "--on", "local", REPRO_HOME=str(home))
    assert done.returncode == 0, done.stdout + done.stderr
    [record] = read_records(home / "records")
    assert record.provenance["commit"] == installed.commit
