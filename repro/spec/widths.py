"""Widths of prefixes of a vector: as a run declares them, "8+16+32", and those that every vector is looked at in."""

from __future__ import annotations

from repro.storage.json_files import short

NARROWEST = 8
"""The narrowest prefix that is looked at unasked, as in Matryoshka Representation Learning (8, 16, … 2048)."""


def widths_in(text: str, whole: int, name: str, *, between: str = "+") -> tuple[int, ...]:
    """Return the widths that a text lists, "full" being the whole vector's.

    ValueError, under the `name` of who gave them, unless each is a number that divides `whole`, and they rise.
    """
    said, widths = f"{name}={short(repr(text))}", _widths(text, whole, name, between)
    misfits = [width for width in widths if not 1 <= width <= whole or whole % width]
    if misfits:
        raise ValueError(
            f"{said}: {short(misfits[0])} does not divide {whole}, the width of the vectors; choose others"
        )
    if list(widths) != sorted(set(widths)):
        raise ValueError(f"{said}: list each width once, from the narrowest to the widest")
    return widths


def prefixes_in(text: str, whole: int, name: str, *, between: str = ",") -> tuple[int, ...]:
    """Return the widths of prefixes that a text lists in any order, each once, from the narrowest to the widest.

    ValueError, under the `name` of who gave them, unless each is a number from 1 to `whole`.
    """
    widths = _widths(text, whole, name, between)
    misfits = [width for width in widths if not 1 <= width <= whole]
    if misfits:
        raise ValueError(
            f"{name}={short(repr(text))}: {short(misfits[0])} is no width of a prefix; the vectors have {whole} "
            f"dimensions, choose from 1 to {whole}"
        )
    return tuple(sorted(set(widths)))


def _widths(text: str, whole: int, name: str, between: str) -> tuple[int, ...]:
    """Return the numbers that a text joins, "full" being the whole width; ValueError for what is no number."""
    said, parts = f"{name}={short(repr(text))}", text.split(between)
    wrong = [part for part in parts if part != "full" and not (part.isascii() and part.isdigit())]
    if wrong:
        raise ValueError(f"{said}: {short(repr(wrong[0]))} is no width; join whole numbers by {between!r}")
    return tuple(whole if part == "full" else int(part) for part in parts)


def standard_widths(whole: int) -> tuple[int, ...]:
    """Return the widths that vectors are looked at in: powers of two from 8 on that divide the whole, and the whole."""
    powers = (NARROWEST * 2**n for n in range(whole.bit_length()))
    return (*(width for width in powers if width < whole and whole % width == 0), whole)


def written(widths: tuple[int, ...]) -> str:
    """Return widths as a run declares them."""
    return "+".join(map(str, widths))
