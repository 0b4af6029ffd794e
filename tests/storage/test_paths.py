"""Promises of the folder that REPRO_HOME names: one that cannot be is said in one line, before anything is started."""

import os
import resource
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from repro.cli.common import EXIT_NOT_RUN
from repro.cli.errors import run_with_error_handling
from repro.cli.main import app
from repro.storage import arrays
from repro.storage.arrays import array_to_fill, map_to_fill
from repro.storage.paths import CHECKOUT, check_home, get_data_folder, home
from repro.storage.platform_info import cores_here, measure_peak_bytes
from repro.train.loop import measure_memory_bytes


def ends(*words: str) -> int:
    return run_with_error_handling(lambda: app(list(words), prog_name="repro", standalone_mode=False))


@pytest.mark.parametrize("below", ["", "/deep/er"])
@pytest.mark.parametrize(
    "words",
    [
        ("run", "table1", "--scale", "smoke"),
        ("launch", "table1", "--scale", "smoke"),
        ("list", "--json"),
        ("status", "table1"),
        ("data", "import", "FILE", "--name", "x"),
    ],
)
def test_file_in_place_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...],
    below: str,
) -> None:
    (tmp_path / "file").write_text('{"query": "a", "document": "b"}')
    monkeypatch.setenv("REPRO_HOME", f"{tmp_path / 'file'}{below}")
    if words[0] == "list":  # it reads nothing of the folder
        assert ends(*words) == 0
        return
    assert ends(*(str(tmp_path / "file") if word == "FILE" else word for word in words)) == EXIT_NOT_RUN
    shown = capsys.readouterr()
    assert shown.err.startswith(
        f"error: REPRO_HOME={tmp_path}/file{below} is not a folder, since {tmp_path}/file is a file"
    )
    assert shown.err.count("\n") == 1 and "set REPRO_HOME to a folder" in shown.err and "run 1 of" not in shown.out


@pytest.mark.parametrize("words", [("run", "table1", "--scale", "smoke"), ("launch", "table1", "--scale", "smoke")])
def test_uncreatable_home_is_refused_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("REPRO_HOME", "/proc/nope")
    assert ends(*words) == EXIT_NOT_RUN
    shown = capsys.readouterr()
    assert shown.err.startswith(
        "error: REPRO_HOME=/proc/nope cannot be created (No such file or directory): set REPRO_HOME"
    )
    assert "run 1 of" not in shown.out and "[Errno" not in shown.err


def test_home_is_made_when_needed(own_home: Path) -> None:
    assert home() == own_home.resolve() and not own_home.exists()
    check_home()
    assert own_home.is_dir()


def test_empty_data_name_is_none(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DATA", "")
    assert get_data_folder() == own_home / "data"


def test_tilde_is_the_users_own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a shell, for both folders; a user who does not exist is an error."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("REPRO_HOME", "~/mine")
    monkeypatch.setenv("REPRO_DATA", "~/data")
    assert (home(), get_data_folder()) == (tmp_path / "mine", tmp_path / "data")
    monkeypatch.setenv("REPRO_HOME", "~nobody-of-this-name/x")
    with pytest.raises(ValueError, match="REPRO_HOME=~nobody-of-this-name/x"):
        home()


def test_impossible_homes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links in a circle, and bytes that are not UTF-8, are one line each."""
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
    """Pictures are drawn where MPLBACKEND names a backend that is not installed, as in a program Jupyter started."""
    code = "from repro.cli.figures import use_headless_backend as f; f(); import figures.style, matplotlib as m; "
    code += "print(m.get_backend())"
    told = os.environ | {"MPLBACKEND": "module://not_installed.backend", "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run([sys.executable, "-c", code], env=told, capture_output=True, text=True)
    assert (done.returncode, done.stdout.strip().lower()) == (0, "agg"), done.stderr


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A system, such as macOS, without these calls."""
    for name in ("sched_getaffinity", "posix_fallocate"):
        monkeypatch.delattr(os, name)


def test_cores_are_those_allowed(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 99)
    assert cores_here() == len(os.sched_getaffinity(0)) < 99
    request.getfixturevalue("elsewhere")
    assert cores_here() == 99


@pytest.mark.usefixtures("elsewhere")
def test_arrays_work_without_fallocate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrays, "MOST_BYTES_IN_MEMORY", 0)
    for array in (array_to_fill((3, 5), "<i4", tmp_path), map_to_fill(tmp_path / "a.npy", (3, 5), "<i4")):
        array[:] = np.arange(15).reshape(3, 5)
        assert array.sum() == 105
    assert np.load(tmp_path / "a.npy").shape == (3, 5)


def test_peak_memory_is_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    monkeypatch.setattr("repro.storage.platform_info.RESIDENT_UNIT_BYTES", 1)
    assert counted <= measure_peak_bytes() < 2 * counted
    assert counted <= measure_peak_bytes(with_children=True)
    assert measure_memory_bytes(torch.device("cpu")) < 2 * counted
