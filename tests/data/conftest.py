"""The mined corpus `desk`, built once per test run."""

import os
from pathlib import Path

import pytest
from filelock import FileLock

from repro.data.mined.desk import build_desk
from repro.storage.files import atomic_folder


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder of local copies, which all commands use."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("REPRO_DATA", str(folder))
    return folder


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the real corpus `desk`. Parallel test processes share it."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "desk"
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            with atomic_folder(folder) as part:
                build_desk(part)
    return folder
