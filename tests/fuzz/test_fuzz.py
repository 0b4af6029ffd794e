"""Commands with odd words end in one line, without a traceback or a stray file.

A command must not end with exit code 70, which is a bug. `FUZZ=1 pytest -m fuzz` runs more cases.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from typer.main import get_command

from repro.cli.errors import EXIT_BUG
from repro.cli.main import app
from tests.commands import get_exit_code

pytestmark = pytest.mark.fuzz
COMMAND_LINES = 400 if os.environ.get("FUZZ") == "1" else 20
LONG_COMMANDS = ("run", "launch", "fetch", "explain-batch", "data show", "report")
"""Commands that start long work or wait for the network."""


ODD_VALUES = (
    *("None", "True", "0", "-1", "3.5", "1e308", str(10**30), "x", "16", "nan", "../../x", "/tmp/x", "a\nb", "\x00"),
    *("x" * 5000, "ü€\U0001f600", "[]", "{'a': {}}", "mean", "cuda", "2024-01-01"),
    *("table1", "table99", "smoke", "desk", "all", "-"),
)


def list_commands() -> dict[str, list[str]]:
    """Return every other command with its options."""
    group: Any = get_command(app)
    commands = group.commands | {f"data {name}": command for name, command in group.commands["data"].commands.items()}
    return {
        name: [word for parameter in command.params for word in parameter.opts if word.startswith("--")]
        for name, command in commands.items()
        if name not in ("data", *LONG_COMMANDS)
    }


def iter_command_lines(count: int) -> Iterator[list[str]]:
    """Yield command lines with known and unknown options and odd values, from a fixed seed."""
    random, commands = Random("verbs"), list_commands()
    for _ in range(count):
        command = random.choice(list(commands))
        words = command.split()
        for _ in range(random.randrange(1, 4)):
            option = random.choice([*commands[command], "--mars", ""])
            words += [option] * bool(option) + [random.choice(ODD_VALUES)] * random.choice((0, 1, 1, 1))
        # These commands take seconds and no values, so an unknown option ends them early.
        yield [*words, "--mars"] if command in ("check", "doctor", "list") and "--json" not in words else words


def test_odd_words_are_never_bugs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    # /tmp/x is one of the odd values. Another program may have created it.
    existed = Path("/tmp/x").exists()
    for words in iter_command_lines(COMMAND_LINES):
        monkeypatch.setattr(sys, "argv", ["repro", *words])
        code = get_exit_code(*words)
        errors = capsys.readouterr().err
        assert code != EXIT_BUG and "Traceback" not in errors, f"{words}: {errors[-2000:]}"
    assert {path.name for path in tmp_path.iterdir()} <= {"here", "home"}, "a file outside the named places"
    assert not list((tmp_path / "here").rglob("*.py")) and Path("/tmp/x").exists() == existed
