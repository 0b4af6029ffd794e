"""Run commands and modules of the project, in this process or in a process of their own."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from repro.cli.errors import run_with_error_handling
from repro.cli.main import app
from repro.storage.paths import CHECKOUT

PACKAGES = ("repro", "experiments", "figures", "slurm")
PROJECT_FILES = ("pyproject.toml", "setup.py", "requirements.lock", "README.md", "LICENSE", "Makefile")


def run_command(*words: str) -> str:
    """Return what a command prints. Its exception is raised here."""
    result = CliRunner().invoke(app, list(words))
    if result.exception is not None:
        raise result.exception
    return result.stdout


def get_exit_code(*words: str) -> int:
    """Run a command with the error handling of `repro` and return its exit code."""
    return run_with_error_handling(lambda: app(list(words), prog_name="repro", standalone_mode=False))


def run_module(
    *words: str, folder: Path = CHECKOUT, source: Path = CHECKOUT, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run `python -m` with these words, in this folder and with the code below `source`, on one thread."""
    environment = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1", "COLUMNS": "200", **variables}
    command = [sys.executable, "-m", *words]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=1800)


def copy_project(folder: Path, *names: str) -> None:
    """Copy these files and folders of the checkout, without compiled code."""
    for name in names:
        if (CHECKOUT / name).is_dir():
            shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(CHECKOUT / name, folder / name)


def ignore(line: str) -> None:
    """Take a line of progress, and print nothing."""
