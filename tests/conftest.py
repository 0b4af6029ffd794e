"""Every test works in a folder of its own: nothing it makes reaches the checkout or another test."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Points REPRO_HOME, in this process and its children, at a fresh folder."""
    home = tmp_path / "home"
    monkeypatch.setenv("REPRO_HOME", str(home))
    return home
