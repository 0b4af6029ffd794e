"""The folders of REPRO_HOME and REPRO_DATA, and facts of the platform."""

import os
from pathlib import Path

import pytest

from repro.storage import platform_info
from repro.storage.paths import get_data_folder, get_home
from repro.storage.platform_info import count_usable_cores, measure_free_bytes


def test_tilde_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` works in both variables. An empty REPRO_DATA counts as unset."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REPRO_HOME", "~/mine")
    monkeypatch.setenv("REPRO_DATA", "~/data")
    assert (get_home(), get_data_folder()) == (tmp_path / "mine", tmp_path / "data")
    monkeypatch.setenv("REPRO_DATA", "")
    assert get_data_folder() == tmp_path / "mine" / "data"


def test_cores_are_those_allowed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform_info, "OWN_CGROUPS", tmp_path / "none")
    monkeypatch.setattr(os, "cpu_count", lambda: 99)
    assert count_usable_cores() == len(os.sched_getaffinity(0)) < 99
    monkeypatch.delattr(os, "sched_getaffinity")  # as on macOS
    assert count_usable_cores() == 99


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the group of a job. This process is in the group of its step, which has no limits of its own."""
    (tmp_path / "groups" / "job" / "step").mkdir(parents=True)
    (tmp_path / "own").write_text("0::/job/step\n")
    monkeypatch.setattr(platform_info, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(platform_info, "CGROUPS", tmp_path / "groups")
    return tmp_path / "groups" / "job"


@pytest.mark.parametrize(("quota", "expected"), [("400000", 4), ("50000", 1), ("max", 64)])
def test_quota_of_a_container_limits_cores(
    job: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    (job / "cpu.max").write_text(f"{quota} 100000\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(64))
    assert count_usable_cores() == expected


def test_limit_of_a_job_bounds_free_memory(job: Path) -> None:
    """The page cache can be reclaimed."""
    (job / "step" / "memory.max").write_text("max\n")
    contents = {"memory.max": "8000\n", "memory.current": "5000\n", "memory.stat": "anon 1000\ninactive_file 3000\n"}
    for name, content in contents.items():
        (job / name).write_text(content)
    assert measure_free_bytes() == 8000 - (5000 - 3000)
    (job / "memory.max").write_text("max\n")
    assert (measure_free_bytes() or 0) > 2**20, "without a limit, the memory of the machine"
