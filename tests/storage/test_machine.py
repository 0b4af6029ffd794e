"""What only Linux calls so is done another way elsewhere."""

import os
import resource
from pathlib import Path

import numpy as np
import pytest
import torch

from repro.storage import arrays
from repro.storage.arrays import array_to_fill, map_to_fill
from repro.storage.platform_info import cores_here, measure_peak_bytes
from repro.train.loop import measure_memory_bytes


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system, such as macOS, without these calls."""
    for name in ("sched_getaffinity", "posix_fallocate"):
        monkeypatch.delattr(os, name)


def test_cores_are_those_this_process_may_use_and_elsewhere_all(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 99)
    assert cores_here() == len(os.sched_getaffinity(0)) < 99
    request.getfixturevalue("elsewhere")
    assert cores_here() == 99


@pytest.mark.usefixtures("elsewhere")
def test_arrays_in_files_are_filled_where_room_cannot_be_taken_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(arrays, "MOST_BYTES_IN_MEMORY", 0)
    for array in (array_to_fill((3, 5), "<i4", tmp_path), map_to_fill(tmp_path / "a.npy", (3, 5), "<i4")):
        array[:] = np.arange(15).reshape(3, 5)
        assert array.sum() == 105
    assert np.load(tmp_path / "a.npy").shape == (3, 5)


def test_the_peak_of_memory_is_in_bytes_whatever_the_system_counts_in(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    monkeypatch.setattr("repro.storage.platform_info.RESIDENT_UNIT_BYTES", 1)
    assert counted <= measure_peak_bytes() < 2 * counted
    assert counted <= measure_peak_bytes(with_children=True)
    assert measure_memory_bytes(torch.device("cpu")) < 2 * counted
