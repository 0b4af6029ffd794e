"""Each test works in its own folder, so that nothing it writes reaches the checkout or another test."""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from repro.records import store
from repro.storage.paths import get_published_records

# A busy machine must not fail tests by its speed.
settings.register_profile("any speed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any speed")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point REPRO_HOME, in this process and its children, at a fresh folder."""
    home = tmp_path / "home"
    monkeypatch.setenv("REPRO_HOME", str(home))
    # The width of a table must not depend on the terminal that started the tests.
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.delenv("REPRO_DATA", raising=False)
    # Each command starts without records that were already reported as damaged.
    monkeypatch.setattr("repro.records.store._NAMED", set())
    return home


@pytest.fixture(scope="session", autouse=True)
def published_records_read_once() -> Iterator[None]:
    """Read each committed record once per process, because no test changes one. All of them take two seconds."""
    read, read_once, folder = store.read_record, cache(store.read_record), get_published_records()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(store, "read_record", lambda path: (read_once if path.parent == folder else read)(path))
        yield


@pytest.fixture(scope="module")
def module_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder that `shared_home` uses in all tests of a file."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def shared_home(own_home: Path, module_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use one home in all tests of a file, so that stages and runs are made once."""
    monkeypatch.setenv("REPRO_HOME", str(module_home))
    return module_home


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the files that take longest first, skip slow tests unless SLOW is set, and those for a GPU."""
    # Workers take whole files. A long file that starts last would keep one worker busy after the others have ended.
    long = {item.path for item in items if item.get_closest_marker("slow") or item.get_closest_marker("slurm")}
    items.sort(key=lambda item: item.path not in long)
    on_gpu = [item for item in items if item.get_closest_marker("gpu")]
    if on_gpu:
        import torch

        for item in on_gpu if not torch.cuda.is_available() else ():
            item.add_marker(pytest.mark.skip(reason="torch sees no GPU"))
    if os.environ.get("SLOW"):
        return
    skip = pytest.mark.skip(reason="takes minutes: `make test-all` runs it")
    for item in items:
        if item.get_closest_marker("slow"):
            item.add_marker(skip)
