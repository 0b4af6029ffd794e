"""Mine all sources into clean rows: plausible lengths, unique ids, no repeated (query, document) pair in a domain.

Manifests pin the rows of each wheel by a hash. `repro.data.mined.splits` later divides the rows into training and
evaluation.
"""

from __future__ import annotations

import gc
import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from repro.data.mined.sources import (
    apis,
    builds,
    commands,
    docstrings,
    home_assistant,
    medical,
    merge_small_domains,
    modules,
    schemas,
)
from repro.data.pairs import Row
from repro.data.wording import has_fair_length, keep_words

# about 80 WordPiece tokens of prose, which is more than the models of both scales read
MAX_DOCUMENT_WORDS = 64
Miner = Callable[[], Iterable[Row]]

MINERS: dict[str, Miner] = {
    apis.SERVICES: apis.mine_services,
    modules.SOURCE: modules.mine_modules,
    docstrings.SOURCE: docstrings.mine_packages,
    apis.CLOUD: apis.mine_cloud,
    medical.PHENOTYPES: medical.mine_phenotypes,
    medical.DIAGNOSES: medical.mine_diagnoses,
}

ADDED: dict[str, Miner] = {
    commands.SOURCE: commands.mine_commands,
    schemas.PAYMENTS: schemas.mine_payments,
    schemas.HEALTH: schemas.mine_health,
    home_assistant.SOURCE: home_assistant.mine_homes,
    builds.SOURCE: builds.mine_builds,
    schemas.CONTAINERS: schemas.mine_containers,
}
"""Additional sources of the corpus `wide`, from wheels that are not installed."""

MANIFEST_FOLDER = Path(__file__).parent / "manifests"
FUNCTIONS_FOLDER = MANIFEST_FOLDER / "functions"
WIDE_FOLDER = MANIFEST_FOLDER / "wide"
MANY_FOLDER = MANIFEST_FOLDER / "many"
"""Separate folders, because all files directly in `MANIFEST_FOLDER` enter the key of `desk` and `desk-views`."""
PREFIXES = {**docstrings.PACKAGES, "ansible.builtin": "ansible-core"}
"""Wheels by the common prefix of their domains, for sources with several wheels. Other domains are of the last wheel."""


class Mined(NamedTuple):
    """The clean rows of one source in a fixed order."""

    source: str
    rows: list[Row]


def mine(source: str) -> Mined:
    """Mine one source. ValueError if its package is not installed."""
    return mine_rows(source, MINERS[source]())


def mine_rows(source: str, rows: Iterable[Row]) -> Mined:
    """Clean the rows that a miner yields."""
    was_enabled = gc.isenabled()
    # the garbage collector would traverse all syntax trees, which takes a third of the time and frees nothing
    gc.disable()
    try:
        clean = list(_make_ids_unique(_clean(rows)))
    finally:
        if was_enabled:
            gc.enable()
    return Mined(source, clean)


def cut_document(row: Row) -> Row:
    """Truncate the document of a row to `MAX_DOCUMENT_WORDS` words."""
    return row._replace(document=" ".join(row.document.split()[:MAX_DOCUMENT_WORDS]))


def hash_rows(rows: Iterable[Row]) -> str:
    """Return the sha256 of ids, texts and domains in order."""
    digest = hashlib.sha256()
    for row in rows:
        digest.update(f"{row.id}\x1f{row.query}\x1f{row.document}\x1f{row.domain}\n".encode(errors="surrogateescape"))
    return digest.hexdigest()


def mine_all() -> list[Mined]:
    """Mine all sources in the order of `MINERS`. ValueError if one is not installed or differs from its manifest."""
    return verify_manifests([mine(source) for source in MINERS])


def mine_added_sources() -> list[Mined]:
    """Mine the additional sources of `wide`. ValueError if a wheel cannot be fetched or differs from its manifest."""
    mined = [mine_rows(source, merge_small_domains(miner())) for source, miner in ADDED.items()]
    return verify_manifests(mined, WIDE_FOLDER)


def mine_functions() -> Mined:
    """Mine the functions of all packages. ValueError if one is not installed or differs from its manifest."""
    mined = mine_rows(docstrings.FUNCTIONS, docstrings.mine_functions())
    return verify_manifests([mined], FUNCTIONS_FOLDER)[0]


def verify_manifests(mined: list[Mined], folder: Path = MANIFEST_FOLDER) -> list[Mined]:
    """Return mined rows if they are those of the committed manifests. ValueError with the wheels that differ otherwise."""
    differences = []
    for source in mined:
        manifests = read_manifest(source.source, folder)
        rows_by_wheel = _group_by_wheel(source.rows, [manifest["wheel"] for manifest in manifests])
        for manifest, rows in zip(manifests, rows_by_wheel, strict=True):
            if hash_rows(rows) != manifest["sha256"]:
                wheel = f"{source.source}: {manifest['wheel']} {manifest['version']}"
                differences.append(f"{wheel} has {manifest['num_rows']} rows, {len(rows)} or others were found")
    if differences:
        raise ValueError(f"mined text differs ({'; '.join(differences)}): install the versions of requirements.lock")
    return mined


def read_manifest(source: str, folder: Path = MANIFEST_FOLDER) -> list[dict[str, Any]]:
    """Return the wheels of a source: version, licence, number of rows and domains, and a hash of the rows in order."""
    return list(json.loads((folder / f"{source}.json").read_text(encoding="utf-8")))


def _group_by_wheel(rows: Sequence[Row], wheels: Sequence[str]) -> Iterable[list[Row]]:
    wheel_by_domain = {domain: _get_wheel(domain, wheels) for domain in {row.domain for row in rows}}
    groups: dict[str, list[Row]] = {wheel: [] for wheel in wheels}
    for row in rows:
        groups[wheel_by_domain[row.domain]].append(row)
    return groups.values()


def _get_wheel(domain: str, wheels: Sequence[str]) -> str:
    matching = (PREFIXES[prefix] for prefix in PREFIXES if f"{domain}.".startswith(f"{prefix}."))
    return next((wheel for wheel in matching if wheel in wheels), wheels[-1])


def _clean(rows: Iterable[Row]) -> Iterator[Row]:
    seen: set[tuple[str, str, str]] = set()
    for row in rows:
        key = (row.domain, keep_words(row.query), keep_words(row.document))
        if has_fair_length(key[1], key[2]) and key not in seen:
            seen.add(key)
            yield row


def _make_ids_unique(rows: Iterable[Row]) -> Iterator[Row]:
    """Append a number to repeated ids, since overloads of a function share its name."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts[row.id] += 1
        yield row if counts[row.id] == 1 else row._replace(id=f"{row.id}#{counts[row.id]}")
