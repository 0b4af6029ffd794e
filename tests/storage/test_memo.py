"""A cached result is returned as it was written, or not at all."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro.storage.files import read_memo, write_memo

RESULT = {"values": [0.1, 1 / 3, float("inf")], "name": "ä"}


def test_memo_returns_what_was_written(tmp_path: Path) -> None:
    """Values are equal to the last bit. Another key or file gives nothing."""
    write_memo(tmp_path / "a.json", "key", RESULT)
    assert read_memo(tmp_path / "a.json", "key") == RESULT
    assert read_memo(tmp_path / "a.json", "other") is None
    assert read_memo(tmp_path / "b.json", "key") is None


CHANGES = {
    "result": lambda content: content | {"result": content["result"].replace("0.1", "9.1")},
    "type of the result": lambda content: content | {"result": 3},
    "key": lambda content: content | {"key": "other"},
    "digest": lambda content: content | {"sha256": "0" * 64},
    "list": lambda content: [content],
    "empty": lambda content: {},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changed_memo_is_dropped(tmp_path: Path, change: Callable[[Any], Any]) -> None:
    path = tmp_path / "a.json"
    write_memo(path, "key", RESULT)
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    assert read_memo(path, "key") is None
