"""Find what a finished sweep no longer needs: checkpoints of recorded runs, half-written files, shards, pickles."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from repro.planning.cost import phases_of
from repro.records.store import has_record
from repro.spec import Run
from repro.spec.identity import training_id
from repro.storage.lease import look
from repro.storage.paths import home, local_records, sweeps_folder
from repro.storage.shards import needless_shards
from slurm.states import item_of_run
from slurm.sweep import read_submissions

KEPT = ("metrics.jsonl", "trec", "job.json", "owner", "training")
LEFT_ALONE_SECONDS = 3600.0
"""How old a half-written file must be before it counts as left by a process that died."""


def leftovers(runs: Sequence[Run]) -> Iterator[tuple[Path, int]]:
    """Return what may go, with its bytes: nothing of a run that is not recorded; no record, metrics, log or score.

    Nor a training that another known run, not recorded yet, shares or goes on from.
    """
    submissions = read_submissions()
    known = {*runs, *(Run(**fields) for one in submissions for fields in one.runs.values())}
    recorded = {run for run in known if has_record(local_records(), run)}
    needed = {training_id(phase) for run in known - recorded for phase in phases_of(run)}
    for run in dict.fromkeys(runs):
        folder = item_of_run(run).folder
        if run not in recorded or folder.name in needed or not folder.is_dir():
            continue
        if not any(owner and owner.is_alive for owner in map(look, (folder / "owner", folder / "training"))):
            yield from ((path, size_of(path)) for path in sorted(folder.iterdir()) if path.name not in KEPT)
    for part in sorted(home().rglob(".*.part")):
        if time.time() - part.stat().st_mtime > LEFT_ALONE_SECONDS:
            yield part, size_of(part)
    yield from ((folder, size_of(folder)) for folder in needless_shards())
    names_recorded = {item_of_run(run).name for run in recorded.intersection(runs)}
    by_sweep: dict[str, set[str]] = {}
    for submission in submissions:
        by_sweep.setdefault(submission.sweep, set()).update(submission.runs)
    for sweep, names in by_sweep.items():
        if names <= names_recorded:
            yield from ((path, size_of(path)) for path in sorted((sweeps_folder() / sweep / "jobs").glob("*.pkl")))


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def remove(path: Path) -> None:
    """Remove a file or a folder."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
