"""Rows from ansible's documentation: short description → description of a module, module and option → option text."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repro.data.mined.sources import join_lines, parse_yaml
from repro.data.pairs import Row
from repro.data.wording import get_package_folder, join_words, split_identifier

SOURCE = "modules"
# generated from one template each: thousands of modules that differ in one word
GENERATED_COLLECTIONS = frozenset({"fortinet.fortimanager", "fortinet.fortios"})

_DOCUMENTATION = re.compile(r"^DOCUMENTATION\s*=\s*([ruRU]*(\"\"\"|''').*?\2)", re.DOTALL | re.MULTILINE)
_MACRO = re.compile(r"\b[A-Z]+\(([^()]*)\)")


def mine_modules() -> Iterator[Row]:
    """Yield the rows of all modules. Collections and files are sorted by name."""
    for collection, folder in _iter_collections():
        for path in sorted(folder.rglob("*.py")):
            match = _DOCUMENTATION.search(path.read_text(encoding="utf-8"))
            # A few modules have documentation that is invalid YAML. The manifest pins the number of rows.
            if match and (documentation := parse_yaml(ast.literal_eval(match[1]))):
                module = path.relative_to(folder).with_suffix("").as_posix()
                yield from _iter_module_rows(collection, module, documentation)


def _iter_collections() -> Iterator[tuple[str, Path]]:
    yield "ansible.builtin", get_package_folder("ansible") / "modules"
    root = get_package_folder("ansible_collections")
    for folder in sorted(root.glob("*/*/plugins/modules")):
        name = ".".join(folder.relative_to(root).parts[:2])
        if name not in GENERATED_COLLECTIONS:
            yield name, folder


def _iter_module_rows(collection: str, module: str, documentation: dict[str, Any]) -> Iterator[Row]:
    key = f"{SOURCE}/{collection}/{module}"
    summary = _strip_markup(documentation.get("short_description"))
    yield Row(key, summary.rstrip("."), _strip_markup(documentation.get("description")), collection, SOURCE)
    options = documentation.get("options")
    for option, detail in options.items() if isinstance(options, dict) else ():
        if isinstance(detail, dict):
            query = f"{split_identifier(module.rpartition('/')[2])} {split_identifier(str(option))}"
            yield Row(f"{key}/{option}", query, _strip_markup(detail.get("description")), collection, SOURCE)


def _strip_markup(value: object) -> str:
    """Join paragraphs, and replace markup such as C(name) and O(state=present) by its content."""
    return join_words(_MACRO.sub(r"\1", join_lines(value)))
