"""Detect the language of a user's texts by their stop words."""

from __future__ import annotations

import re
import runpy
from collections import Counter
from collections.abc import Sequence
from functools import cache

from repro.data.wording import get_package_folder

ENGLISH = "english"
MIN_STOP_WORD_SHARE = 0.1
"""Least share of stop words from which another language than English is detected."""
LANGUAGES = (
    *("danish", "dutch", "english", "french", "german", "italian", "norwegian", "portuguese", "russian", "spanish"),
    *("swedish", "turkish"),
)
"""Languages whose stop words bm25s has and which Snowball stems. Others are named with --language."""


@cache
def _load_stop_words() -> dict[str, frozenset[str]]:
    # run as a file, because bm25s loads JAX when it is imported
    lists = runpy.run_path(str(get_package_folder("bm25s") / "stopwords.py"))
    names = {language: "EN_PLUS" if language == ENGLISH else language.upper() for language in LANGUAGES}
    return {language: frozenset(lists[f"STOPWORDS_{name}"]) for language, name in names.items()}


def detect_language(texts: Sequence[str]) -> str:
    """Return the language with the largest share of stop words in `texts`. English if no other one is clear."""
    words = Counter(word for text in texts for word in re.findall(r"[^\W\d_]+", text.casefold()))
    total = max(1, words.total())
    shares = {
        language: sum(words[word] for word in stop_words) / total for language, stop_words in _load_stop_words().items()
    }
    best = max(shares, key=lambda language: shares[language])
    return best if shares[best] >= MIN_STOP_WORD_SHARE and shares[best] > shares[ENGLISH] else ENGLISH
