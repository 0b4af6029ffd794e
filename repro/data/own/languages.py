"""Stop words of languages, and detection of the language of a user's texts by them."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Sequence
from functools import cache

from repro.data.wording import get_package_folder

ENGLISH = "english"
MAX_TEXTS = 8_192
MIN_STOP_WORD_SHARE = 0.1
"""Least share of stop words from which another language than English is detected."""
LANGUAGES = (
    *("danish", "dutch", "english", "french", "german", "italian", "norwegian", "portuguese", "russian", "spanish"),
    *("swedish", "turkish"),
)
"""Languages whose stop words bm25s has and which Snowball stems. Others are named with --language."""


@cache
def load_stop_words(language: str) -> frozenset[str]:
    """Return the stop words of a language, or none if bm25s has no list of them."""
    # run as a file, because bm25s loads JAX when it is imported
    lists = runpy.run_path(str(get_package_folder("bm25s") / "stopwords.py"))
    name = "en" if language == ENGLISH else language
    return frozenset(lists.get(f"STOPWORDS_{name.upper()}", ()))


def space_evenly(count: int) -> range:
    """Return at most `MAX_TEXTS` evenly spaced rows of `count`, because the first texts may be of one domain."""
    return range(0, count, 1 + count // MAX_TEXTS)


def detect_language(texts: Sequence[str]) -> str:
    """Return the language with the largest share of stop words in `texts`. English if no other one is clear."""
    sample = (texts[row] for row in space_evenly(len(texts)))
    words = Counter(word for text in sample for word in re.findall(r"[^\W\d_]+", text.casefold()))
    total = max(1, words.total())
    shares = {
        language: sum(words[word] for word in load_stop_words("en_plus" if language == ENGLISH else language)) / total
        for language in LANGUAGES
    }
    best = max(shares, key=lambda language: shares[language])
    return best if shares[best] >= MIN_STOP_WORD_SHARE and shares[best] > shares[ENGLISH] else ENGLISH
