"""Rows from functions of installed packages, parsed with `ast`: first paragraph of the docstring → remaining code.

The format follows CodeSearchNet (Husain et al. 2019) for one language. White space of the code is collapsed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from pathlib import Path

from repro.data.mined.sources.docstrings import MIN_SUMMARY_WORDS, PACKAGES, is_mined, iter_documented_nodes, plain
from repro.data.pairs import Row
from repro.data.wording import get_package_folder, one_line

SOURCE = "functions"
MIN_LINES = 3
"""Smallest function without its docstring. Shorter ones only call another, and CodeSearchNet drops them too."""
_Function = ast.FunctionDef | ast.AsyncFunctionDef


def mine_functions() -> Iterator[Row]:
    """Yield the documented functions and methods of all packages. The domain is the package."""
    for module in PACKAGES:
        root = get_package_folder(module)
        for path in sorted(root.rglob("*.py")):
            inside = path.relative_to(root)
            if is_mined(inside):
                yield from _get_rows_of_file(path, ".".join([module, *inside.with_suffix("").parts]), module)


def _get_rows_of_file(path: Path, name: str, domain: str) -> Iterator[Row]:
    text = path.read_text(encoding="utf-8")
    if '"""' not in text and "'''" not in text:
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        tree = ast.parse(text)
    lines = text.splitlines()
    for owner, node in iter_documented_nodes(tree, name):
        docstring = ast.get_docstring(node)
        if docstring and isinstance(node, _Function):
            query = plain(docstring.partition("\n\n")[0]).rstrip(".")
            code = strip_docstring(node, lines)
            if len(query.split()) >= MIN_SUMMARY_WORDS and len(code) >= MIN_LINES:
                yield Row(f"{SOURCE}/{owner}", query, one_line(" ".join(code)), domain, SOURCE)


def strip_docstring(node: _Function, lines: list[str]) -> list[str]:
    """Return the lines of a function from its `def` on, without its docstring and empty lines."""
    first = node.body[0]
    inside = range(first.lineno, (first.end_lineno or first.lineno) + 1)
    found = (number for number in range(node.lineno, (node.end_lineno or node.lineno) + 1) if number not in inside)
    return [lines[number - 1].strip() for number in found if lines[number - 1].strip()]
