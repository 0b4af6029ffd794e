"""Rows from two descriptions of APIs, botocore's services and Google's discovery documents: name as words → description."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from repro.data.pairs import Row
from repro.data.wording import get_package_folder, join_words, split_identifier, strip_html

SERVICES, CLOUD = "services", "cloud"
_CARRIER = re.compile(r"(Request|Message|Input|Response|Output|Result|Type)$")
_VERSION = re.compile(r"^v(\d+)(?:[._p](\d+))?(?:p\d+)?(alpha|beta)?(\d*)")
_MATURITY = {"alpha": 0, "beta": 1, None: 2}


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
            yield _service_row(name, operation, split_identifier(operation), body["documentation"])
    for shape, body in description["shapes"].items():
        for member, detail in body.get("members", {}).items():
            if "documentation" in detail:
                query = f"{split_identifier(_CARRIER.sub('', shape))} {split_identifier(member)}"
                yield _service_row(name, f"{shape}.{member}", query, detail["documentation"])


def _service_row(service: str, key: str, query: str, documentation: str) -> Row:
    return Row(f"{SERVICES}/{service}/{key}", query, strip_html(documentation), service, SERVICES)


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
                yield _cloud_row(api, f"{schema}.{member}", query, detail["description"])


def _iter_method_rows(api: str, path: str, resource: dict[str, Any]) -> Iterator[Row]:
    for method, body in sorted(resource.get("methods", {}).items()):
        if "description" in body:
            yield _cloud_row(api, f"{path}/{method}", split_identifier(f"{path}/{method}"), body["description"])
    for name, inner in sorted(resource.get("resources", {}).items()):
        yield from _iter_method_rows(api, f"{path}/{name}", inner)


def _cloud_row(api: str, key: str, query: str, description: str) -> Row:
    return Row(f"{CLOUD}/{api}/{key.lstrip('/')}", query, join_words(description), api, CLOUD)
