"""One module per kind of text. Each yields rows from the files of wheels without importing them."""

from __future__ import annotations

import ast
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import yaml

from repro.data.pairs import Row

MIN_ROWS_PER_DOMAIN = 64
# the compiled loader gives the same content ten times as fast
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def merge_small_domains(rows: Iterable[Row], rest: str | None = None) -> Iterator[Row]:
    """Yield the rows. Domains with fewer than `MIN_ROWS_PER_DOMAIN` rows become `rest`, or `….others` of their source."""
    all_rows = list(rows)
    sizes = Counter(row.domain for row in all_rows)
    for row in all_rows:
        is_small = sizes[row.domain] < MIN_ROWS_PER_DOMAIN
        yield row._replace(domain=rest or f"{row.source}.others") if is_small else row


def parse_python(code: str) -> ast.Module:
    """Parse a module without warnings about its syntax, such as invalid escapes in docstrings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SyntaxWarning)
        return ast.parse(code)


def parse_yaml(text: str) -> dict[str, Any]:
    """Parse a mapping in YAML. Return an empty one for anything else, also for invalid YAML."""
    try:
        content = yaml.load(text, Loader=_LOADER)
    except yaml.YAMLError:
        return {}
    return content if isinstance(content, dict) else {}


def join_lines(value: object) -> str:
    """Return a text, or the lines of a list joined. "" if it is missing."""
    return " ".join(map(str, value)) if isinstance(value, list) else str(value or "")
