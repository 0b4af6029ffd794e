"""Read text files and JSON lines in UTF-8, compressed or not. Errors name file and line."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
"""Escape of a surrogate in JSON. Two surrogates encode a character above U+FFFF, and a single one is invalid."""


def open_decompressed(path: Path) -> io.BufferedReader:
    """Open a file. The ending of its name, such as .gz or .zst, decides whether it is decompressed."""
    # imported on demand, because light commands read small files only
    import pyarrow as pa

    return io.BufferedReader(pa.input_stream(str(path), compression="detect"))


def iter_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not blank. Raises ValueError if one is not UTF-8."""
    number = 0
    try:
        with open_decompressed(path) as file:
            for number, line in enumerate(file, 1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                if text:
                    yield number, text
    except (UnicodeDecodeError, OSError) as error:
        raise ValueError(f"{path}, line {number}: damaged or not UTF-8 ({error})") from error


def list_json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and object of each line that is not blank. Raises ValueError if one is no JSON object."""
    for number, text in iter_lines(path):
        try:
            row = json.loads(text, object_pairs_hook=_make_object)
            if not isinstance(row, dict):
                raise ValueError(f"a {type(row).__name__}, expected an object with named fields")
            if SURROGATE_ESCAPE.search(text):
                # raises an error for half of a surrogate pair, which no text can hold
                json.dumps(row, ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: no JSON ({error})") from error
        yield number, row


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the field {next(name for name in names if names.count(name) > 1)!r} occurs twice")
    return row
