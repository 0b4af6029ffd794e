"""Write, read and check records: one JSON file per finished run, with its per-query scores in an .npz file next to it.

A record is written once, by rename. A reader checks the types, the ranges, a digest and the means:

1. A record holds `sha256`, the digest of the rest of its content.
2. Older records have none. The file `DIGESTS` lists their sha256.
3. A record with neither is accepted if its means follow from its arrays.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import math
import sys
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property, lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.data.beir import HEADLINE, group_datasets
from repro.spec import Run, get_first_phase
from repro.spec.identity import get_training_id, run_from_record, run_id
from repro.storage.files import atomic_file, read_json_with_bytes

if TYPE_CHECKING:
    import numpy as np

FORMAT = 1
DIGESTS_FILE = "DIGESTS"
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
MARSHAL_WITHOUT_REFERENCES = 2
"""Version 2 of marshal writes no back-references, so equal values always give equal bytes."""
_PARTS: dict[tuple[str, bytes], Any] = {}
"""Parts of the provenance that are shared between records, by name and content."""


@dataclass(frozen=True)
class Record:
    """A finished run: the run itself, its metrics, its provenance, and the path of its arrays."""

    id: str
    run: Run
    metrics: Mapping[str, float]
    provenance: Mapping[str, Any]
    path: Path
    exhibits: Mapping[str, Any] = field(default_factory=dict)  # rows of text by name

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The values per query (or per step) that the metrics average, by name.

        Raises:
            ValueError: if the file is not the recorded one, or if a metric is not the mean of its values.
        """
        arrays = self._load_arrays()
        check_means(self.path, self.metrics, arrays, self.provenance.get("suite", {}).get("datasets", []))
        return arrays

    def check_arrays(self) -> None:
        """Raise ValueError if the arrays are not the recorded ones, or if a metric is not the mean of its values."""
        assert self.arrays is not None

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

        try:
            with np.load(BytesIO(data), allow_pickle=False) as stored:
                return {name: stored[name] for name in stored.files}
        except (zipfile.BadZipFile, zlib.error, EOFError, KeyError) as error:
            raise ValueError(f"record {self.id}: {path} is damaged ({error}); restore it") from error


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
        ValueError: if `read_record` would refuse the record, because a metric is out of range or is not the mean of its
            array. Then nothing is written.
    """
    import numpy as np

    not_finite = {name: value for name, value in metrics.items() if not math.isfinite(value)}
    if not_finite:
        raise ValueError(f"run {run_id(run)}: metrics {not_finite} are not finite; nothing was recorded")
    path = folder / f"{run_id(run)}.json"
    # Checked in the type in which they are stored, so that a reader computes the same means.
    stored_arrays = {name: np.asarray(values, np.float32) for name, values in arrays.items()}
    stored_exhibits = dict(exhibits or {})
    stored_provenance = {**provenance, "arrays_sha256": ""}
    content = {
        "format": FORMAT,
        "id": run_id(run),
        "run": asdict(run),
        "metrics": dict(metrics),
        "provenance": stored_provenance,
    }
    if stored_exhibits:
        content["exhibits"] = stored_exhibits
    try:
        # The reader's own checks, on the content as a reader will see it.
        _parse_record(path, _round_trip_json(content))
        check_means(path, metrics, stored_arrays, stored_provenance.get("suite", {}).get("datasets", []))
    except ValueError as error:
        reason = str(error).removesuffix("; restore it")
        raise ValueError(f"nothing was recorded, since no reader would accept it: {reason}") from error
    # arrays first: a record without arrays must not exist, arrays without a record are harmless
    with atomic_file(path.with_suffix(".npz"), lasts=True) as part:
        with part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **stored_arrays)
        stored_provenance["arrays_sha256"] = hashlib.sha256(part.read_bytes()).hexdigest()
    # After a round trip, because a reader computes the digest from parsed JSON.
    content["sha256"] = compute_content_digest(_round_trip_json(content))
    with atomic_file(path, lasts=True) as part:
        part.write_text(json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n")
    return Record(run_id(run), run, dict(metrics), stored_provenance, path, stored_exhibits)


def read_record(path: Path) -> Record:
    """Read one record.

    Raises:
        ValueError: if the file is not a record or was changed after it was written. Also if a field was renamed, or if a
            scale's value has changed, so that the id no longer matches.
    """
    try:
        status = path.stat()
    except OSError as error:
        raise ValueError(f"{path} is not a record ({error.strerror}); remove it or restore it") from error
    # Time and size are part of the cache key, so a replaced file is read again.
    cached = _read(path, status.st_mtime_ns, status.st_size)
    # a new object, so that the cache does not keep the arrays in memory
    return Record(cached.id, cached.run, cached.metrics, cached.provenance, path, cached.exhibits)


# a command reads the same record once per artefact
@lru_cache(maxsize=20_000)
def _read(path: Path, modified_ns: int, size: int) -> Record:
    try:
        content, data = read_json_with_bytes(path)
    except ValueError as error:
        raise ValueError(f"{path} is not a record ({error}); remove it or restore it") from error
    record = _parse_record(path, content)
    # Without any digest, the arrays are the only evidence that the metrics are as they were.
    if not check_digest(path, data, content):
        record.check_arrays()
    return record


def _parse_record(path: Path, content: Any) -> Record:
    """Return the record with this content. Raises ValueError with the path and the reason."""
    check_types(path, content)
    identifier = content["id"]
    if content.get("format") != FORMAT or path.stem != identifier:
        found = f"format {content.get('format')} and id {identifier}"
        raise ValueError(f"{path} has {found}; expected format {FORMAT} and id {path.stem}")
    try:
        run = run_from_record(content["run"], identifier)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    _check_first_phase(path, run, content["provenance"].get("training", {}))
    # Thousands of records share the same metric paths. Interning stores each string once.
    metrics = {sys.intern(name): value for name, value in content["metrics"].items()}
    provenance = _share_provenance(content["provenance"])
    return Record(identifier, run, metrics, provenance, path, content.get("exhibits", {}))


def _round_trip_json(content: Mapping[str, Any]) -> Any:
    """Return content after a round trip through JSON, which turns keys into strings and tuples into lists."""
    return json.loads(json.dumps(content))


def _share_provenance(provenance: dict[str, Any]) -> dict[str, Any]:
    """Return a provenance that shares its equal parts with the records read before.

    Seeds of one setting have the same suite and stages. Sharing lets thousands of records fit into memory.
    """
    return {
        name: _PARTS.setdefault((name, marshal.dumps(value, MARSHAL_WITHOUT_REFERENCES)), value)
        for name, value in provenance.items()
    }


def try_read_record(path: Path) -> Record | None:
    """Return a record, or None if it cannot be read. The first `MAX_NAMED_RECORDS` of these are named on stderr."""
    try:
        return read_record(path)
    except (ValueError, OSError) as error:
        if path not in _NAMED:
            _NAMED.add(path)
            if len(_NAMED) <= MAX_NAMED_RECORDS:
                print(f"counted as missing: {error}", file=sys.stderr)
            elif len(_NAMED) == MAX_NAMED_RECORDS + 1:
                print("counted as missing: more records; `repro doctor --deep` names each", file=sys.stderr)
        return None


def are_all_readable(*folders: Path) -> bool:
    """Return whether this process could read every record that it opened in these folders."""
    return not any(path.parent in folders for path in _NAMED)


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


def has_record(folder: Path, run: Run) -> bool:
    """Return whether a run has a record, without reading it."""
    return (folder / f"{run_id(run)}.json").is_file()


def explain_unreadable(folder: Path, run: Run) -> str:
    """Return why the record of a run cannot be read. Empty if it can be read, or if there is no record."""
    if not has_record(folder, run):
        return ""
    try:
        read_record(folder / f"{run_id(run)}.json")
    except (ValueError, OSError) as error:
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


def check_types(path: Path, content: Any) -> None:
    """Raise ValueError if a part of a record has the wrong type, or if a metric is not finite or out of its range."""
    types = {"id": str, "run": dict, "metrics": dict, "provenance": dict}
    if not isinstance(content, dict):
        raise ValueError(f"{path} is not a record (a {type(content).__name__}); remove it or restore it")
    invalid = [name for name, kind in types.items() if not isinstance(content.get(name), kind)]
    exhibits = content.get("exhibits", {})
    if invalid or not (isinstance(exhibits, dict) and all(isinstance(rows, list) for rows in exhibits.values())):
        raise ValueError(f"{path} is not a record ({invalid or ['exhibits']} missing or of another type); restore it")
    provenance = content["provenance"]
    nested = ("training", "suite", "stages", "machine")
    invalid = [name for name in nested if not isinstance(provenance.get(name, {}), dict)]
    if not invalid and not _has_valid_datasets(provenance.get("suite", {})):
        invalid = ["suite.datasets"]
    if invalid or not isinstance(provenance.get("arrays_sha256"), str):
        raise ValueError(f"{path} is not a record (provenance: {invalid or 'no arrays_sha256'}); restore it")
    for name, value in content["metrics"].items():
        # An exact type, because True is an int for `isinstance`.
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ValueError(f"{path}: {name} is {str(value)[:40]!r}, expected a number; restore it")
        if _is_share(name) and not -TOLERANCE <= value <= 1 + TOLERANCE:
            raise ValueError(f"{path}: {name} is {value}, expected at least 0 and at most 1; restore it")


def _has_valid_datasets(suite: Mapping[str, Any]) -> bool:
    """Return whether the datasets of a record, if any, are rows with name, family and number of queries."""
    rows = suite.get("datasets", [])
    types = {"name": str, "family": str, "num_queries": int}
    return isinstance(rows, list) and all(
        isinstance(row, dict) and all(isinstance(row.get(name), kind) for name, kind in types.items()) for row in rows
    )


@lru_cache(maxsize=2**14)
def _is_share(name: str) -> bool:
    return name.rpartition("/")[2] in SHARES


def check_digest(path: Path, data: bytes, content: Mapping[str, Any]) -> bool:
    """Return whether a digest confirms a record. Raises ValueError if a digest does not match."""
    listed = compute_listed_digests(path.parent).get(path.name)
    # the bytes of a listed file were checked when they were listed
    if listed is not None:
        if listed != hashlib.sha256(data).hexdigest():
            raise ValueError(f"{path} is not the file that {DIGESTS_FILE} lists; restore it")
        return True
    stored = content.get("sha256")
    if stored is not None and stored != compute_content_digest(content):
        raise ValueError(f"{path} was changed since it was written (its sha256 is another one); restore it")
    return stored is not None


def compute_listed_digests(folder: Path) -> Mapping[str, str]:
    """Return the listed digests of a folder's files, by name. Empty if the folder has no list."""
    path = folder / DIGESTS_FILE
    return _read_digests_file(path, path.stat().st_mtime_ns) if path.is_file() else {}


@lru_cache(maxsize=8)
def _read_digests_file(path: Path, modified_ns: int) -> Mapping[str, str]:
    digests: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        parts = line.split()
        if len(parts) != 2 or len(parts[0]) != 64:
            raise ValueError(f"{path}, line {number}: expected a sha256 and a file's name; restore the file")
        digests[parts[1]] = parts[0]
    return digests


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
    """Return every metric that follows from the arrays: overall means, means per dataset, and means over datasets."""
    import numpy as np

    means: dict[str, float] = {}
    sizes = np.array([int(row.get("num_queries", 0)) for row in datasets])
    starts = np.cumsum(sizes) - sizes
    for name, values in arrays.items():
        if name in metrics:
            means[name] = float(np.mean(values, dtype=np.float64))
        elif datasets and sizes.sum() == len(values):
            # the appended zero keeps the last start in range if the last dataset has no queries
            sums = np.add.reduceat(np.append(values, 0.0).astype(np.float64), starts)
            with np.errstate(divide="ignore", invalid="ignore"):
                dataset_means = (sums / sizes).tolist()
            for group, rows in group_datasets(datasets).items():
                means[f"{name}/{group}/{HEADLINE}"] = sum(dataset_means[row] for row in rows) / len(rows)
    return means
