"""Format numbers, values and words for messages and tables. The lowest package: it imports nothing of `repro`."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import PurePath

GIB = 2**30
MAX_CHARACTERS = 80
ABSENT = "–"
"""The cell of a missing number."""
NARROW_SPACE = "\u202f"
"""Separates thousands."""
MINUS = "\N{MINUS SIGN}"
"""The sign of a negative number in tables, on pages and in pictures. CSV and JSON have a hyphen."""
REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
CONTEXT_NAMES = {"own": "in-corpus", "wrong": "out-of-corpus", "random": "random", "null": "null"}
"""The name on pages and in tables of each kind of context, by its stored value."""
SECONDS_PER_YEAR = 365.25 * 86_400

CONTROL_CHARACTERS = [*range(9), *range(11, 32), *range(127, 160)]
BIDIRECTIONAL_MARKS = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
REPLACEMENTS = dict.fromkeys([*CONTROL_CHARACTERS, *BIDIRECTIONAL_MARKS], REPLACEMENT)


def shorten(value: object, max_characters: int = MAX_CHARACTERS) -> str:
    """Return a value for a message: on one line, without control characters, cut after `max_characters`.

    A path is never cut, because its end identifies the file.
    """
    text = str(value)
    if len(text) > max_characters and not isinstance(value, PurePath):
        text = f"{text[: max_characters - 1]}…"
    return "".join(letter if letter.isprintable() else REPLACEMENT for letter in text)


def make_printable(text: str) -> str:
    """Return text that is safe to print on a terminal.

    Imported texts and paths may hold escape sequences that move the cursor, change colours or set the window title.
    These and the marks that reverse the writing direction are replaced.
    """
    return text.translate(REPLACEMENTS).encode("utf-8", "replace").decode()


def format_suggestion(word: str, known: Iterable[str], *, likeness: float = 0.8) -> str:
    """Return ", did you mean X?" if a known word is spelt almost like `word` or abbreviated by it, else "".

    For example, "lr" abbreviates "learning_rate".
    """
    candidates = list(known)
    abbreviated = [name for name in candidates if "".join(part[:1] for part in name.split("_")) == word]
    matches = get_close_matches(word, candidates, n=1, cutoff=likeness) or abbreviated
    return f", did you mean {matches[0]!r}?" if matches else ""


def count_noun(number: int, singular: str, plural: str | None = None) -> str:
    """Return a number with its noun: "1 run" or "2 runs". `plural` is needed if it is not the singular plus "s"."""
    return f"{number} {singular if number == 1 else plural or singular + 's'}"


def format_number(value: float | None, decimals: int = 1) -> str:
    """Return a number with fixed decimals and separated thousands, or a dash if it is missing."""
    if value is None:
        return ABSENT
    # adding zero turns -0.0 into 0.0
    return f"{round(value, decimals) + 0.0:,.{decimals}f}".replace(",", NARROW_SPACE).replace("-", MINUS)


def format_seconds(seconds: float | None) -> str:
    """Return a duration: 45 s, 12 min, 3.5 h, or 76 years from two years on. An unknown duration is an empty string."""
    if seconds is None:
        return ""
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds >= 2 * SECONDS_PER_YEAR:
        return f"{format_number(seconds / SECONDS_PER_YEAR, 0)} years"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{format_number(seconds / 3600)} h"


def format_bytes(num_bytes: float) -> str:
    """Return a number of bytes: 12 KiB, 99 MiB, 3.5 GiB."""
    if num_bytes >= GIB / 10:
        return f"{num_bytes / GIB:,.1f} GiB"
    return f"{num_bytes / 2**20:.0f} MiB" if num_bytes >= 2**20 else f"{num_bytes / 2**10:.0f} KiB"


def format_spans(numbers: Iterable[int]) -> str:
    """Return numbers as spans, for example "3–7, 9"."""
    spans: list[list[int]] = []
    for number in sorted(numbers):
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    return ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}–{span[-1]}" for span in spans)
