"""A folder of local copies."""

from pathlib import Path

import pytest


@pytest.fixture
def data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty folder of local copies, which all commands use."""
    folder = tmp_path / "data"
    folder.mkdir()
    monkeypatch.setenv("REPRO_DATA", str(folder))
    return folder
