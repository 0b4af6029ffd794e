"""Write, read and check records: one JSON file per finished run, with its per-query scores in an .npz file next to it.

A record is written once, by rename. Its writer checks the metrics: finite, in their range, and equal to the means of the
arrays. A reader checks the digest of the content, the id, and, if it needs the arrays, their digest and means.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.data.beir import HEADLINE, MEAN, group_datasets
from repro.spec import Run, get_first_phase, is_blind
from repro.spec.identity import get_training_id, run_from_record, run_id
from repro.storage.files import atomic_file, write_json

if TYPE_CHECKING:
    import numpy as np

FORMAT = 1
SHARES = (
    *("ndcg_at_10", "recall_at_100", "mrr_at_10", "accuracy", "masked_fraction"),
    *("crossovers", "same_domain", "same_source", "kept_apart", "any_plausible"),
)
"""Metrics between 0 and 1, by the last word of their path."""
TOLERANCE = 1e-5
"""Tolerance of a mean, relative and absolute. Arrays are stored as float32."""
MAX_NAMED_RECORDS = 10
"""Unreadable records that are named. A changed scale value affects hundreds of records for the same reason."""
_NAMED: set[Path] = set()
"""Records that this process could not read."""


@dataclass(frozen=True)
class Record:
    """A finished run: the run itself, its metrics, its provenance, and the path of its arrays."""

    id: str
    run: Run
    metrics: Mapping[str, float]
    provenance: Mapping[str, Any]
    path: Path
    exhibits: Mapping[str, Any] = field(default_factory=dict)  # rows of text by name

    @property
    def datasets(self) -> list[Mapping[str, Any]]:
        """The provenance of each collection of its suite, in order."""
        rows: list[Mapping[str, Any]] = self.provenance.get("suite", {}).get("datasets", [])
        return rows

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The values per query (or per step) that the metrics average, by name.

        Raises:
            ValueError: if the file is not the recorded one, or if a metric is not the mean of its values.
        """
        arrays = self._load_arrays()
        check_means(self.path, self.metrics, arrays, self.datasets)
        return arrays

    def _load_arrays(self) -> dict[str, np.ndarray]:
        path = self.path.with_suffix(".npz")
        expected = self.provenance["arrays_sha256"]
        if not path.is_file():
            raise ValueError(
                f"record {self.id}: its scores {path} are missing; restore the file, or remove the record and run it again"
            )
        data = path.read_bytes()
        digest = hashlib.sha256(data).hexdigest()
        if digest != expected:
            raise ValueError(f"record {self.id}: {path} is not the file the record names (sha256 {digest[:12]}…)")
        import numpy as np

        with np.load(BytesIO(data), allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files}


def write_record(
    folder: Path,
    run: Run,
    *,
    metrics: Mapping[str, float],
    arrays: Mapping[str, np.ndarray],
    provenance: Mapping[str, Any],
    exhibits: Mapping[str, Any] | None = None,
) -> Record:
    """Write the record of a run, arrays first, each file by rename. Return the record.

    Raises:
        ValueError: if a metric is not finite, out of its range, or not the mean of its array. Then nothing is written.
    """
    import numpy as np

    path = folder / f"{run_id(run)}.json"
    # Checked in the type in which they are stored, so that a reader computes the same means.
    stored_arrays = {name: np.asarray(values, np.float32) for name, values in arrays.items()}
    try:
        _check_metrics(metrics)
        check_means(path, metrics, stored_arrays, provenance.get("suite", {}).get("datasets", []))
    except ValueError as error:
        raise ValueError(f"run {run_id(run)}: nothing was recorded: {error}") from error
    # arrays first: a record without arrays must not exist, arrays without a record are harmless
    with atomic_file(path.with_suffix(".npz"), lasts=True) as part:
        with part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **stored_arrays)
        digest_of_arrays = hashlib.sha256(part.read_bytes()).hexdigest()
    content = {
        "format": FORMAT,
        "id": run_id(run),
        "run": asdict(run),
        "metrics": dict(metrics),
        "provenance": {**provenance, "arrays_sha256": digest_of_arrays},
        **({"exhibits": dict(exhibits)} if exhibits else {}),
    }
    # After a round trip, because a reader computes the digest from parsed JSON.
    content = json.loads(json.dumps(content, allow_nan=False))
    content["sha256"] = compute_content_digest(content)
    write_json(path, content, lasts=True)
    return read_record(path)


def _check_metrics(metrics: Mapping[str, float]) -> None:
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise ValueError(f"{name} is {value}, which is not finite")
        if name.rpartition("/")[2] in SHARES and not -TOLERANCE <= value <= 1 + TOLERANCE:
            raise ValueError(f"{name} is {value}, expected at least 0 and at most 1")


def read_record(path: Path) -> Record:
    """Read one record.

    Raises:
        ValueError: if the file is not a record or was changed after it was written. Also if a field was renamed, or if a
            scale's value has changed, so that the id no longer matches.
    """
    try:
        content = json.loads(path.read_bytes())
        digest = content["sha256"]
    except (OSError, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"{path} is not a record ({error}); remove it or restore it") from error
    if digest != compute_content_digest(content):
        raise ValueError(f"{path} was changed since it was written (its sha256 is another one); restore it")
    identifier = content["id"]
    if content["format"] != FORMAT or path.stem != identifier:
        found = f"format {content['format']} and id {identifier}"
        raise ValueError(f"{path} has {found}; expected format {FORMAT} and id {path.stem}")
    try:
        run = run_from_record(content["run"], identifier)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    _check_first_phase(path, run, content["provenance"].get("training", {}))
    return Record(identifier, run, content["metrics"], content["provenance"], path, content.get("exhibits", {}))


def try_read_record(path: Path) -> Record | None:
    """Return a record, or None if it cannot be read. The first `MAX_NAMED_RECORDS` of these are named on stderr."""
    try:
        return read_record(path)
    except ValueError as error:
        if path not in _NAMED:
            _NAMED.add(path)
            if len(_NAMED) <= MAX_NAMED_RECORDS:
                print(f"counted as missing: {error}", file=sys.stderr)
            elif len(_NAMED) == MAX_NAMED_RECORDS + 1:
                print("counted as missing: more records; `repro doctor --deep` names each", file=sys.stderr)
        return None


def list_records(folder: Path, runs: Iterable[Run]) -> list[Record]:
    """Return the records of these runs in a folder, each once. Unreadable records count as missing."""
    paths = (folder / f"{run_id(run)}.json" for run in dict.fromkeys(runs))
    return [record for record in map(try_read_record, filter(Path.is_file, paths)) if record is not None]


def _check_first_phase(path: Path, run: Run, training: Mapping[str, Any]) -> None:
    """Raise ValueError if a second phase resumed from a first phase that differs from the one its run has today."""
    first = get_first_phase(run)
    if first is not None and training and training.get("first_phase") != get_training_id(first):
        recorded = f"{path} has the first phase {training.get('first_phase')}"
        raise ValueError(f"{recorded}, expected {get_training_id(first)}; remove it and run again")


def read_records(folder: Path) -> list[Record]:
    """Return every record of a folder, sorted by id. A missing folder has none."""
    return [read_record(path) for path in sorted(folder.glob("*.json"))]


def get_score(run: Run, metrics: Mapping[str, float]) -> float | None:
    """Return the mean NDCG@10 of a run, or None if it was not measured. A context-blind model has that of null context."""
    null = metrics.get(f"{run.suite}+null/{MEAN}/{HEADLINE}") if is_blind(run) else None
    return metrics.get(f"{run.suite}/{MEAN}/{HEADLINE}", null)


def has_record(folder: Path, run: Run) -> bool:
    """Return whether a run has a record, without reading it."""
    return (folder / f"{run_id(run)}.json").is_file()


def explain_unreadable(folder: Path, run: Run) -> str:
    """Return why the record of a run cannot be read. Empty if it can be read, or if there is no record."""
    if not has_record(folder, run):
        return ""
    try:
        read_record(folder / f"{run_id(run)}.json")
    except ValueError as error:
        return str(error)
    return ""


def split_recorded(runs: Iterable[Run], folders: Iterable[Path]) -> tuple[list[Run], list[Run]]:
    """Return (recorded, missing) runs, each once, in order. A run is recorded if any of the folders has its record."""
    folders = list(folders)
    unique = list(dict.fromkeys(runs))
    recorded = {run for run in unique if any(list_records(folder, [run]) for folder in folders)}
    return [run for run in unique if run in recorded], [run for run in unique if run not in recorded]


def compute_content_digest(content: Mapping[str, Any]) -> str:
    """Return the sha256 of a record's content without its own digest. Spaces and the order of keys do not matter."""
    digested = {name: value for name, value in content.items() if name != "sha256"}
    return hashlib.sha256(json.dumps(digested, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def check_means(
    path: Path, metrics: Mapping[str, float], arrays: Mapping[str, np.ndarray], datasets: list[Mapping[str, Any]]
) -> None:
    """Raise ValueError if a metric is not the mean of its values. `datasets` are those of the suite, in order."""
    for name, mean in recompute_means(metrics, arrays, datasets).items():
        # a missing metric is not an error here: whoever reads it gets an error of its own
        recorded = metrics.get(name, mean)
        if not math.isclose(recorded, mean, rel_tol=TOLERANCE, abs_tol=TOLERANCE):
            raise ValueError(f"{path}: {name} is {recorded}, the mean of its arrays is {mean:.6f}; restore it")


def recompute_means(
    metrics: Mapping[str, float], arrays: Mapping[str, np.ndarray], datasets: list[Mapping[str, Any]]
) -> dict[str, float]:
    """Return every metric that follows from the arrays: overall means, means per dataset, and means over datasets.

    Raises ValueError if an array has not one value per query.
    """
    import numpy as np

    means: dict[str, float] = {}
    sizes = np.array([int(row.get("num_queries", 0)) for row in datasets])
    starts = np.cumsum(sizes) - sizes
    for name, values in arrays.items():
        if name in metrics:
            means[name] = float(np.mean(values, dtype=np.float64))
        elif datasets:
            if len(values) != sizes.sum():
                raise ValueError(f"{name} has {len(values)} values, its datasets have {sizes.sum()} queries")
            # the appended zero keeps the last start in range if the last dataset has no queries
            sums = np.add.reduceat(np.append(values, 0.0).astype(np.float64), starts)
            with np.errstate(divide="ignore", invalid="ignore"):
                dataset_means = (sums / sizes).tolist()
            for group, rows in group_datasets(datasets).items():
                means[f"{name}/{group}/{HEADLINE}"] = sum(dataset_means[row] for row in rows) / len(rows)
    return means
