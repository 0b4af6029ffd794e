"""Damage bytes, JSON values and command lines, with a generator of a fixed seed."""

from collections.abc import Iterator
from random import Random
from typing import Any

ODD_VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, -4, 3.5, 1e308, 10**30, 10**5, "", "x", "16"),
    *("nan", "../../x", "/tmp/x", "a\nb", "\x00"),
    *("x" * 5000, "ü€\U0001f600", [], [1], {}, {"a": {}}, [[[[]]]], "-1", "mean", "cuda", "2024-01-01", float("nan")),
)
ODD_TEXTS: tuple[bytes, ...] = (
    *(b"", b"\n", b"{", b"}", b"[]", b"{}", b"null", b"3", b'"x"', b"\x00" * 64, b"\xff\xfe\x00", b"PK\x03\x04"),
    *(b"NaN", b"\x1f\x8b\x08\x00", b"[" * 30_000, b"{" * 30_000, b'{"a":' * 30_000, b"\x80\x04.", b"9" * 6000),
    *(b"1e400", b"ARROW1"),
)


def damage_bytes(whole: bytes, count: int, seed: str) -> Iterator[bytes]:
    """Yield files of other formats, then the whole file with cut, flipped, doubled and replaced parts."""
    yield from ODD_TEXTS
    random = Random(seed)
    for _ in range(max(0, count - len(ODD_TEXTS))):
        data = bytearray(whole)
        start, end = sorted(random.randrange(max(1, len(data))) for _ in range(2))
        match random.randrange(5):
            case 0:
                del data[start:]
            case 1:
                for _ in range(random.choice((1, 3, 50))):
                    data[random.randrange(len(data))] ^= 1 << random.randrange(8)
            case 2:
                del data[start:end]
            case 3:
                data[start:start] = data[start:end]
            case _:
                data[start:end] = random.randbytes(min(end - start, 4096))
        yield bytes(data)


def damage_words(verbs: dict[str, list[str]], count: int, seed: str) -> Iterator[list[str]]:
    """Yield command lines with known and unknown options and odd values.

    Args:
        verbs: the options of each command.
    """
    random = Random(seed)
    values = [str(value) for value in ODD_VALUES if str(value)] + ["table1", "table99", "smoke", "desk", "all", "-"]
    for _ in range(count):
        command = random.choice(list(verbs))
        words = command.split()
        for _ in range(random.randrange(1, 4)):
            option = random.choice([*verbs[command], "--mars", ""])
            words += [option] * bool(option) + [random.choice(values)] * random.choice((0, 1, 1, 1))
        yield words
