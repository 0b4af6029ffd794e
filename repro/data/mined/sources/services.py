"""Rows from botocore's service descriptions: name of an operation or member as words → its documentation."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repro.data.pairs import Row
from repro.data.wording import get_package_folder, split_identifier, strip_html

SOURCE = "services"
_CARRIER = re.compile(r"(Request|Message|Input|Response|Output|Result|Type)$")


def mine_services() -> Iterator[Row]:
    """Yield the operations, then the members of structures, of the newest API version of each service."""
    for service in sorted(path for path in (get_package_folder("botocore") / "data").iterdir() if path.is_dir()):
        versions = sorted(service.glob("*/service-2.json.gz"))
        if versions:
            yield from _iter_service_rows(service.name, versions[-1])


def _iter_service_rows(name: str, path: Path) -> Iterator[Row]:
    description = json.loads(gzip.decompress(path.read_bytes()))
    for operation, body in description["operations"].items():
        if "documentation" in body:
            yield _row(name, operation, split_identifier(operation), body["documentation"])
    for shape, body in description["shapes"].items():
        for member, detail in _list_documented_members(body):
            query = f"{split_identifier(_CARRIER.sub('', shape))} {split_identifier(member)}"
            yield _row(name, f"{shape}.{member}", query, detail["documentation"])


def _list_documented_members(shape: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for member, detail in shape.get("members", {}).items():
        if "documentation" in detail:
            yield member, detail


def _row(service: str, key: str, query: str, documentation: str) -> Row:
    return Row(f"{SOURCE}/{service}/{key}", query, strip_html(documentation), service, SOURCE)
