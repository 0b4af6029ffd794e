"""A cached result is returned as it was written, or not at all."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro.storage.memo import Memo

RESULT = {"values": [0.1, 1 / 3, float("inf")], "name": "ä"}


def test_memo_returns_what_was_written(tmp_path: Path) -> None:
    """Values are equal to the last bit. Another key or file gives nothing."""
    Memo(tmp_path / "a.json", "key").write(RESULT)
    assert Memo(tmp_path / "a.json", "key").read() == RESULT
    assert Memo(tmp_path / "a.json", "other").read() is None
    assert Memo(tmp_path / "b.json", "key").read() is None


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
    memo = Memo(tmp_path / "a.json", "key")
    memo.write(RESULT)
    memo.path.write_text(json.dumps(change(json.loads(memo.path.read_text()))))
    assert memo.read() is None
