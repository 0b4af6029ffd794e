"""Cache results between commands, each in a JSON file that can be verified.

A file holds a key, the result as a text, and its sha256. The key is a digest of everything that determines
the result. If a file is missing, damaged, edited or has another key, the caller computes the result again. If the
folder cannot be written, nothing is cached.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.storage.files import atomic_file, json_object


@dataclass(frozen=True)
class Memo:
    """One cached result: its file, and the key under which it is valid."""

    path: Path
    key: str

    def read(self) -> Any | None:
        """Return the cached result, or None if there is no valid one."""
        try:
            content = json_object(self.path)
            text = content["result"]
            if content["key"] != self.key or content["sha256"] != self._digest(text):
                return None
            return json.loads(text)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, result: Any) -> None:
        """Store a result of plain values."""
        # a nested text, because a result may hold NaN, which `json_object` refuses
        text = json.dumps(result)
        content = {"key": self.key, "sha256": self._digest(text), "result": text}
        with suppress(OSError, ValueError), atomic_file(self.path) as part:
            part.write_text(json.dumps(content) + "\n", encoding="utf-8")

    def _digest(self, text: str) -> str:
        return hashlib.sha256(f"{self.key} {text}".encode()).hexdigest()
