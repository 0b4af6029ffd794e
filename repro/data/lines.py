"""Read text files and JSON lines, in UTF-8 and with a maximal line length. Errors name file and line."""

from __future__ import annotations

import codecs
import json
import re
import shlex
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

MAX_LINE_BYTES = 16 * 2**20
GZIP_MARK = b"\x1f\x8b"
"""First bytes of a file that gzip compressed."""
Skip = Callable[[int, str], None]
"""Receives the number of a malformed line and the reason, so that reading continues."""


def convert_hint(path: Path) -> str:
    """Return the command that converts a file to UTF-8, from UTF-16 if it has its mark, otherwise from Latin-1.

    For a compressed file, return the command that unpacks it.
    """
    with path.open("rb") as file:
        mark = file.read(2)
    if mark == GZIP_MARK:
        return f"it is compressed: gzip -dc {shlex.quote(path.name)} > {shlex.quote(f'unpacked-{path.name}')}"
    is_utf16 = mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    condition, encoding = ("it is UTF-16", "UTF-16") if is_utf16 else ("if it is Latin-1", "LATIN1")
    name, converted = shlex.quote(path.name), shlex.quote(f"utf8-{path.name}")
    return f"{condition}: iconv -f {encoding} -t UTF-8 {name} > {converted}"


def iter_lines(path: Path, skip: Skip | None = None) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not blank.

    Raises:
        ValueError: if a line is too long or not UTF-8. With `skip`, such a line is passed to it instead.
    """
    with path.open("rb") as file:
        line_number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            line_number += 1
            try:
                text = _decode(path, line_number, line)
            except ValueError as error:
                _report(path, line_number, error, skip)
                # the rest of a line that is too long
                while len(line) > MAX_LINE_BYTES and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE_BYTES + 1)
                continue
            if text:
                yield line_number, text


def _report(path: Path, line_number: int, error: ValueError, skip: Skip | None) -> None:
    """Pass a malformed line to `skip`. Without it, raise the error with file and line."""
    if skip is None:
        raise ValueError(f"{path}, line {line_number}: {error}") from error
    skip(line_number, str(error))


def _decode(path: Path, line_number: int, line: bytes) -> str:
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"longer than {MAX_LINE_BYTES} bytes; is this one pair a line?")
    try:
        return line.decode("utf-8-sig" if line_number == 1 else "utf-8").strip()
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 at byte {error.start}; {convert_hint(path)}") from error


def list_json_rows(path: Path, skip: Skip | None = None) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and object of each line.

    Raises:
        ValueError: if a line is no JSON object. With `skip`, such a line is passed to it instead.
    """
    for line_number, line in iter_lines(path, skip):
        try:
            row = _parse_object(line)
        except ValueError as error:
            _report(path, line_number, error, skip)
            continue
        yield line_number, row


def _parse_object(line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        # malformed, a number of thousands of digits, nested too deeply
        raise ValueError(f"no JSON ({error})") from error
    if not isinstance(row, dict):
        raise ValueError(f"a {type(row).__name__}, expected an object with named fields")
    if SURROGATE_ESCAPE.search(line):
        try:
            json.dumps(row, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            surrogate = error.object[error.start].encode("ascii", "backslashreplace").decode()
            raise ValueError(f"{surrogate} is half a letter, which no text can hold: convert the file") from error
    return row


SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")
"""Escape of a surrogate in JSON. Two surrogates encode a character above U+FFFF, and a single one is invalid."""
