"""Which code a job may run: that it was launched with, whatever git says of it where the job is."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro.records import provenance
from repro.spec import base
from slurm.job import Job
from slurm.signals import Stop
from slurm.states import JobState
from slurm.sweep import check_code


@pytest.fixture(autouse=True)
def execute_nothing(execute_with: Callable[..., None]) -> None:
    """Runs end at once."""
    execute_with(lambda run, **options: None)


def begin(launched_with: dict[str, Any]) -> None:
    """Does a job of a careful scale in which nothing is done but to look at the code."""
    job = Job(run=vars(base("small")), launched_with=launched_with)
    job(Stop(), where=JobState(state="running"))


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """A committed checkout of our own, taken for that of the code; called, it commits a file more."""
    root = tmp_path / "checkout"
    git = ("git", "-C", str(root), "-c", "user.name=a", "-c", "user.email=a@b")

    def commit(name: str, text: str) -> None:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
        for words in (("init", "-q"), ("add", "."), ("commit", "-q", "-m", name)):
            subprocess.run([*git, *words], check=True)

    for name, path in (("CHECKOUT", root), ("SOURCES", root), ("PACKAGE", root / "repro")):
        monkeypatch.setattr(provenance, name, path, raising=False)
    for folder in ("repro", "slurm", "experiments", "figures"):
        commit(f"{folder}/module.py", "a = 1\n")
    return commit


def test_a_checkout_that_git_refuses_is_told_in_gits_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIT_TEST_ASSUME_DIFFERENT_OWNER", "1")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", os.devnull)
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    with pytest.raises(ValueError, match=r"dubious ownership.*safe\.directory") as refused:
        check_code([base("small")], allow_dirty=False)
    assert "commit first" not in str(refused.value)


@pytest.mark.parametrize("path", ["RESULTS.md", "tests/test_edited.py", "experiments/records/new.json"])
def test_a_commit_that_changes_nothing_that_runs_stops_no_job(
    path: str, checkout: Callable[..., None], own_home: Path
) -> None:
    launched_with = check_code([base("small")], allow_dirty=False)
    checkout(path, "edited")
    begin(launched_with)
    checkout("repro/module.py", "a = 2\n")
    with pytest.raises(RuntimeError, match=r"the code has changed since the launch: .*--retry"):
        begin(launched_with)


def test_a_job_that_does_not_find_git_runs_the_code_it_was_launched_with(
    checkout: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched_with = check_code([base("small")], allow_dirty=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing here"))
    begin(launched_with)
    (tmp_path / "checkout" / "slurm" / "module.py").write_text("a = 2\n")
    with pytest.raises(RuntimeError, match="the code has changed since the launch"):
        begin(launched_with)
