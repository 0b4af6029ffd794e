"""REPRO_HOME and REPRO_DATA: an impossible folder is one line of error before anything starts. Facts of the platform."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from repro.cli.common import EXIT_NOT_RUN
from repro.storage import arrays
from repro.storage.arrays import allocate_array, map_to_fill
from repro.storage.paths import CHECKOUT, check_home, get_data_folder, home
from repro.storage.platform_info import count_usable_cores, measure_peak_bytes
from repro.train.loop import measure_memory_bytes
from tests.commands import get_exit_code

STARTING = ["run table1 --scale smoke", "launch table1 --scale smoke"]


@pytest.mark.parametrize("below", ["", "/deep/er"])
@pytest.mark.parametrize("command", [*STARTING, "status table1", "data import FILE --name x"])
def test_file_as_home_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str, below: str
) -> None:
    """The error is one line that names the file."""
    file = tmp_path / "file"
    file.write_text('{"query": "a", "document": "b"}')
    monkeypatch.setenv("REPRO_HOME", f"{file}{below}")
    assert get_exit_code(*command.replace("FILE", str(file)).split()) == EXIT_NOT_RUN
    output, error = capsys.readouterr()
    assert error.startswith(f"error: REPRO_HOME={file}{below} is not a folder, since {file} is a file")
    assert error.count("\n") == 1 and "set REPRO_HOME to a folder" in error and "run 1 of" not in output


def test_list_ignores_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "file"))
    assert get_exit_code("list", "--json") == 0


@pytest.mark.parametrize("command", STARTING)
def test_uncreatable_home_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("REPRO_HOME", "/proc/nope")
    assert get_exit_code(*command.split()) == EXIT_NOT_RUN
    output, error = capsys.readouterr()
    assert error.startswith(
        "error: REPRO_HOME=/proc/nope cannot be created (No such file or directory): set REPRO_HOME"
    )
    assert "run 1 of" not in output and "[Errno" not in error


def test_home_is_made_when_needed(own_home: Path) -> None:
    assert home() == own_home.resolve() and not own_home.exists()
    check_home()
    assert own_home.is_dir()


def test_tilde_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~` works in both variables. A user who does not exist is an error, and an empty REPRO_DATA counts as unset."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REPRO_HOME", "~/mine")
    monkeypatch.setenv("REPRO_DATA", "~/data")
    assert (home(), get_data_folder()) == (tmp_path / "mine", tmp_path / "data")
    monkeypatch.setenv("REPRO_DATA", "")
    assert get_data_folder() == tmp_path / "mine" / "data"
    monkeypatch.setenv("REPRO_HOME", "~nobody-of-this-name/x")
    with pytest.raises(ValueError, match="REPRO_HOME=~nobody-of-this-name/x"):
        home()


def test_impossible_homes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cyclic links, bytes that are not UTF-8, and white space are errors."""
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for below in ("loop", "loop/deeper"):
        monkeypatch.setenv("REPRO_HOME", str(tmp_path / below))
        with pytest.raises(ValueError, match="links form a cycle"):
            home()
    monkeypatch.setenv("REPRO_HOME", os.fsdecode(bytes(tmp_path) + b"/\xff"))
    with pytest.raises(ValueError, match="is not UTF-8") as refused:
        home()
    str(refused.value).encode()
    monkeypatch.setenv("REPRO_HOME", " ")
    with pytest.raises(ValueError, match="only white space"):
        home()


def test_notebook_backend_is_ignored(tmp_path: Path) -> None:
    """Figures are drawn even if MPLBACKEND names a missing backend, as in a process that Jupyter started."""
    code = "from repro.cli.figures import use_headless_backend as f; f(); import figures.style, matplotlib as m; "
    code += "print(m.get_backend())"
    env = os.environ | {"MPLBACKEND": "module://not_installed.backend", "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip().lower()) == (0, "agg"), done.stderr


@pytest.fixture
def without_linux_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove calls that macOS does not have."""
    for name in ("sched_getaffinity", "posix_fallocate"):
        monkeypatch.delattr(os, name)


def test_cores_are_those_allowed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 99)
    assert count_usable_cores() == len(os.sched_getaffinity(0)) < 99
    request.getfixturevalue("without_linux_calls")
    assert count_usable_cores() == 99


@pytest.mark.usefixtures("without_linux_calls")
def test_arrays_work_without_fallocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MAX_BYTES_IN_MEMORY", 0)
    for array in (allocate_array((3, 5), "<i4", tmp_path), map_to_fill(tmp_path / "a.npy", (3, 5), "<i4")):
        array[:] = np.arange(15).reshape(3, 5)
        assert array.sum() == 105
    assert np.load(tmp_path / "a.npy").shape == (3, 5)


def test_peak_memory_is_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    monkeypatch.setattr("repro.storage.platform_info.RESIDENT_UNIT_BYTES", 1)
    assert counted <= measure_peak_bytes() < 2 * counted
    assert counted <= measure_peak_bytes(with_children=True)
    assert measure_memory_bytes(torch.device("cpu")) < 2 * counted
