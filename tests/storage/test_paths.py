"""Promises of the folder that REPRO_HOME names: one that cannot be is said in one line, before anything is started."""

from pathlib import Path

import pytest

from repro.cli.main import app
from repro.cli.net import guarded
from repro.cli.options import EXIT_NOT_RUN
from repro.storage.paths import check_home, data_folder, home


def ends(*words: str) -> int:
    return guarded(lambda: app(list(words), prog_name="repro", standalone_mode=False))


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
def test_a_file_in_the_place_of_the_folder_is_named_with_what_to_do(
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
        f"error: REPRO_HOME={tmp_path}/file{below} is no folder, since {tmp_path}/file is a file"
    )
    assert shown.err.count("\n") == 1 and "set REPRO_HOME to a folder" in shown.err and "run 1 of" not in shown.out


@pytest.mark.parametrize("words", [("run", "table1", "--scale", "smoke"), ("launch", "table1", "--scale", "smoke")])
def test_a_folder_that_cannot_be_made_is_said_before_a_run_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: tuple[str, ...]
) -> None:
    monkeypatch.setenv("REPRO_HOME", "/proc/nope")
    assert ends(*words) == EXIT_NOT_RUN
    shown = capsys.readouterr()
    assert shown.err.startswith(
        "error: REPRO_HOME=/proc/nope cannot be made (No such file or directory): set REPRO_HOME"
    )
    assert "run 1 of" not in shown.out and "[Errno" not in shown.err


def test_a_folder_that_can_be_is_made_once_it_is_needed(own_home: Path) -> None:
    assert home() == own_home.resolve() and not own_home.exists()
    check_home()
    assert own_home.is_dir()


def test_an_empty_name_of_the_data_folder_is_no_name(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_DATA", "")
    assert data_folder() == own_home / "data"
