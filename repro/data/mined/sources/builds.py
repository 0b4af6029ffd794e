"""Rows from CMake's manual: first sentence of a section → its rest, or name of the section → its text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from repro.data.mined.sources.docstrings import MIN_SUMMARY_WORDS, strip_markup
from repro.data.mined.wheels import iter_wheel_texts
from repro.data.pairs import Row
from repro.data.wording import MIN_DOCUMENT_WORDS, split_identifier

SOURCE = "builds"
KINDS = {"prop_tgt": "target property", "prop_sf": "source file property", "prop_gbl": "global property"}
KINDS |= {"prop_dir": "directory property", "prop_test": "test property", "prop_fs": "file set property"}
KINDS |= {"prop_inst": "installed file property", "prop_cache": "cache entry property"}
KINDS |= {"envvar": "environment variable", "cpack_gen": "package generator"}
_HEADING = re.compile(r"^(?=\S)(.+)\n([-=~^\"*#.]{3,})[ ]*$", re.MULTILINE)
_BLOCK = re.compile(
    r"^( *)\.\. (?:code-block|parsed-literal|only|include|contents|toctree|productionlist|\|).*\n(?:\1 +.*\n|[ ]*\n)*",
    re.MULTILINE,
)
_DIRECTIVE = re.compile(r"^ *\.\. (?:[\w:-]*::|_).*$|^ *[*-] ", re.MULTILINE)
_POINTERS = ("See Also", "See also")
_TARGET = re.compile(r"(?::[\w:+-]+:)?`([^`<]*?) ?<[^`>]*>`_{0,2}")


def mine_builds() -> Iterator[Row]:
    """Yield the sections of all pages except release notes. The domain is the kind of page."""
    for name, text in iter_wheel_texts("cmake", "cmake/data/share/cmake-*/Help/*/*.rst"):
        kind, page = PurePosixPath(name).parts[5], PurePosixPath(name).stem
        if kind == "release":
            continue
        for number, (title, body) in enumerate(_sections(text)):
            if title in _POINTERS:
                continue
            subject = f"{split_identifier(page)} {KINDS.get(kind, split_identifier(kind))}"
            query, document = _make_pair(subject, title if number else "", body)
            yield Row(f"{SOURCE}/{kind}/{page}/{number}", query, document, f"{SOURCE}.{kind}", SOURCE)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """Yield title and text of each section of a page."""
    _, *parts = _HEADING.split(text)
    for title, _, body in zip(parts[::3], parts[1::3], parts[2::3], strict=True):
        yield strip_markup(title), body


def _make_pair(subject: str, title: str, body: str) -> tuple[str, str]:
    prose = _TARGET.sub(r"\1", _DIRECTIVE.sub(" ", _BLOCK.sub("\n", f"{body}\n")))
    summary, _, rest = strip_markup(prose).partition(". ")
    name = f"{subject} {title}".strip()
    if len(rest.split()) < MIN_DOCUMENT_WORDS:
        return name, f"{summary}. {rest}".strip()
    return (summary if len(summary.split()) >= MIN_SUMMARY_WORDS else f"{name} {summary}"), rest
