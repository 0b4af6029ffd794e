"""JSON that others may have written or broken: every complaint is one line that names the file."""

from __future__ import annotations

import json
import stat
from pathlib import Path, PurePath
from typing import Any, NoReturn

MOST_BYTES = 64 * 2**20
SHOWN = 80


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    ValueError for one that is not there, is no regular file (a FIFO would hang), is larger than MOST_BYTES, is not
    UTF-8, is malformed or nested too deeply, or holds NaN, an infinity or a number that becomes one.
    """
    return read_json_with_bytes(path)[0]


def read_json_with_bytes(path: Path) -> tuple[Any, bytes]:
    """Return the content of a JSON file and the bytes it was read from; ValueError as `read_json`."""
    check_regular(path, most_bytes=MOST_BYTES)
    try:
        data = path.read_bytes()
        return json.loads(data, parse_constant=_refuse, parse_float=_finite), data
    except RecursionError as error:
        raise ValueError(f"{path} is not JSON: it is nested too deeply") from error
    except ValueError as error:  # of which malformed JSON and text that is not UTF-8 are kinds
        raise ValueError(f"{path} is not JSON: {error}") from error


def json_object(path: Path) -> dict[str, Any]:
    """Return the object of a JSON file; ValueError as `read_json`, and when it holds something else."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise ValueError(f"{path} holds a {type(values).__name__}, not an object of fields")
    return values


def check_regular(path: Path, *, most_bytes: int | None = None) -> None:
    """ValueError when a file is not there, is no regular file (reading a FIFO or a device may never end), or is larger
    than `most_bytes`.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise ValueError(f"{short(path)} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(found.st_mode):
        kind = "a folder" if stat.S_ISDIR(found.st_mode) else "a FIFO, socket or device"
        raise ValueError(f"{short(path)} is {kind}, expected a file")
    if most_bytes is not None and found.st_size > most_bytes:
        raise ValueError(f"{path} has {found.st_size} bytes, more than the {most_bytes} that are read of such a file")


def short(value: object, most: int = SHOWN) -> str:
    """Return a value as it may stand in a message: one line, no control character, cut when it is long.

    A path is never cut: the end of it says which file is meant.
    """
    words = str(value) if isinstance(value, PurePath) else str(value)[: most + 1]
    text = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in words)
    return text if len(text) <= most or isinstance(value, PurePath) else f"{text[: most - 1]}…"


CONTROLS = [*range(9), *range(11, 32), *range(127, 160)]
BIDIRECTIONAL = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
HIDDEN = dict.fromkeys([*CONTROLS, *BIDIRECTIONAL], "\N{REPLACEMENT CHARACTER}")


def visible(text: str) -> str:
    """Return text as it may reach a terminal: escape sequences, and what turns the direction of writing, replaced.

    Texts and paths are others': they may hold what moves the cursor, changes colours or the title of the window.
    """
    return text.translate(HIDDEN).encode("utf-8", "replace").decode()


def _refuse(word: str) -> NoReturn:
    raise ValueError(f"{word} is no number that can be meant")


def _finite(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"{short(text)} is larger than any number")
    return value
