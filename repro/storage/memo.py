"""Cache results between commands, each in a JSON file that can be verified.

A file holds a key, the result as a text, and its sha256. The key is a digest of everything that determines
the result. If a file is missing, damaged, edited or has another key, the caller computes the result again. If the
folder cannot be written, nothing is cached.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from repro.storage.files import atomic_file, json_object


def read_memo(path: Path, key: str) -> Any | None:
    """Return the result that is cached in a file under a key, or None if there is no valid one."""
    try:
        content = json_object(path)
        text = content["result"]
        if content["key"] != key or content["sha256"] != _compute_digest(key, text):
            return None
        return json.loads(text)
    except (OSError, ValueError, TypeError, KeyError):
        return None


def write_memo(path: Path, key: str, result: Any) -> None:
    """Store a result of plain values in a file."""
    # a nested text, because a result may hold NaN, which `json_object` refuses
    text = json.dumps(result)
    content = {"key": key, "sha256": _compute_digest(key, text), "result": text}
    with suppress(OSError, ValueError), atomic_file(path) as part:
        part.write_text(json.dumps(content) + "\n", encoding="utf-8")


def _compute_digest(key: str, text: str) -> str:
    return hashlib.sha256(f"{key} {text}".encode()).hexdigest()
