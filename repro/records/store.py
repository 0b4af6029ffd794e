"""Records: one JSON file for each run that ended, its per-query scores beside it; written once, by rename."""

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

from repro.records.checks import check_digest, check_means, check_types, compute_content_digest
from repro.spec import Run, get_first_phase
from repro.spec.identity import get_training_id, run_from_record, run_id
from repro.storage.atomic import whole_file
from repro.storage.json_files import read_json_with_bytes

if TYPE_CHECKING:
    import numpy as np


FORMAT = 1


@dataclass(frozen=True)
class Record:
    """What is kept of a run that ended: the whole run, its metrics, how it came about, and where its arrays lie."""

    id: str
    run: Run
    metrics: Mapping[str, float]
    provenance: Mapping[str, Any]
    path: Path
    exhibits: Mapping[str, Any] = field(default_factory=dict)  # rows of text by name

    @cached_property
    def arrays(self) -> dict[str, np.ndarray]:
        """The per-query (or per-step) values behind the metrics.

        ValueError when the file is not the recorded one, or when a metric is not the mean of its values.
        """
        arrays = self._stored_arrays()
        check_means(self.path, self.metrics, arrays, self.provenance.get("suite", {}).get("datasets", []))
        return arrays

    def check_arrays(self) -> None:
        """ValueError when the arrays are not the recorded ones, or the metrics not their means."""
        assert self.arrays is not None

    def _stored_arrays(self) -> dict[str, np.ndarray]:
        path = self.path.with_suffix(".npz")
        expected = self.provenance["arrays_sha256"]
        if not path.is_file():
            raise ValueError(f"record {self.id}: its scores {path} are missing; restore the file or run it again")
        data = path.read_bytes()
        found = hashlib.sha256(data).hexdigest()
        if found != expected:
            raise ValueError(f"record {self.id}: {path} is not the file the record names (sha256 {found[:12]}…)")
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
    """Write a run's record once, arrays first, each by rename.

    ValueError for a record that `read_record` would refuse: a metric out of range, or not the mean of its array.
    """
    import numpy as np

    odd = {name: value for name, value in metrics.items() if not math.isfinite(value)}
    if odd:
        raise ValueError(f"run {run_id(run)}: metrics {odd} are not finite; nothing was recorded")
    path = folder / f"{run_id(run)}.json"
    narrow = {name: np.asarray(values, np.float32) for name, values in arrays.items()}
    shown = dict(exhibits or {})
    full = {**provenance, "arrays_sha256": ""}
    content = {"format": FORMAT, "id": run_id(run), "run": asdict(run), "metrics": dict(metrics), "provenance": full}
    content |= {"exhibits": shown} if shown else {}
    try:
        _record_of(path, _as_read(content))
        check_means(path, metrics, narrow, full.get("suite", {}).get("datasets", []))
    except ValueError as error:
        why = str(error).removesuffix("; restore it")
        raise ValueError(f"nothing was recorded, since no reader would accept it: {why}") from error
    with whole_file(path.with_suffix(".npz"), lasts=True) as part:
        with part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **narrow)
        full["arrays_sha256"] = hashlib.sha256(part.read_bytes()).hexdigest()
    content["sha256"] = compute_content_digest(_as_read(content))
    with whole_file(path, lasts=True) as part:
        part.write_text(json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n")
    return Record(run_id(run), run, dict(metrics), full, path, shown)


def read_record(path: Path) -> Record:
    """Read one record.

    ValueError names the file when it is not a record, was changed since it was written, or its fields have moved.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise ValueError(f"{path} is not a record ({error.strerror}); remove it or restore it") from error
    kept = _read(path, found.st_mtime_ns, found.st_size)
    return Record(kept.id, kept.run, kept.metrics, kept.provenance, path, kept.exhibits)  # it holds no arrays yet


@lru_cache(maxsize=20_000)  # a verb asks for the same record once for each artefact that shows it
def _read(path: Path, changed: int, size: int) -> Record:
    try:
        content, data = read_json_with_bytes(path)
    except ValueError as error:
        raise ValueError(f"{path} is not a record ({error}); remove it or restore it") from error
    record = _record_of(path, content)
    if not check_digest(path, data, content):
        record.check_arrays()
    return record


def _record_of(path: Path, content: Any) -> Record:
    """Return the record that a file's content describes; ValueError names the file and what is wrong."""
    check_types(path, content)
    identifier, values = content["id"], content["run"]
    if content.get("format") != FORMAT or path.stem != identifier:
        found = f"format {content.get('format')} and id {identifier}"
        raise ValueError(f"{path} has {found}; expected format {FORMAT} and id {path.stem}")
    try:
        run, shown = run_from_record(values, identifier), content.get("exhibits", {})
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    _check_first_phase(path, run, content["provenance"].get("training", {}))
    metrics = {sys.intern(name): value for name, value in content["metrics"].items()}
    return Record(identifier, run, metrics, _share_provenance(content["provenance"]), path, shown)


def _as_read(content: Mapping[str, Any]) -> Any:
    """Return content as a reader will see it: JSON makes texts of names, and lists of tuples."""
    return json.loads(json.dumps(content))


def _share_provenance(provenance: dict[str, Any]) -> dict[str, Any]:
    """Return a provenance whose parts are those of the records read before where they are equal.

    Seeds of one setting tell the same of their suite and stages: thousands of records then fit into memory.
    """
    return {
        name: _PARTS.setdefault((name, marshal.dumps(value, MARSHAL_WITHOUT_REFERENCES)), value)
        for name, value in provenance.items()
    }


MARSHAL_WITHOUT_REFERENCES = 2
_PARTS: dict[tuple[str, bytes], Any] = {}


def readable_record(path: Path) -> Record | None:
    """Return a record, None for one that cannot be read: it counts as missing; the first are named on stderr."""
    try:
        return read_record(path)
    except (ValueError, OSError) as error:
        if path not in _NAMED:
            _NAMED.add(path)
            if len(_NAMED) <= MOST_NAMED:
                print(f"counted as missing: {error}", file=sys.stderr)
            elif len(_NAMED) == MOST_NAMED + 1:
                print("counted as missing: more records; `repro doctor --deep` names each", file=sys.stderr)
        return None


MOST_NAMED = 10
"""A scale whose value moved leaves hundreds of records behind, for one reason."""
_NAMED: set[Path] = set()
"""Records that this process could not read."""


def all_are_readable(*folders: Path) -> bool:
    """Return whether this process could read every record it met in some folders."""
    return not any(path.parent in folders for path in _NAMED)


def records_in(folder: Path, runs: Iterable[Run]) -> list[Record]:
    """Return the records there are of these runs in a folder, each once; what cannot be read counts as missing."""
    paths = (folder / f"{run_id(run)}.json" for run in dict.fromkeys(runs))
    return [record for record in map(readable_record, filter(Path.is_file, paths)) if record is not None]


def _check_first_phase(path: Path, run: Run, training: Mapping[str, Any]) -> None:
    """ValueError when a second phase went on from another first phase than its run has today."""
    first = get_first_phase(run)
    if first is not None and training and training.get("first_phase") != get_training_id(first):
        was = training.get("first_phase", "none that is known")
        raise ValueError(
            f"{path} went on from the first phase {was}, today's is {get_training_id(first)}; remove it and run again"
        )


def read_records(folder: Path) -> list[Record]:
    """Read every record of a folder, by id; a folder that is not there holds none."""
    return [read_record(path) for path in sorted(folder.glob("*.json"))]


def has_record(folder: Path, run: Run) -> bool:
    """Return whether a run has ended, without reading its record."""
    return (folder / f"{run_id(run)}.json").is_file()


def explain_unreadable(folder: Path, run: Run) -> str:
    """Return why the record that a run has cannot be read; nothing where it can, or where there is none."""
    try:
        _ = has_record(folder, run) and read_record(folder / f"{run_id(run)}.json")
    except (ValueError, OSError) as error:
        return str(error)
    return ""


def split_recorded(runs: Iterable[Run], folders: Iterable[Path]) -> tuple[list[Run], list[Run]]:
    """Return (recorded, missing) of the runs, each once, in order; a run counts as recorded when any folder has it."""
    places = list(folders)
    unique = list(dict.fromkeys(runs))
    recorded = {run for run in unique if any(records_in(place, [run]) for place in places)}
    return [run for run in unique if run in recorded], [run for run in unique if run not in recorded]
