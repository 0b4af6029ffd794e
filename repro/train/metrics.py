"""The log of a training: a JSON line a step, appended and flushed; what follows the checkpoint is cut on resume."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from repro.writing import whole_file

METRICS_FILE = "metrics.jsonl"


class MetricsLog:
    """An open log that goes on after `step`; later lines, and a half-written last one, are dropped first."""

    def __init__(self, folder: Path, step: int) -> None:
        path = folder / METRICS_FILE
        kept = [line for line in read_metrics(folder) if line["step"] <= step]
        with whole_file(path) as part:
            part.write_text("".join(map(_as_line, kept)), encoding="utf-8")
        self._file = path.open("a", encoding="utf-8")

    def append(self, line: Mapping[str, Any]) -> None:
        """Writes one line and flushes it."""
        self._file.write(_as_line(line))
        self._file.flush()

    def __enter__(self) -> MetricsLog:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Gives the lines of a log, in order of step; none when there is no log; a torn last line is left out."""
    path = folder / METRICS_FILE
    if not path.is_file():
        return []
    complete = path.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line) for line in complete]


def _as_line(line: Mapping[str, Any]) -> str:
    return json.dumps(line, sort_keys=True) + "\n"
