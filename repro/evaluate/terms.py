"""Split texts into terms for BM25, in any script: words with their marks, characters, operators and symbols.

1. Texts are normalised (NFKC) and case-folded. Decomposed accents, full-width letters and ß are equal to é, a and ss.
   Invisible characters inside words, such as soft hyphens and joiners, are removed.
2. A word is a run of letters, marks and digits of any length. "c++" and "c#" keep their symbols.
3. In scripts without spaces between words (Chinese, Japanese, Thai, …) each character with its marks is a term.
4. Emoji, currency and mathematical symbols are terms. Other operators are terms if they stand alone or in groups.
5. Words are stemmed by the Snowball stemmer of a language, or not at all.
6. Stop words of the language are dropped from queries, except from a query that has no other words.
"""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import Stemmer

from repro.data.own.languages import load_stop_words

SPACELESS = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"  # Thai, Lao, Myanmar, Khmer
    "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f"  # Japanese
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Chinese
)
OPERATORS = r"!&*/%^?:@#$\\=<>|~+.\-"
"""Symbols that are a term as a group of two or more, or alone between spaces."""
FIRST_CODE = 128
"""Symbols of ASCII are operators."""
_CATEGORIES = "".join(name[0] for name in map(unicodedata.category, map(chr, range(FIRST_CODE, sys.maxunicode + 1))))
"""The main category of each character from `FIRST_CODE` on, as one letter."""


def _format_ranges(category: str) -> str:
    """Return the characters of a main category as ranges for a character class of a regular expression."""
    # A regular expression over the letters is faster than a loop over a million characters at every start.
    runs = re.finditer(f"{category}+", _CATEGORIES)
    return "".join(f"\\U{FIRST_CODE + run.start():08x}-\\U{FIRST_CODE + run.end() - 1:08x}" for run in runs)


_MARKS = _format_ranges("M")
_WORD = rf"(?:[^\W{SPACELESS}]+[{_MARKS}]*)+(?:(?:\+\+|#)(?!\w))?"
WORD = re.compile(rf"[{SPACELESS}][{_MARKS}]*|{_WORD}")
_OPERATOR = rf"(?<!\S)[{OPERATORS}](?!\S)|[{OPERATORS}]{{2,}}"
TERM = re.compile(rf"{WORD.pattern}|{_OPERATOR}|[+=<>|~$]|[{_format_ranges('S')}]")
DOTS = re.compile(r"[.?!\-*]+")
"""Ends of sentences, dashes and rules, which are not operators."""
INVISIBLE = re.compile("[\u00ad\u034f\u200c\u200d\u2060\ufe00-\ufe0f\ufeff]")
"""Soft hyphens, joiners and variation selectors. They change how a word is drawn, not which word it is."""
TRADEMARK = re.compile("[\u2120\u2122]")
"""Signs that NFKC turns into letters, which would become a part of the word before them."""
NO_STEMMER = "none"


def split_terms(text: str) -> list[str]:
    """Return the terms of a text, in order."""
    visible = INVISIBLE.sub("", TRADEMARK.sub(" ", text))
    # Case folding may return decomposed characters, so the text is normalised after it.
    terms = TERM.findall(unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", visible).casefold()))
    return [term for term in terms if len(term) == 1 or not DOTS.fullmatch(term)]


def import_bm25s() -> Any:
    """Return the module bm25s, imported as if JAX was not installed.

    On import it computes a top-k with JAX, which reserves three quarters of the memory of a GPU. We rank ourselves.
    """
    if "jax" in sys.modules:
        return import_module("bm25s")
    # None makes `import jax` fail
    sys.modules["jax"] = None  # type: ignore[assignment]
    try:
        return import_module("bm25s")
    finally:
        del sys.modules["jax"]


def check_language(language: str) -> None:
    """Raise ValueError if there is no stemmer of a language. "none" is valid and does not stem."""
    languages = [*Stemmer.algorithms(), NO_STEMMER]
    if language not in languages:
        raise ValueError(f"language={language!r} has no Snowball stemmer; choose one of {languages}")


@cache
def _list_stop_terms(language: str) -> frozenset[str]:
    """Return the stop words of a language that are one term."""
    terms = map(split_terms, load_stop_words(language))
    return frozenset(each[0] for each in terms if len(each) == 1)


def tokenize_terms(texts: Sequence[str], language: str = "english", *, drops_stop_words: bool = False) -> Any:
    """Return the terms as the `Tokenized` of bm25s, stemmed by the rules of a language ("none": as they are)."""
    check_language(language)
    stop_terms = _list_stop_terms(language) if drops_stop_words else frozenset()
    stem = str if language == NO_STEMMER else Stemmer.Stemmer(language).stemWord
    # Each distinct term is stemmed once, since the stemmer is slower than a dictionary.
    term_ids: dict[str, int] = {}
    vocabulary: dict[str, int] = {}
    ids = []
    for text in texts:
        terms = split_terms(text)
        terms = [term for term in terms if term not in stop_terms] or terms
        for term in terms:
            if term not in term_ids:
                term_ids[term] = vocabulary.setdefault(stem(term), len(vocabulary))
        ids.append([term_ids[term] for term in terms])
    return import_bm25s().tokenization.Tokenized(ids=ids, vocab=vocabulary)
