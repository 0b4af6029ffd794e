"""Every test works in a folder of its own: nothing it makes reaches the checkout or another test."""

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A busy machine must not fail tests by its speed.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point REPRO_HOME, in this process and its children, at a fresh folder."""
    home = tmp_path / "home"
    monkeypatch.setenv("REPRO_HOME", str(home))
    monkeypatch.setenv("REPRO_DATA", "")  # so that what --data-dir leaves there, here or in a test before, goes again
    monkeypatch.delenv("REPRO_DATA")
    monkeypatch.setattr("repro.records.store._NAMED", set())  # as a new command has it
    return home


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files that take longest first, and skip slow tests unless CI or SLOW is set."""
    # A file is one unit of work: a long one that starts last would keep one process busy after the other has ended.
    long = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("slurm")}
    items.sort(key=lambda item: item.path not in long)
    if os.environ.get("CI") or os.environ.get("SLOW"):
        return
    skip = pytest.mark.skip(reason="takes minutes; SLOW=1 or CI=true runs it")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)
