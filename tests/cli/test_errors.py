"""Errors of commands are one line. User errors exit with 2, bugs exit with 70 and write a report."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from repro.cli import common
from repro.cli.common import EXIT_NOT_RUN, EXIT_STOPPED, print_line, print_progress
from repro.cli.errors import EXIT_BUG, EXIT_PIPE, run_with_error_handling
from repro.report.formats import render, render_line
from repro.report.html import inline_svg
from repro.report.view import View
from repro.storage.paths import find_other_writers
from repro.text import make_printable
from tests.commands import get_exit_code, run_module

Output = pytest.CaptureFixture[str]
Handle = Callable[..., int]


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Handle:
    """Return a function that raises an error in a command of these words, and returns the exit code."""

    def handle(error: BaseException, *words: str) -> int:
        monkeypatch.setattr(sys, "argv", ["repro", "show", *words])

        def fail() -> int:
            raise error

        return run_with_error_handling(fail)

    return handle


@pytest.mark.parametrize(
    "error",
    [ValueError("seed=-1:\n  must be 0"), OSError(28, "No space left on device", "/x"), MemoryError(),
     *(OSError(number, os.strerror(number), "/locked/x") for number in (errno.EACCES, errno.EROFS)),
     ModuleNotFoundError("no module named wandb"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")],
)  # fmt: skip
def test_mistakes_are_one_line(error: Exception, handle: Handle, capsys: Output, own_home: Path) -> None:
    assert handle(error) == EXIT_NOT_RUN
    message = capsys.readouterr().err
    assert message.startswith("error: ") and message.count("\n") == 1
    assert ("/locked/x" in message and "REPRO_HOME" in message) == (getattr(error, "filename", None) == "/locked/x")
    assert not (own_home / "bugs").exists()


@pytest.mark.parametrize(
    "error", [KeyError("name"), IndexError(3), TypeError("x"), RecursionError(), AssertionError("n")]
)
def test_bugs_are_one_line_with_report(error: Exception, handle: Handle, capsys: Output, own_home: Path) -> None:
    assert handle(error) == EXIT_BUG == 70
    message = capsys.readouterr().err
    (path,) = (own_home / "bugs").iterdir()
    assert message.startswith(f"bug: {type(error).__name__}") and message.count("\n") == 1 and str(path) in message
    report = path.read_text()
    assert "Traceback (most recent call last)" in report and "'show'" in report and "test_errors.py" in report


@pytest.mark.parametrize(
    "start",
    ["from repro.cli.main import main; main()", "import runpy; runpy.run_module('repro.figure1', run_name='__main__')"],
    ids=["repro", "artefact"],
)
def test_ctrl_c_after_the_last_line(start: str) -> None:
    """A signal during Python's shutdown ends the process without a traceback."""
    wait = "import atexit, time; atexit.register(lambda: (print('shutdown', flush=True), time.sleep(60)))"
    code = f"import sys; sys.argv = ['repro', '--help']; {wait}; {start}"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", code], stdout=pipe, stderr=pipe, text=True) as child:
        assert child.stdout is not None and any(line == "shutdown\n" for line in child.stdout)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
    assert (child.returncode, err) == (-signal.SIGINT, "")


def test_locale_without_dashes_ends_no_command() -> None:
    """A plan has "–" for an empty value, which ISO-8859-1 lacks."""
    shown = run_module("repro", "plan", "table1", "--scale", "smoke", "--all-seeds", PYTHONIOENCODING="iso-8859-1")
    assert shown.returncode == 0 and "cluster_size=" in shown.stdout, shown.stderr


def test_debug_shows_the_traceback(handle: Handle, capsys: Output) -> None:
    assert handle(ValueError("x"), "--debug", "table1") == EXIT_NOT_RUN
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert sys.argv == ["repro", "show", "table1"]


def test_early_end_is_no_interrupt(monkeypatch: pytest.MonkeyPatch, handle: Handle) -> None:
    """click turns EOFError into an abort. The end of a file is an error, Ctrl-C is a stop."""

    @click.command()
    def read() -> None:
        raise EOFError("Compressed file ended before the end-of-stream marker was reached")

    monkeypatch.setattr(sys, "argv", ["repro"])
    assert run_with_error_handling(lambda: read([], standalone_mode=False)) == EXIT_BUG
    assert handle(KeyboardInterrupt()) == EXIT_STOPPED


@pytest.mark.parametrize("words", [("check", "T1.b", "--strict"), ("--help",)])
def test_closed_reader_gives_pipe_status(words: tuple[str, ...], own_home: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        result = subprocess.run([sys.executable, "-m", "repro", *words], stdout=pipe, stderr=subprocess.PIPE)
    assert (result.returncode, result.stderr.decode()) == (EXIT_PIPE, "")


@pytest.mark.parametrize(
    ("words", "closed", "code"), [("check T1.b", ">&-", 0), ("check T1.zz", "2>&-", 2), ("check T1.zz", ">&- 2>&-", 2)]
)
def test_closed_output_is_no_error(words: str, closed: str, code: int, own_home: Path) -> None:
    result = subprocess.run(f"{sys.executable} -m repro {words} {closed}", shell=True, capture_output=True, text=True)
    assert result.returncode == code, result.stderr
    assert not list(own_home.rglob("bugs/*"))


@pytest.mark.parametrize(
    "words",
    [("launch", "table1", "--limit", "-1"), ("data", "show", "x", "--samples", "-1"),
     ("evaluate", "--model", "x", "--suite", "y", "--num-contexts", "-1"),
     ("evaluate", "--model", "x", "--suite", "y", "--context-seed", "-1")],
)  # fmt: skip
def test_negative_counts_are_refused_first(words: tuple[str, ...], own_home: Path, capsys: Output) -> None:
    assert get_exit_code(*words) == EXIT_NOT_RUN
    assert f"'{words[-2]}': -1 is not in the range" in " ".join(capsys.readouterr().err.split())
    assert not list(own_home.rglob("*.json"))


def test_misspelt_verb_gets_one_suggestion(capsys: Output) -> None:
    assert get_exit_code("chekc") == EXIT_NOT_RUN
    assert capsys.readouterr().err.count("Did you mean 'check'?") == 1


LONG = "/data/" + "deep/" * 30 + "runs.json"
MESSAGE = f"{LONG}, run 12: batch_size=-4: must be at least 1; see `repro plan table1 --scale desk`, or ask for another"


def test_messages_stay_one_line(handle: Handle, capsys: Output) -> None:
    handle(ValueError(MESSAGE))
    assert capsys.readouterr().err == f"error: {MESSAGE}\n"


HOSTILE = "a\x1b[2Jb\x07c\u202ed\x9be\r"


def test_no_escape_sequence_reaches_the_terminal(capsys: Output) -> None:
    """Lines, tables, titles and notes are cleaned. Other scripts, tabs and line breaks stay."""
    print_line(HOSTILE)
    print_progress(HOSTILE)
    render_line(HOSTILE)
    render(View(HOSTILE, ("name", "n"), ((HOSTILE, "1"),), (HOSTILE,)))
    output = capsys.readouterr()
    assert not {*"\x1b\x07\u202e\x9b\r"} & {*output.out, *output.err}
    text = "हिन्दी 中文 e\u0301 👩\u200d💻 x\ty\nz\u202f1"
    assert make_printable(text) == text
    make_printable("\udcff").encode()


HOSTILE_SVG = """<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" width="72pt"
 height="72pt" onload="run()"><metadata/><script>run()</script><foreignObject><p xmlns="x">hi</p></foreignObject>
<defs><clipPath id="c"><rect width="1" height="1"/></clipPath></defs><a xlink:href="http://elsewhere"><text>x</text></a>
<g ONCLICK="run()" clip-path="url(#c)" style="fill: url(http://elsewhere/x)"><path d="M 0 0" id="p"/>
<use xlink:href="#p"/><use href="http://elsewhere#p"/><image href="data:image/png;base64,AA=="/>
<image href="javascript:run()"/></g></svg>"""


def test_report_pictures_only_draw(tmp_path: Path) -> None:
    """Scripts, handlers, links and foreign elements are removed. Drawing elements stay and get unique ids."""
    (tmp_path / "p.svg").write_text(HOSTILE_SVG)
    page = inline_svg(tmp_path / "p.svg", "pre-", "label")
    root = ElementTree.fromstring(page)
    names = {element.tag.rpartition("}")[2] for element in root.iter()}
    assert names == {"svg", "defs", "clipPath", "rect", "g", "path", "use", "image"}
    assert "run()" not in page and "elsewhere" not in page
    assert "url(#pre-c)" in page and "#pre-p" in page and "data:image/png" in page
    (tmp_path / "p.svg").write_text("<html><svg/></html>")
    with pytest.raises(ValueError, match="expected svg"):
        inline_svg(tmp_path / "p.svg", "pre-", "label")


@pytest.mark.parametrize(("mode", "who"), [(0o777, "everybody"), (0o775, "its group"), (0o755, "")])
def test_shared_home_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, who: str) -> None:
    """The folder and those above it are checked. /tmp is safe, since users can remove only their own files there."""
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("REPRO_HOME", str(home))
    home.chmod(mode)
    assert find_other_writers().startswith(who) and bool(find_other_writers()) == bool(who)
    home.chmod(0o755)
    tmp_path.chmod(mode)
    assert bool(find_other_writers()) == bool(who)
    tmp_path.chmod(0o700)


def test_only_slow_work_is_announced(monkeypatch: pytest.MonkeyPatch, capsys: Output) -> None:
    clock = [0.0]
    monkeypatch.setattr(common.time, "monotonic", lambda: clock[0])
    results = []
    for letter in common.track_progress("abcd", str.upper):
        results.append(letter)
        clock[0] += {"a": 1.5, "b": 1.5, "c": 1.5}.get(letter, 0)
    assert results == ["a", "b", "c", "d"]
    assert capsys.readouterr() == ("", "C (3 of 4)\n")
