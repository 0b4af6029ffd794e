"""Every test works in a folder of its own: nothing it makes reaches the checkout or another test."""

import os
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Points REPRO_HOME, in this process and its children, at a fresh folder."""
    home = tmp_path / "home"
    monkeypatch.setenv("REPRO_HOME", str(home))
    monkeypatch.setenv("REPRO_DATA", "")  # so that what --data-dir leaves there, here or in a test before, goes again
    monkeypatch.delenv("REPRO_DATA")
    monkeypatch.setattr("repro.records.store._NAMED", set())  # as a new command has it
    return home


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leaves the slow tests to CI and to whoever asks for them (SLOW=1 make test); their files come first."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)
    if os.environ.get("CI") or os.environ.get("SLOW"):
        return
    skip = pytest.mark.skip(reason="takes minutes; SLOW=1 or CI=true runs it")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)
