"""Find files that a finished sweep no longer needs: checkpoints of recorded runs, partial files, shards, pickles."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from repro.planning.cost import list_training_phases
from repro.records.store import split_recorded
from repro.spec import Run
from repro.spec.identity import get_training_id
from repro.storage.lease import look, owner_of_part
from repro.storage.paths import get_local_records, get_sweeps_folder, home
from repro.storage.shards import list_redundant_shards
from slurm.scheduler import fetch_queue
from slurm.states import get_run_item
from slurm.sweep import Submission, read_run, read_submissions

KEPT = ("metrics.jsonl", "trec", "job.json", "owner", "training")
MIN_AGE_SECONDS = 3600.0
"""Seconds without a change after which a partial file or folder counts as abandoned by a dead process."""


def leftovers(runs: Sequence[Run]) -> Iterator[tuple[Path, int]]:
    """Return the removable paths with their sizes in bytes.

    Never includes files of an unrecorded run, records, metrics, logs or scores. It also excludes a training run that
    another known run needs if that run has no record yet.
    """
    submissions = read_submissions()
    known = {*runs, *(run for one in submissions for name in one.runs if (run := read_run(one, name)))}
    recorded = set(split_recorded(known, [get_local_records()])[0])
    needed = {get_training_id(phase) for run in known - recorded for phase in list_training_phases(run)}
    for run in dict.fromkeys(runs):
        folder = get_run_item(run).folder
        if run not in recorded or folder.name in needed or not folder.is_dir():
            continue
        if not any(owner and owner.is_alive for owner in map(look, (folder / "owner", folder / "training"))):
            yield from ((path, measure_size(path)) for path in sorted(folder.iterdir()) if path.name not in KEPT)
    yield from ((part, measure_size(part)) for part in _list_partial_paths(home()) if _is_abandoned(part))
    yield from ((folder, measure_size(folder)) for folder in list_redundant_shards())
    names_recorded = {get_run_item(run).name for run in recorded.intersection(runs)}
    waiting = fetch_queue() or {}
    for sweep in sorted({one.sweep for one in submissions}):
        if _has_ended([one for one in submissions if one.sweep == sweep], names_recorded, waiting):
            yield from (
                (path, measure_size(path)) for path in sorted((get_sweeps_folder() / sweep / "jobs").glob("*.pkl"))
            )


def is_trained(path: Path) -> bool:
    """Return whether a path belongs to a run's checkpoint, the only copy of its trained weights."""
    return path.is_relative_to(home() / "runs") and (
        path.suffix == ".safetensors" or path.name.startswith("checkpoint")
    )


def kind_of(path: Path) -> str:
    """Return a word that describes a removable path."""
    if is_trained(path):
        return "checkpoint file"
    if path.name.endswith(".part"):
        return "half-written file"
    if path.suffix == ".pkl":
        return "job file"
    return "file of a run" if path.is_relative_to(home() / "runs") else "shard"


def _has_ended(submissions: Sequence[Submission], recorded: Collection[str], waiting: Collection[str]) -> bool:
    """Return whether the runs of a sweep are recorded and none of its jobs, including stages, is in the queue.

    A sweep that has submitted only stages so far has not ended, because its runs are still to come.
    """
    names = {name for one in submissions for name in one.runs}
    jobs = {job.get("job_id") for one in submissions for job in one.jobs.values()}
    return bool(names) and names <= {*recorded} and jobs.isdisjoint(waiting)


def _list_partial_paths(folder: Path) -> list[Path]:
    """Return files and folders with temporary names.

    Nested ones are excluded, since they are removed with their parent.
    """
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        parts = {name for name in (*folders, *files) if name.startswith(".") and name.endswith(".part")}
        folders[:] = [name for name in folders if name not in parts]
        found += [Path(place, name) for name in parts]
    return sorted(found)


def _is_abandoned(part: Path) -> bool:
    """Return whether a partial file is abandoned: its owner is dead or, without a lease, nothing in it changed recently."""
    if (owner := owner_of_part(part)) is not None:
        return not owner.is_alive
    inside = part.rglob("*") if part.is_dir() else ()
    changed = [status.st_mtime for path in (part, *inside) if (status := _read_stat(path))]
    return bool(changed) and time.time() - max(changed) > MIN_AGE_SECONDS


def _read_stat(path: Path) -> os.stat_result | None:
    """Return the stat result of a path, or None if it no longer exists."""
    with suppress(FileNotFoundError):
        return path.lstat()
    return None


def measure_size(path: Path) -> int:
    """Return the size in bytes of a file or of all files in a folder. Files that have disappeared count as 0."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(status.st_size for file in files if (status := _read_stat(file)))


def remove(path: Path) -> None:
    """Remove a file or folder. Concurrent removal by another process is harmless."""
    with suppress(FileNotFoundError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
