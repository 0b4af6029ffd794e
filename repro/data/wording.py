"""What every miner does to words: identifiers become phrases, markup becomes plain text, long texts are cut."""

from __future__ import annotations

import html
import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

MAX_DOCUMENT_WORDS = 256
MIN_DOCUMENT_WORDS = 4
MIN_QUERY_WORDS = 2
MAX_QUERY_WORDS = 40

_WORDS = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")
_TAG = re.compile(r"<[^<>]*>")
_PLAIN_ASCII = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}


class _Plain(dict[int, int | str]):
    """What `str.translate` makes of any letter: itself, or a space; what was asked for once is kept."""

    def __missing__(self, code: int) -> int | str:
        # a mark is a part of its letter: vowels of many scripts are written so
        letter = chr(code)
        self[code] = code if letter.isalnum() or unicodedata.category(letter).startswith("M") else " "
        return self[code]


_PLAIN = _Plain()
_PLAIN_BYTES = b"\0" + "".join(_PLAIN_ASCII[code] for code in range(1, 128)).encode() + bytes(128)
_TEXTS_AT_ONCE = 1024  # their letters fit into a processor's cache


def phrase(identifier: str) -> str:
    """Turn `CreateDBInstance`, `create_db_instance` or `create-db-instance` into "create db instance"."""
    # A run of capitals before a capitalised word ends one letter early: DBInstance is DB + Instance.
    spaced = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", identifier)
    return " ".join(_WORDS.findall(spaced)).lower()


def one_line(text: str) -> str:
    """Collapse white space and cuts to the longest document that is kept."""
    return " ".join(text.split()[:MAX_DOCUMENT_WORDS])


def strip_html(text: str) -> str:
    """Take tags and entities out and collapses white space."""
    plain = html.unescape(_TAG.sub(" ", text))
    return re.sub(r" ([.,;:)])", r"\1", one_line(plain))


@lru_cache(maxsize=2**15)  # A row passes several rules, a block of rows at a time.
def normalise(text: str) -> str:
    """Return the form in which two texts count as the same: case-folded letters with their marks and digits, single
    spaces.
    """
    if text.isascii():  # nearly all text of most corpora, and twice as fast
        return " ".join(text.translate(_PLAIN_ASCII).split())
    return " ".join(text.casefold().translate(_PLAIN).split())


def identity(text: str) -> str:
    """Return the form in which two texts are the same text: NFC, single spaces; "" if nothing in it is visible."""
    found = " ".join((text if text.isascii() else unicodedata.normalize("NFC", text)).split())
    return found if found.isprintable() or any(unicodedata.category(one)[0] not in "CZ" for one in found) else ""


OPENING, CLOSING = "\"'“‘«([{", ".,;:!?…\"'”’»)]}。，！？、；："
_AROUND_WORDS = re.compile(
    rf"(?<!\S)[{re.escape(OPENING)}]+(?=[^\s{re.escape(OPENING + CLOSING)}])"
    rf"|(?<=[^\s{re.escape(OPENING + CLOSING)}])[{re.escape(CLOSING)}]+(?!\S)"
)


def near_form(text: str) -> str:
    """Return the form in which two texts are near copies: case and the punctuation around words do not count.

    Signs, operators and symbols stay, so "−7" and "7" differ, and so do `x + y` and `x - y`.
    """
    return _AROUND_WORDS.sub("", identity(text).casefold())


_WITHOUT_SPACES = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
"""Characters of Thai, Lao, Burmese, Khmer, Japanese and Chinese, whose words stand without spaces."""


def count_words(text: str) -> int:
    """Return the number of words between single spaces; each character of a script without spaces is one more."""
    num_words = text.count(" ") + 1
    if text.isascii():
        return num_words
    return max(num_words, num_words - 1 + len(_WITHOUT_SPACES.findall(text)))


def normalise_all(texts: Sequence[str]) -> list[str]:
    """Return `normalise` of each text, computed on the letters of many of them at once."""
    found = []
    for start in range(0, len(texts), _TEXTS_AT_ONCE):
        found += _normalise_block(texts[start : start + _TEXTS_AT_ONCE])
    return found


def _normalise_block(texts: Sequence[str]) -> list[str]:
    """All texts in one string, between zero bytes; a blank stays where a letter or a digit stands before it."""
    is_plain = [text.isascii() and "\0" not in text for text in texts]
    joined = "\0".join([text if plain else "" for text, plain in zip(texts, is_plain, strict=True)])
    letters = np.frombuffer(joined.encode().translate(_PLAIN_BYTES), np.uint8)
    is_word = letters > ord(" ")
    is_kept = is_word | (letters == 0)
    is_kept[1:] |= is_word[:-1]
    found = letters[is_kept].tobytes().replace(b" \0", b"\0").rstrip(b" ").decode().split("\0")
    return [one if plain else normalise(text) for one, text, plain in zip(found, texts, is_plain, strict=True)]


def has_fair_length(query: str, document: str) -> bool:
    """Return whether both sides are long enough to mean something and the query short enough to be asked."""
    num_query_words = len(query.split())
    return MIN_QUERY_WORDS <= num_query_words <= MAX_QUERY_WORDS and len(document.split()) >= MIN_DOCUMENT_WORDS


def get_package_folder(module: str) -> Path:
    """Return the folder of an installed package without importing it; ValueError when it is not installed."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"the package {module!r} is not installed: text is mined from it; install requirements.lock")
    return Path(next(iter(spec.submodule_search_locations)))
