"""Results kept from one command to the next, each in a JSON file with all that is needed to distrust it.

A file holds a key (a digest of everything that decides the result), the result as a text, its length and its sha256. A
file that is missing, damaged, changed by hand, or of another key gives no result, and the caller computes it again. A
folder that cannot be written keeps nothing.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro.storage.atomic import whole_file
from repro.storage.json_files import json_object


@dataclass(frozen=True)
class Memo:
    """One kept result: its file, and the key under which it is valid."""

    path: Path
    key: str

    def read(self) -> Any | None:
        """Return the result, or None if there is none that can be trusted."""
        try:
            content = json_object(self.path)
            text = content["result"]
            if content["key"] != self.key or content["length"] != len(text) or content["sha256"] != self._digest(text):
                return None
            return json.loads(text)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def write(self, result: Any) -> None:
        """Keep a result of plain values."""
        text = json.dumps(result)  # a text of its own, since a result may hold NaN, which our readers refuse
        content = {"key": self.key, "length": len(text), "sha256": self._digest(text), "result": text}
        with suppress(OSError, ValueError), whole_file(self.path) as part:
            part.write_text(json.dumps(content) + "\n", encoding="utf-8")

    def _digest(self, text: str) -> str:
        return hashlib.sha256(f"{self.key} {text}".encode()).hexdigest()


def get_digest_key(decides: Mapping[str, Any], length: int = 64) -> str:
    """Return the hex digest of plain values, for the key of a memo; other values count by their text."""
    return hashlib.sha256(json.dumps(decides, sort_keys=True, default=str).encode()).hexdigest()[:length]


def are_numbers(values: Iterable[Any], *, low: float, high: float) -> bool:
    """Return whether these are numbers within bounds, none of them NaN; 1e-6 of either side is rounding to float32."""
    return all(
        isinstance(one, (int, float)) and not isinstance(one, bool) and low - 1e-6 <= one <= high + 1e-6
        for one in values
    )
