"""Verdicts kept from one command to the next: the same claims on the same records are judged once.

A file for each experiment, scale and owner of the records. Its key is a digest of all that decides: the source and the
versions behind the judge, the claims and runs as they are declared, and the bytes of every record that has a say (the
wanted ones, and all published ones, from which the judge knows how much seeds move a number). A file that is not there,
is damaged or has another key is no answer, and what cannot be written is not kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import asdict, dataclass, fields
from functools import cache, lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from repro.claims.estimate import Estimate
from repro.claims.judge import Judgement
from repro.spec import Claim, Run, Unit
from repro.spec.identity import run_id
from repro.storage.atomic import whole_file
from repro.storage.digests import sha256_of, source_digest
from repro.storage.json_files import json_object
from repro.storage.paths import PACKAGE, SOURCES

DECIDING_FOLDERS = (PACKAGE, PACKAGE / "claims", PACKAGE / "records", PACKAGE / "spec", SOURCES / "experiments")
"""The folders whose source decides a verdict (of the package itself, that of seeds); a claim may hold a function, so
those that declare claims, too."""
DECIDING_PACKAGES = ("numpy", "scipy")
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
OF_A_RECORD = (".json", ".npz")


@dataclass(frozen=True)
class KeptVerdicts:
    """Where the verdicts of one experiment are kept, and the digest of all that decides them."""

    path: Path
    key: str

    def read(self, claims: Sequence[Claim]) -> list[Judgement] | None:
        """Return the kept verdicts on the claims; None when there are none that can be believed."""
        try:
            content = json_object(self.path)
            if content["key"] != self.key or content["sha256"] != _digest(content["verdicts"]):
                return None
            rows = json.loads(content["verdicts"])
            return [_judgement(claim, row) for claim, row in zip(claims, rows, strict=True)]
        except (ValueError, TypeError, KeyError, AttributeError):
            return None

    def write(self, judged: Sequence[Judgement]) -> None:
        """Keep verdicts; in a folder that cannot be written, none."""
        verdicts = json.dumps([_row(one) for one in judged])  # a text of its own: it may hold nan
        content = {"key": self.key, "sha256": _digest(verdicts), "verdicts": verdicts}
        with suppress(OSError, ValueError), whole_file(self.path) as part:
            part.write_text(json.dumps(content) + "\n", encoding="utf-8")


def key_of(claims: Sequence[Claim], wanted: Sequence[Run], scale: str, *, judged: Path, pool: Path) -> str:
    """Return the digest of all that decides the verdicts on claims at a scale.

    Of the folder `judged` the records of the wanted runs count, of `pool` all there are.
    """
    ids, published = [run_id(run) for run in wanted], stamps_of(pool)
    own = _digests(judged, published if judged == pool else stamps_of(judged))
    decides = {
        "code": source_digest(DECIDING_FOLDERS),
        "versions": versions_of(DECIDING_PACKAGES),
        "scale": scale,
        "claims": ADDRESS.sub("", repr(claims)),
        "judged": {id: [own.get(id + suffix) for suffix in OF_A_RECORD] for id in ids},
        "pool": _digest_of_all(pool, published),
    }
    return _digest(json.dumps(decides, sort_keys=True))


@cache
def versions_of(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of Python and of some installed packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


Stamps = tuple[tuple[str, int, int], ...]
"""Of each file of a record in a folder: its name, when it was changed, its size."""
_LOOKED: ContextVar[dict[Path, tuple[int, Stamps]] | None] = ContextVar("_LOOKED", default=None)
"""What was found in each folder, and when the folder itself had changed then."""


@contextmanager
def looking_once() -> Iterator[None]:
    """Within this block each folder is looked at once: what a verb says is of one moment."""
    token = _LOOKED.set({})
    try:
        yield
    finally:
        _LOOKED.reset(token)


def forget_changed_folders() -> None:
    """Look again at what came, went or was replaced since: verdicts must be kept under what was judged.

    Records are written by rename, which changes their folder; one that is edited in place is not believed when read.
    """
    looked = _LOOKED.get() or {}
    for folder in [folder for folder, (changed, _) in looked.items() if _changed(folder) != changed]:
        del looked[folder]


def stamps_of(folder: Path) -> Stamps:
    """Return what tells without reading whether a folder's records are as they were; nothing where there is none."""
    looked = _LOOKED.get()
    if looked is None:
        return _look(folder)
    if folder not in looked:
        looked[folder] = (_changed(folder), _look(folder))  # in this order: a change in between is found later
    return looked[folder][1]


def _changed(folder: Path) -> int:
    return folder.stat().st_mtime_ns if folder.is_dir() else 0


def _look(folder: Path) -> Stamps:
    if not folder.is_dir():
        return ()
    with os.scandir(folder) as entries:
        looked = [(one.name, one.stat()) for one in entries if one.name.endswith(OF_A_RECORD) and one.is_file()]
    return tuple(sorted((name, found.st_mtime_ns, found.st_size) for name, found in looked))


@lru_cache(maxsize=4)  # a verb asks once for each experiment
def _digests(folder: Path, stamps: Stamps) -> Mapping[str, str]:
    """Return the digest of each file by name."""
    return {name: _file_digest(folder / name, changed, size) for name, changed, size in stamps}


@lru_cache(maxsize=4)
def _digest_of_all(folder: Path, stamps: Stamps) -> str:
    return _digest(json.dumps(_digests(folder, stamps), sort_keys=True))


@lru_cache(maxsize=2**17)  # more files than are looked at: fewer places than files would be of no use at all
def _file_digest(path: Path, changed: int, size: int) -> str:
    return sha256_of(path)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _row(judged: Judgement) -> dict[str, Any]:
    """Return a judgement as plain values, its claim by id."""
    row = {one.name: getattr(judged, one.name) for one in fields(judged) if one.name != "claim"}
    plain = {"unit": asdict(judged.unit), "estimate": judged.estimate and asdict(judged.estimate)}
    return row | plain | {"estimates": [asdict(one) for one in judged.estimates], "id": judged.claim.id}


def _judgement(claim: Claim, row: Mapping[str, Any]) -> Judgement:
    values = dict(row)
    if values.pop("id") != claim.id:
        raise ValueError(f"verdicts of other claims than {claim.id}")
    deciding, all_of = values["estimate"], values["estimates"]
    values |= {"unit": Unit(**values["unit"]), "seeds": tuple(values["seeds"])}
    values |= {"estimates": tuple(map(_estimate, all_of))}
    return Judgement(claim, **values | {"estimate": deciding and _estimate(deciding)})


def _estimate(values: Mapping[str, Any]) -> Estimate:
    return Estimate(**{**values, "unit": Unit(**values["unit"])})
