"""Rows from functions of installed packages, parsed with `ast`: first paragraph of the docstring → remaining code.

The format follows CodeSearchNet (Husain et al. 2019) for one language. White space of the code is collapsed.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from repro.data.mined.sources import parse_python
from repro.data.mined.sources.docstrings import (
    MIN_SUMMARY_WORDS,
    PACKAGES,
    iter_documented_files,
    iter_documented_nodes,
    strip_markup,
)
from repro.data.pairs import Row
from repro.data.wording import join_words

SOURCE = "functions"
MIN_LINES = 3
"""Smallest function without its docstring. Shorter ones only call another, and CodeSearchNet drops them too."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def mine_functions() -> Iterator[Row]:
    """Yield the documented functions and methods of all packages. The domain is the package."""
    for package in PACKAGES:
        for _, name, code in iter_documented_files(package):
            yield from _iter_file_rows(code, name, package)


def _iter_file_rows(code: str, name: str, domain: str) -> Iterator[Row]:
    lines = code.splitlines()
    for owner, node in iter_documented_nodes(parse_python(code), name):
        docstring = ast.get_docstring(node)
        if docstring and isinstance(node, _Function):
            query = strip_markup(docstring.partition("\n\n")[0]).rstrip(".")
            body = strip_docstring(node, lines)
            if len(query.split()) >= MIN_SUMMARY_WORDS and len(body) >= MIN_LINES:
                yield Row(f"{SOURCE}/{owner}", query, join_words(" ".join(body)), domain, SOURCE)


def strip_docstring(node: _Function, lines: list[str]) -> list[str]:
    """Return the lines of a function from its `def` on, without its docstring and empty lines."""
    docstring = node.body[0]
    first, last = docstring.lineno, docstring.end_lineno or docstring.lineno
    # line numbers begin with 1
    numbered = enumerate(lines[node.lineno - 1 : node.end_lineno], node.lineno)
    return [line.strip() for number, line in numbered if line.strip() and not first <= number <= last]
