"""What a record must be to be believed: typed, in range, unchanged since it was written, its means those of its arrays.

1. A record that is written holds `sha256`, the digest of all else in it. 2. Records of before that have none; the
committed ones are listed with the digest of their file in `DIGESTS` beside them, which `python -m
repro.records.digests` writes. 3. A record with neither is believed when its means follow from its arrays.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.data.beir import HEADLINE, group_datasets

if TYPE_CHECKING:
    import numpy as np

DIGESTS_FILE = "DIGESTS"
SHARES = (
    *("ndcg_at_10", "recall_at_100", "mrr_at_10", "accuracy", "masked_fraction"),
    *("crossovers", "same_domain", "same_source", "kept_apart", "any_plausible"),
)
"""Last words of metrics that lie between 0 and 1."""
TOLERANCE = 1e-5
"""Of a mean, relative and absolute: arrays are kept as float32."""


def compute_content_digest(content: Mapping[str, Any]) -> str:
    """Return the sha256 of a record's content, its own digest left out, whatever the spaces and the order of keys."""
    plain = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(plain, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_types(path: Path, content: Any) -> None:
    """ValueError when a record's parts are not of their types, or a metric is no number or out of its range."""
    parts = {"id": str, "run": dict, "metrics": dict, "provenance": dict}
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a record (a {type(content).__name__}); remove it or restore it")
    wrong = [name for name, kind in parts.items() if not isinstance(content.get(name), kind)]
    exhibits = content.get("exhibits", {})
    if wrong or not (isinstance(exhibits, dict) and all(isinstance(rows, list) for rows in exhibits.values())):
        raise ValueError(f"{path} is not a record ({wrong or ['exhibits']} missing or of another type); restore it")
    kept = {name: content["provenance"].get(name, {}) for name in ("training", "suite", "stages", "machine")}
    odd = [name for name, value in kept.items() if not isinstance(value, dict)]
    odd += [] if odd or _has_datasets(kept["suite"]) else ["suite.datasets"]
    if odd or not isinstance(content["provenance"].get("arrays_sha256"), str):
        raise ValueError(f"{path} is not a record (provenance: {odd or 'no arrays_sha256'}); restore it")
    for name, value in content["metrics"].items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ValueError(f"{path}: {name} is {str(value)[:40]!r}, expected a number; restore it")
        if _is_share(name) and not -TOLERANCE <= value <= 1 + TOLERANCE:
            raise ValueError(f"{path}: {name} is {value}, expected at least 0 and at most 1; restore it")


def _has_datasets(suite: Mapping[str, Any]) -> bool:
    """Return whether a record's datasets, if it has any, are rows of name, family and number of queries."""
    rows, kinds = suite.get("datasets", []), {"name": str, "family": str, "num_queries": int}
    return isinstance(rows, list) and all(
        isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in kinds.items()) for row in rows
    )


@lru_cache(maxsize=2**14)
def _is_share(name: str) -> bool:
    return name.rpartition("/")[2] in SHARES


def check_digest(path: Path, data: bytes, content: Mapping[str, Any]) -> bool:
    """Return whether a digest vouches for a record; ValueError when one speaks against it."""
    own, listed = content.get("sha256"), compute_listed_digests(path.parent).get(path.name)
    if listed is not None:  # the very bytes whose content was checked when they were listed
        if listed != hashlib.sha256(data).hexdigest():
            raise ValueError(f"{path} is not the file that {DIGESTS_FILE} lists; restore it")
        return True
    if own is not None and own != compute_content_digest(content):
        raise ValueError(f"{path} was changed since it was written (its sha256 is another one); restore it")
    return own is not None


def compute_listed_digests(folder: Path) -> Mapping[str, str]:
    """Return the digests of a folder's committed files, by name; none where there is no list."""
    path = folder / DIGESTS_FILE
    return _load_listed_digests(path, path.stat().st_mtime_ns) if path.is_file() else {}


@lru_cache(maxsize=8)
def _load_listed_digests(path: Path, changed: int) -> Mapping[str, str]:
    rows = [line.split() for line in path.read_text(encoding="utf-8").splitlines()]
    if wrong := [number for number, row in enumerate(rows, 1) if len(row) != 2 or len(row[0]) != 64]:
        raise ValueError(f"{path}, line {wrong[0]}: expected a sha256 and a file's name; restore the file")
    return {name: digest for digest, name in rows}


def check_means(
    where: object, metrics: Mapping[str, float], arrays: Mapping[str, np.ndarray], datasets: list[Mapping[str, Any]]
) -> None:
    """ValueError when a metric is not the mean of the values behind it; `datasets`: the suite's, in their order."""
    for name, expected in recompute_means(metrics, arrays, datasets).items():
        found = metrics.get(name, expected)  # what is not there misleads nobody: who asks for it is told so
        if not math.isclose(found, expected, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            raise ValueError(f"{where}: {name} is {found}, the mean of its arrays is {expected:.6f}; restore it")


def recompute_means(
    metrics: Mapping[str, float], arrays: Mapping[str, np.ndarray], datasets: list[Mapping[str, Any]]
) -> dict[str, float]:
    """Return every metric that follows from the arrays: their own means, those by dataset, and the means over these."""
    import numpy as np

    found: dict[str, float] = {}
    sizes = np.array([int(row.get("num_queries", 0)) for row in datasets])
    starts = np.cumsum(sizes) - sizes
    for name, values in arrays.items():
        if name in metrics:
            found[name] = float(np.mean(values, dtype=np.float64))
        if name in metrics or not datasets or sizes.sum() != len(values):
            continue
        sums = np.add.reduceat(np.append(values, 0.0).astype(np.float64), starts)  # a dataset of no queries may be last
        with np.errstate(divide="ignore", invalid="ignore"):
            means = (sums / sizes).tolist()
        for group, places in group_datasets(datasets).items():
            found[f"{name}/{group}/{HEADLINE}"] = sum(means[place] for place in places) / len(places)
    return found
