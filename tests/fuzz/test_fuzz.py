"""Commands with odd words or damaged files end in one line, without a traceback or a stray file.

A command must not end with exit code 70, which is a bug. `FUZZ=1 pytest -m fuzz` runs more cases.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from repro.cli.errors import EXIT_BUG
from repro.cli.main import app
from tests.commands import get_exit_code
from tests.fuzz.damage import damage_bytes, damage_words

pytestmark = pytest.mark.fuzz
ALL = os.environ.get("FUZZ") == "1"
CASES = 60 if ALL else 24
COMMAND_LINES = 400 if ALL else 20


LONG_COMMANDS = ("run", "launch", "fetch", "explain-batch", "data show", "report")
"""Commands that start long work or wait for the network."""


def list_commands() -> dict[str, list[str]]:
    """Return every other command with its options."""
    group: Any = get_command(app)
    commands = group.commands | {f"data {name}": command for name, command in group.commands["data"].commands.items()}
    return {
        name: [word for parameter in command.params for word in parameter.opts if word.startswith("--")]
        for name, command in commands.items()
        if name not in ("data", *LONG_COMMANDS)
    }


def assert_no_bug(words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """The command ends without a traceback and not with the exit code of a bug."""
    monkeypatch.setattr(sys, "argv", ["repro", *words])
    code = get_exit_code(*words)
    errors = capsys.readouterr().err
    assert code != EXIT_BUG and "Traceback" not in errors, f"{words}: {errors[-2000:]}"


def test_odd_words_are_never_bugs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    # /tmp/x is one of the odd values. Another program may have created it.
    existed = Path("/tmp/x").exists()
    for words in damage_words(list_commands(), COMMAND_LINES, "verbs"):
        # These commands take seconds and no values, so an unknown option ends them early.
        slow = words[0] in ("check", "doctor", "list") and "--json" not in words
        assert_no_bug([*words, "--mars"] if slow else words, monkeypatch, capsys)
    assert {path.name for path in tmp_path.iterdir()} <= {"here", "home"}, "a file outside the named places"
    assert not list((tmp_path / "here").rglob("*.py")) and Path("/tmp/x").exists() == existed


@pytest.mark.parametrize("words", ["plan FILE", "evaluate --model FILE --suite zoo"])
def test_commands_refuse_damaged_files(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.json"
    rows = [{"scale": "smoke", "seed": 1, "num_steps": 4, "suite": "planted", "corpus": "planted-tiny"}]
    for data in list(damage_bytes(json.dumps(rows).encode(), CASES, words))[:CASES]:
        path.write_bytes(data)
        assert_no_bug(words.replace("FILE", str(path)).split(), monkeypatch, capsys)
