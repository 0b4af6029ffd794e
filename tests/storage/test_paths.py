"""REPRO_HOME and REPRO_DATA: an impossible folder is one line of error before anything starts. Facts of the platform."""

import os
from pathlib import Path

import pytest

from repro.cli.common import EXIT_NOT_RUN
from repro.storage import platform_info
from repro.storage.paths import get_data_folder, get_home
from repro.storage.platform_info import count_usable_cores, measure_free_bytes
from tests.commands import get_exit_code


@pytest.mark.parametrize("command", ["run table1 --scale smoke", "data import FILE --name x"])
def test_unusable_home_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    """The error is one line that names the folder, before any run starts."""
    file = tmp_path / "file"
    file.write_text('{"query": "a", "document": "b"}')
    for home in (file, file / "deep"):
        monkeypatch.setenv("REPRO_HOME", str(home))
        assert get_exit_code(*command.replace("FILE", str(file)).split()) == EXIT_NOT_RUN
        output, error = capsys.readouterr()
        assert str(home) in error and error.count("\n") == 1 and "run 1 of" not in output


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


@pytest.mark.parametrize(("quota", "expected"), [("400000", 4), ("50000", 1), ("max", 64)])
def test_quota_of_a_container_limits_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quota: str, expected: int
) -> None:
    (tmp_path / "groups" / "pod").mkdir(parents=True)
    (tmp_path / "groups" / "pod" / "cpu.max").write_text(f"{quota} 100000\n")
    (tmp_path / "own").write_text("0::/pod/app\n")
    monkeypatch.setattr(platform_info, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(platform_info, "CGROUPS", tmp_path / "groups")
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: range(64))
    assert count_usable_cores() == expected


def test_limit_of_a_job_bounds_free_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's limit is set above the group of its process. Its page cache can be reclaimed."""
    job = tmp_path / "groups" / "slurm" / "job_7"
    (job / "step_0").mkdir(parents=True)
    (job / "step_0" / "memory.max").write_text("max\n")
    contents = {"memory.max": "8000\n", "memory.current": "5000\n", "memory.stat": "anon 1000\ninactive_file 3000\n"}
    for name, content in contents.items():
        (job / name).write_text(content)
    (tmp_path / "own").write_text("0::/slurm/job_7/step_0\n")
    monkeypatch.setattr(platform_info, "OWN_CGROUPS", tmp_path / "own")
    monkeypatch.setattr(platform_info, "CGROUPS", tmp_path / "groups")
    assert measure_free_bytes() == 8000 - (5000 - 3000)
    (job / "memory.max").write_text("max\n")
    assert (measure_free_bytes() or 0) > 2**20, "without a limit, the memory of the machine"
