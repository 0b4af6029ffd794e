"""Read text files and JSON lines, in UTF-8 and with a maximal line length. Errors name file and line."""

from __future__ import annotations

import codecs
import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

MAX_LINE_BYTES = 16 * 2**20
GZIP_MARK = b"\x1f\x8b"
"""First bytes of a file that gzip compressed."""


def convert_hint(path: Path) -> str:
    """Return the command that converts a file to UTF-8, from UTF-16 if it has its mark, otherwise from Latin-1.

    For a compressed file, return the command that unpacks it.
    """
    with path.open("rb") as file:
        mark = file.read(2)
    if mark == GZIP_MARK:
        return f"it is compressed: gzip -dc {shlex.quote(path.name)} > {shlex.quote(f'unpacked-{path.name}')}"
    is_utf16 = mark in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    condition, encoding = ("it is UTF-16", "UTF-16") if is_utf16 else ("if it is from Windows, or Latin-1", "CP1252")
    name, converted = shlex.quote(path.name), shlex.quote(f"utf8-{path.name}")
    return f"{condition}: iconv -f {encoding} -t UTF-8 {name} > {converted}"


def iter_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line that is not blank. Raises ValueError if a line is too long or not UTF-8."""
    for number, text, flaw in _iter_decoded_lines(path):
        if flaw:
            raise ValueError(f"{path}, line {number}: {flaw}")
        yield number, text


def list_json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield number and object of each line that is not blank. Raises ValueError if one is no JSON object."""
    for number, row, flaw in iter_json_rows(path):
        if flaw:
            raise ValueError(f"{path}, line {number}: {flaw}")
        yield number, row


def iter_json_rows(path: Path) -> Iterator[tuple[int, dict[str, Any], str]]:
    """Yield number, object and flaw of each line that is not blank. The flaw says why a line is no JSON object, or is ""."""
    for number, text, flaw in _iter_decoded_lines(path):
        row: dict[str, Any] = {}
        if not flaw:
            try:
                row = _parse_object(text)
            except ValueError as error:
                flaw = str(error)
        yield number, row, flaw


def _iter_decoded_lines(path: Path) -> Iterator[tuple[int, str, str]]:
    """Yield number, text and flaw of each line that is not blank. A line that is too long or not UTF-8 has a flaw."""
    with path.open("rb") as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            text = flaw = ""
            if len(line) > MAX_LINE_BYTES:
                flaw = f"longer than {MAX_LINE_BYTES} bytes; is this one pair a line?"
                # skip the rest of the line
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE_BYTES + 1)
            else:
                try:
                    text = line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError as error:
                    flaw = f"not UTF-8 at byte {error.start}; {convert_hint(path)}"
            if text or flaw:
                yield number, text, flaw


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
