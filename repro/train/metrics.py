"""The log of a training: a JSON line a step, appended and flushed; what follows the checkpoint is cut on resume.

Lines are those of steps 1, 2, … without a gap, each with the fields below; the checkpoint holds a digest of the lines
before it, so that a log that was cut, repeated or edited is an error and never another train loss.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from repro.storage.atomic import whole_file

METRICS_FILE = "metrics.jsonl"


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_share(value: Any) -> bool:
    return _is_number(value) and 0 <= value <= 1


FIELDS: Mapping[str, tuple[str, Callable[[Any], bool]]] = {
    "loss": ("a number", _is_number),  # NaN of a training that diverged included: no record is made of it
    "accuracy": ("a number from 0 to 1", _is_share),
    "masked_fraction": ("a number from 0 to 1", _is_share),
    "difficulty": ("a number or null", lambda value: value is None or _is_number(value)),
    "learning_rate": ("a number of at least 0", lambda value: _is_number(value) and value >= 0),
    "pairs_per_second": ("a number of at least 0", lambda value: _is_number(value) and value >= 0),
    "memory_bytes": ("a whole number", lambda value: isinstance(value, int) and not isinstance(value, bool)),
    "batch": ("a text", lambda value: isinstance(value, str)),
}
"""What each line says beside its step, in words and as a test."""


class MetricsLog:
    """An open log that goes on after `step`; later lines, and a half-written last one, are dropped first.

    ValueError when the lines up to `step` are not those the checkpoint was written after (`digest`; "": not known).
    """

    def __init__(self, folder: Path, step: int, digest: str = "") -> None:
        path = folder / METRICS_FILE
        text = "".join(map(_as_line, read_metrics(folder, step)))
        self._hash = hashlib.sha256(text.encode())
        if digest not in ("", self.digest):
            raise ValueError(f"{path} was changed: it is not the log this checkpoint was written after; {REMEDY}")
        if not path.is_file() or path.read_text(encoding="utf-8", errors="replace") != text:
            with whole_file(path, lasts=True) as part:  # or a power loss could leave less than the checkpoint counts on
                part.write_text(text, encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    @property
    def digest(self) -> str:
        """The sha256 of all lines so far."""
        return self._hash.hexdigest()

    def append(self, line: Mapping[str, Any]) -> None:
        """Write one line and flush it."""
        text = _as_line(line)
        self._file.write(text)
        self._file.flush()
        self._hash.update(text.encode())

    def sync(self) -> None:
        """Wait until the lines are on disk: before a checkpoint says that they are."""
        os.fsync(self._file.fileno())

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


REMEDY = "restore it, or remove the folder to train again"


def read_metrics(folder: Path, num_steps: int | None = None) -> list[dict[str, Any]]:
    """Return the lines of a log in order of step: the first `num_steps`, or all; a torn last line is left out.

    No lines when there is no log and none are asked for. ValueError names the line that is not the one of its step, and
    a log that ends before `num_steps`.
    """
    path = folder / METRICS_FILE
    complete = path.read_text(encoding="utf-8", errors="replace").split("\n")[:-1] if path.is_file() else []
    if num_steps is not None and len(complete) < num_steps:
        raise ValueError(f"{path} has {len(complete)} lines, the training took {num_steps} steps: {REMEDY}")
    return [_validate_lines(line, step, path) for step, line in enumerate(complete[:num_steps], 1)]


def _validate_lines(text: str, step: int, path: Path) -> dict[str, Any]:
    where = f"{path}, line {step}"
    try:
        line = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is no JSON ({error}): {REMEDY}") from error
    if not isinstance(line, dict) or not isinstance(line.get("step"), int) or line["step"] != step:
        found = line.get("step") if isinstance(line, dict) else type(line).__name__
        raise ValueError(f"{where} is of step {found!r}, expected {step}: {REMEDY}")
    for name, (words, is_right) in FIELDS.items():
        if name not in line or not is_right(line[name]):
            raise ValueError(f"{where}: {name} is {line.get(name)!r}, expected {words}: {REMEDY}")
    return line


def _as_line(line: Mapping[str, Any]) -> str:
    return json.dumps(line, sort_keys=True) + "\n"
