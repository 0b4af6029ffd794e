"""Records of benchmarks: a JSON file with one row per line. A new row replaces the same one."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

Row = Mapping[str, Any]


def keep_rows(path: Path, rows: Iterable[Row], keys: Sequence[str], order: Callable[[Row], Any] | None = None) -> None:
    """Write rows to a record, replacing those with the same `keys`. Sorted by the keys as text, or by `order`."""

    def key(row: Row) -> list[str]:
        return [str(row[name]) for name in keys]

    new = list(rows)
    told = json.loads(path.read_text())["rows"] if path.is_file() else []
    made = [key(row) for row in new]
    every = sorted([*(row for row in told if key(row) not in made), *new], key=order or key)
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(f"  {json.dumps(row)}" for row in every)
    path.write_text(f'{{"rows": [\n{lines}\n]}}\n')
