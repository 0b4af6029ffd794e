"""Text cleaning: identifiers to phrases, markup to plain text, truncation, and normal forms for comparison."""

from __future__ import annotations

import html
import re
import unicodedata
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

MAX_DOCUMENT_WORDS = 256
MIN_DOCUMENT_WORDS = 4
MIN_QUERY_WORDS = 2
MAX_QUERY_WORDS = 40

_WORDS = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")
_TAG = re.compile(r"<[^<>]*>")
_PLAIN_ASCII = {code: chr(code).lower() if chr(code).isalnum() else " " for code in range(128)}


class _PlainTable(dict[int, int | str]):
    """Table for `str.translate` that maps letters, marks and digits to themselves and the rest to spaces.

    It caches each character on first use.
    """

    def __missing__(self, code: int) -> int | str:
        # a combining mark belongs to its letter, for example a vowel in many scripts
        letter = chr(code)
        self[code] = code if letter.isalnum() or unicodedata.category(letter).startswith("M") else " "
        return self[code]


_PLAIN = _PlainTable()


def split_identifier(identifier: str) -> str:
    """Turn `CreateDBInstance`, `create_db_instance` or `create-db-instance` into "create db instance"."""
    # A run of capitals before a capitalised word ends one letter early: DBInstance is DB + Instance.
    split = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1 \2", identifier)
    return " ".join(_WORDS.findall(split)).lower()


def join_words(text: str) -> str:
    """Collapse white space, and truncate to `MAX_DOCUMENT_WORDS` words."""
    return " ".join(text.split()[:MAX_DOCUMENT_WORDS])


def strip_html(text: str) -> str:
    """Remove tags, resolve entities and collapse white space."""
    plain = html.unescape(_TAG.sub(" ", text))
    return re.sub(r" ([.,;:)])", r"\1", join_words(plain))


# the same texts pass several rules, block by block
@lru_cache(maxsize=2**15)
def keep_words(text: str) -> str:
    """Return the normal form of a text: case-folded letters with marks, digits, and single spaces."""
    # a shortcut for ASCII, which is twice as fast
    if text.isascii():
        return " ".join(text.translate(_PLAIN_ASCII).split())
    return " ".join(text.casefold().translate(_PLAIN).split())


def normalize_text(text: str) -> str:
    """Return a text in NFC with single spaces. "" if it has no visible character."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", text)
    text = " ".join(text.split())
    is_visible = text.isprintable() or any(unicodedata.category(letter)[0] not in "CZ" for letter in text)
    return text if is_visible else ""


MAX_INVISIBLE_CHARACTERS = 64
"""Length up to which a text that is not white space is checked for visible characters."""


def is_empty(text: str) -> bool:
    """Return whether a text has no visible character: nothing, white space, or marks such as a zero-width space."""
    return not text.strip() or (
        len(text) <= MAX_INVISIBLE_CHARACTERS and not text.isascii() and not normalize_text(text)
    )


OPENING = "\"'“‘„‚«([{¿¡「『《【"
CLOSING = ".,;:!?…\"'”’“‘»)]}。，！？、；：؟،؛।」』》】"
_AROUND_WORDS = re.compile(
    rf"(?<!\S)[{re.escape(OPENING)}]+(?=[^\s{re.escape(OPENING + CLOSING)}])"
    rf"|(?<=[^\s{re.escape(OPENING + CLOSING)}])[{re.escape(CLOSING)}]+(?!\S)"
    # French has a space in front of it
    r"|(?<=\S) [?!:;]+$"
)
_SAME_SPELLING = {ord("’"): "'", ord("–"): "-"} | dict.fromkeys(
    # soft hyphen, zero-width space, word joiner, byte-order mark, and marks of the direction of writing
    [0xAD, 0x200B, 0x2060, 0xFEFF, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
)


def normalize_loosely(text: str) -> str:
    """Return a form for the detection of near copies, without case, punctuation around words and invisible characters.

    Full-width and other compatible forms of a character are one (NFKC). Signs, operators and symbols stay, so "−7" differs
    from "7", and `x + y` from `x - y`.
    """
    if not text.isascii():
        text = unicodedata.normalize("NFKC", text.translate(_SAME_SPELLING))
    return _AROUND_WORDS.sub("", normalize_text(text).casefold())


PROMPT = re.compile(r"query:\s+", re.IGNORECASE)
"""Prompt of some models, which files of their training pairs contain."""


@lru_cache(maxsize=2**15)
def identify_text(text: str) -> str:
    """Return the identity of a user's text. Texts with the same identity count as one wherever texts are compared.

    It decides the hold-out, the contamination check, the known positives of a batch and the mining of negatives. It is
    `normalize_loosely` without a leading "query: ".
    """
    text = PROMPT.sub("", normalize_text(text), count=1) if PROMPT.match(text.lstrip()) else text
    return normalize_loosely(text) or normalize_text(text).casefold()


def has_fair_length(query: str, document: str) -> bool:
    """Return whether query and document have a plausible length."""
    num_query_words = len(query.split())
    return MIN_QUERY_WORDS <= num_query_words <= MAX_QUERY_WORDS and len(document.split()) >= MIN_DOCUMENT_WORDS


def get_package_folder(module: str) -> Path:
    """Return the folder of an installed package without importing it. ValueError if it is not installed."""
    spec = find_spec(module)
    if spec is None or not spec.submodule_search_locations:
        raise ValueError(f"the package {module!r} is not installed: install requirements.lock")
    return Path(next(iter(spec.submodule_search_locations)))
