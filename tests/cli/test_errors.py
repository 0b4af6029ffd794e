"""Errors of commands are one line. User errors and damaged files exit with 2, bugs exit with 70."""

import csv
import errno
import gzip
import json
import lzma
import os
import subprocess
import sys
import tomllib
import zipfile
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets import load_dataset
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoModel

from repro.cli.common import EXIT_NOT_RUN, print_line, print_progress
from repro.cli.errors import EXIT_PIPE, run_with_error_handling
from repro.report.formats import render, render_line
from repro.report.view import View
from repro.storage.files import name_in_errors
from repro.text import make_printable

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


WRAPPED = RuntimeError("cannot write the file")
WRAPPED.__cause__ = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize(
    ("error", "code"),
    [
        *((error, EXIT_NOT_RUN) for error in (
            ValueError("seed=-1:\n  must be 0"), OSError(28, "No space left on device", "/x"), MemoryError(), WRAPPED,
            *(OSError(number, os.strerror(number), "/locked/x") for number in (errno.EACCES, errno.EROFS)),
            ModuleNotFoundError("no module named wandb"), UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"))),
        *((error, 70) for error in (KeyError("name"), IndexError(3), TypeError("x"), RecursionError(), AssertionError())),
    ],
)  # fmt: skip
def test_every_error_is_one_line(error: Exception, code: int, handle: Handle, capsys: Output, own_home: Path) -> None:
    """User errors, also a full disk that a library wrapped, exit with 2. Bugs exit with 70 and name their class."""
    assert handle(error) == code
    message = capsys.readouterr().err
    assert message.startswith("error: " if code == EXIT_NOT_RUN else f"bug: {type(error).__name__}")
    assert message.count("\n") == 1 and not own_home.exists()
    assert ("/locked/x" in message and "REPRO_HOME" in message) == (getattr(error, "filename", None) == "/locked/x")


DAMAGED_FILES: dict[str, tuple[bytes, Callable[[Path], Any]]] = {
    "x.json": (b"[" * 100_000, lambda path: json.loads(path.read_bytes())),
    "x.toml": (b"a = [", lambda path: tomllib.loads(path.read_text())),
    "x.csv": (b'"a"b,c\n', lambda path: list(csv.reader(path.open(), strict=True))),
    "x.gz": (gzip.compress(b"a" * 1000)[:-9], lambda path: gzip.decompress(path.read_bytes())),
    "x.xz": (b"\xfd7zXZ\x00broken", lambda path: lzma.decompress(path.read_bytes())),
    "x.zip": (b"PK\x03\x04", zipfile.ZipFile),
    "x.parquet": (b"PAR1PAR1", pq.read_table),
    "x.arrow": (b"ARROW1", lambda path: pa.ipc.open_file(str(path))),
    "x.safetensors": (b"\x08\0\0\0\0\0\0\0broken", lambda path: safe_open(path, "np")),
    "tokenizer.json": (b"{}", lambda path: Tokenizer.from_file(str(path))),
    "config.json": (b'{"model_type": "bert", "hidden_size": [], "num_attention_heads": "x", "dtype": "nope"}',
                    lambda path: AutoModel.from_pretrained(path.parent)),
    "data.jsonl": (b'{"a": 1}\n{"a": [', lambda path: load_dataset("json", data_files=str(path), cache_dir=path.parent)),
    "date": (b"99999999999", lambda path: datetime.fromtimestamp(int(path.read_text()) ** 2)),
}  # fmt: skip


@pytest.mark.parametrize("name", DAMAGED_FILES)
def test_library_errors_name_file(name: str, tmp_path: Path, handle: Handle, capsys: Output) -> None:
    """Whatever a library raises about a file is one line with the file, and never a bug."""
    content, read = DAMAGED_FILES[name]
    path = tmp_path / name
    path.write_bytes(content)
    for context in (nullcontext(), name_in_errors(path)):
        with pytest.raises(BaseException) as caught, context:
            read(path)
        capsys.readouterr()
        assert handle(caught.value) == EXIT_NOT_RUN
        message = capsys.readouterr().err
        assert message.startswith("error: ") and message.count("\n") == 1
    assert str(tmp_path) in message


def test_debug_shows_the_traceback(handle: Handle, capsys: Output) -> None:
    assert handle(ValueError("x"), "--debug", "table1") == EXIT_NOT_RUN
    assert "Traceback (most recent call last)" in capsys.readouterr().err
    assert sys.argv == ["repro", "show", "table1"]


@pytest.mark.parametrize("words", [("fields", "seed"), ("--help",)])
def test_closed_reader_gives_pipe_status(words: tuple[str, ...], own_home: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        result = subprocess.run([sys.executable, "-m", "repro", *words], stdout=pipe, stderr=subprocess.PIPE)
    assert (result.returncode, result.stderr.decode()) == (EXIT_PIPE, "")


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
