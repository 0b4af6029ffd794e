"""Rows from Google's discovery documents: name of a method or schema property as words → its description."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repro.data.pairs import Row
from repro.data.wording import get_package_folder, join_words, split_identifier

SOURCE = "cloud"
_VERSION = re.compile(r"^v(\d+)(?:[._p](\d+))?(?:p\d+)?(alpha|beta)?(\d*)")
_MATURITY = {"alpha": 0, "beta": 1, None: 2}


def mine_cloud() -> Iterator[Row]:
    """Yield methods, then schema properties, of the best version of each API: stable before beta, then the newest."""
    folder = get_package_folder("googleapiclient") / "discovery_cache" / "documents"
    best: dict[str, tuple[tuple[int, ...], Path]] = {}
    for path in sorted(folder.glob("*.json")):
        name, _, version = path.stem.partition(".")
        rank = _get_version_rank(version)
        if rank is not None and (name not in best or rank > best[name][0]):
            best[name] = (rank, path)
    for name, (_, path) in best.items():
        yield from _iter_api_rows(name, json.loads(path.read_bytes()))


def _get_version_rank(version: str) -> tuple[int, ...] | None:
    match = _VERSION.match(version)
    if match is None:
        return None
    major, minor, maturity, attempt = match.groups()
    return _MATURITY[maturity], int(major), int(minor or 0), int(attempt or 0)


def _iter_api_rows(api: str, description: dict[str, Any]) -> Iterator[Row]:
    yield from _iter_method_rows(api, "", description)
    for schema, body in sorted(description.get("schemas", {}).items()):
        for member, detail in body.get("properties", {}).items():
            if "description" in detail:
                query = f"{split_identifier(schema)} {split_identifier(member)}"
                yield _row(api, f"{schema}.{member}", query, detail["description"])


def _iter_method_rows(api: str, path: str, resource: dict[str, Any]) -> Iterator[Row]:
    for method, body in sorted(resource.get("methods", {}).items()):
        if "description" in body:
            yield _row(api, f"{path}/{method}", split_identifier(f"{path}/{method}"), body["description"])
    for name, inner in sorted(resource.get("resources", {}).items()):
        yield from _iter_method_rows(api, f"{path}/{name}", inner)


def _row(api: str, key: str, query: str, description: str) -> Row:
    return Row(f"{SOURCE}/{api}/{key.lstrip('/')}", query, join_words(description), api, SOURCE)
