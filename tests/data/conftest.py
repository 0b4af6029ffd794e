"""The mined desk corpus, built once for all tests that look at it."""

import os
from pathlib import Path

import pytest
from filelock import FileLock

from repro.data.mined.desk import build_desk
from repro.storage.atomic import whole_folder


@pytest.fixture(scope="session")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the real desk corpus; parallel test processes share one."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / "desk"
    with FileLock(f"{folder}.lock"):
        if not folder.is_dir():
            with whole_folder(folder) as part:
                build_desk(part)
    return folder
