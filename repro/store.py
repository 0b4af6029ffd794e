"""Records: one JSON file for each run that ended, its per-query scores beside it; written once, by rename."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.identity import run_from_record, run_id, training_id
from repro.spec import Run, first_phase_of
from repro.writing import whole_file

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
        """The per-query (or per-step) values behind the metrics; ValueError when the file is not the recorded one."""
        path = self.path.with_suffix(".npz")
        expected = self.provenance["arrays_sha256"]
        if not path.is_file():
            raise ValueError(f"record {self.id}: its scores {path} are missing; restore the file or run it again")
        found = hashlib.sha256(path.read_bytes()).hexdigest()
        if found != expected:
            raise ValueError(f"record {self.id}: {path} is not the file the record names (sha256 {found[:12]}…)")
        import numpy as np

        with np.load(path, allow_pickle=False) as stored:
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
    """Writes a run's record once, arrays first, each by rename; ValueError when a metric is no finite number."""
    import numpy as np

    odd = {name: value for name, value in metrics.items() if not math.isfinite(value)}
    if odd:
        raise ValueError(f"run {run_id(run)}: metrics {odd} are not finite; nothing was recorded")
    path = folder / f"{run_id(run)}.json"
    with whole_file(path.with_suffix(".npz")) as part:
        with part.open("wb") as file:
            np.savez_compressed(file, allow_pickle=False, **{k: np.asarray(v, np.float32) for k, v in arrays.items()})
        digest = hashlib.sha256(part.read_bytes()).hexdigest()
    full = {**provenance, "arrays_sha256": digest}
    shown = dict(exhibits or {})
    content = {"format": FORMAT, "id": run_id(run), "run": asdict(run), "metrics": dict(metrics), "provenance": full}
    content |= {"exhibits": shown} if shown else {}
    with whole_file(path) as part:
        part.write_text(json.dumps(content, indent=1, sort_keys=True, allow_nan=False) + "\n")
    return Record(run_id(run), run, dict(metrics), full, path, shown)


def read_record(path: Path) -> Record:
    """Reads one record; ValueError names the file when it is not a record, or when its fields have moved."""
    try:
        content = json.loads(path.read_text())
        identifier, values = content["id"], content["run"]
    except (json.JSONDecodeError, KeyError, TypeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a record ({error}); remove it or restore it") from error
    if content.get("format") != FORMAT or path.stem != identifier:
        found = f"format {content.get('format')} and id {identifier}"
        raise ValueError(f"{path} has {found}; expected format {FORMAT} and id {path.stem}")
    run, shown = run_from_record(values, identifier), content.get("exhibits", {})
    _check_first_phase(path, run, content["provenance"].get("training", {}))
    return Record(identifier, run, content["metrics"], content["provenance"], path, shown)


def _check_first_phase(path: Path, run: Run, training: Mapping[str, Any]) -> None:
    """ValueError when a second phase went on from another first phase than its run has today."""
    first = first_phase_of(run)
    if first is not None and training and training.get("first_phase") != training_id(first):
        was = training.get("first_phase", "none that is known")
        raise ValueError(
            f"{path} went on from the first phase {was}, today's is {training_id(first)}; remove it and run again"
        )


def read_records(folder: Path) -> list[Record]:
    """Reads every record of a folder, by id; a folder that is not there holds none."""
    return [read_record(path) for path in sorted(folder.glob("*.json"))]


def has_record(folder: Path, run: Run) -> bool:
    """Says whether a run has ended, without reading its record."""
    return (folder / f"{run_id(run)}.json").is_file()


def split_recorded(runs: Iterable[Run], folders: Iterable[Path]) -> tuple[list[Run], list[Run]]:
    """Gives (recorded, missing) of the runs, each once, in order; a run counts as recorded when any folder has it."""
    places = list(folders)
    unique = list(dict.fromkeys(runs))
    recorded = [run for run in unique if any(has_record(place, run) for place in places)]
    return recorded, [run for run in unique if run not in set(recorded)]
