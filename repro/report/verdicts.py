"""Cache of verdicts, so that the same claims on the same records are judged once.

Judging loads scipy and statsmodels and reads hundreds of records. A cached verdict needs neither. The cache has one
file per experiment and scale. Its key is a digest of all inputs: source code, package versions, claims, runs, and the
name, time and size of each record. If the file is missing or damaged, or the key differs, the claims are judged again.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from repro.records.provenance import FIRST_COMMITS_FILE
from repro.spec import Claim, Run, Unit
from repro.spec.identity import run_id
from repro.statistics.judge import Comparison, Judgement
from repro.storage.digests import hash_json, hash_python_files
from repro.storage.memo import Memo
from repro.storage.paths import EXPERIMENT_FOLDERS, PACKAGE

DECIDING_FOLDERS = (
    PACKAGE,
    *(PACKAGE / name for name in ("statistics", "records", "spec", "data")),
    *EXPERIMENT_FOLDERS,
)
"""Folders whose source code affects a verdict. Claims may hold functions, so the experiments are included.

`repro/data` has the weights of collections in a mean.
"""
DECIDING_PACKAGES = ("numpy", "scipy", "statsmodels")
# Memory addresses in the text of a function differ between processes, so they are removed from keys.
ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def read_verdicts(memo: Memo, claims: Sequence[Claim]) -> list[Judgement] | None:
    """Return the cached verdicts on the claims, or None if the cache is missing, damaged or out of date."""
    try:
        return [_read_judgement(claim, row) for claim, row in zip(claims, memo.read() or (), strict=True)]
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def write_verdicts(memo: Memo, judged: Sequence[Judgement]) -> None:
    """Cache the verdicts. The claims themselves are not stored, only their ids."""
    rows = []
    for judgement in judged:
        claim_id: Any = judgement.claim.id
        rows.append(asdict(replace(judgement, claim=claim_id)))
    memo.write(rows)


def compute_key(claims: Sequence[Claim], runs: Sequence[Run], scale: str, folders: Sequence[Path]) -> str:
    """Return the digest of all inputs of the verdicts on claims at a scale."""
    names = [f"{run_id(run)}{suffix}" for run in runs for suffix in (".json", ".npz")] + [FIRST_COMMITS_FILE]
    inputs = {
        "code": hash_python_files(DECIDING_FOLDERS),
        "versions": get_versions(DECIDING_PACKAGES),
        "scale": scale,
        "claims": ADDRESS.sub("", repr(claims)),
        "records": [(name, _get_stamp(folder / name)) for folder in folders for name in names],
    }
    return hash_json(inputs)


def _get_stamp(path: Path) -> tuple[int, int] | None:
    """Return modification time (ns) and size (bytes) of a file, or None if it is missing."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size


@cache
def get_versions(packages: Sequence[str]) -> dict[str, str]:
    """Return the versions of Python and of some installed packages."""
    return {"python": platform.python_version(), **{name: version(name) for name in packages}}


def _read_judgement(claim: Claim, row: Mapping[str, Any]) -> Judgement:
    values = dict(row)
    if values.pop("claim") != claim.id:
        raise ValueError(f"verdicts are cached for other claims, not {claim.id}")
    values["unit"] = Unit(**values["unit"])
    values["comparisons"] = tuple(map(_read_comparison, values["comparisons"]))
    values["blind"] = values["blind"] and _read_comparison(values["blind"])
    return Judgement(claim, **values | {name: tuple(values[name]) for name in ("seeds", "yours")})


def _read_comparison(values: Mapping[str, Any]) -> Comparison:
    collections = values["collections"] and tuple(values["collections"])
    return Comparison(**{**values, "by_seed": tuple(values["by_seed"]), "collections": collections})
