"""Verdicts of all published claims, which several tests print."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def judged_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("judged")


@pytest.fixture
def judged_home(judged_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a home whose verdicts are cached, so that tests of one process judge the published claims once."""
    monkeypatch.setenv("REPRO_HOME", str(judged_folder))
