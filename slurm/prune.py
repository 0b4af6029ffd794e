"""Find what a finished sweep no longer needs: checkpoints of recorded runs, half-written files, shards, pickles."""

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
from repro.storage.lease import look
from repro.storage.paths import get_local_records, get_sweeps_folder, home
from repro.storage.shards import needless_shards
from slurm.scheduler import queue
from slurm.states import item_of_run
from slurm.sweep import Submission, read_submissions, run_in

KEPT = ("metrics.jsonl", "trec", "job.json", "owner", "training")
LEFT_ALONE_SECONDS = 3600.0
"""How long nothing may have changed in a half-written file or folder that counts as left by a process that died."""


def leftovers(runs: Sequence[Run]) -> Iterator[tuple[Path, int]]:
    """Return what may go, with its bytes: nothing of a run that is not recorded; no record, metrics, log or score.

    Nor a training that another known run, not recorded yet, shares or goes on from.
    """
    submissions = read_submissions()
    known = {*runs, *(run for one in submissions for name in one.runs if (run := run_in(one, name)))}
    recorded = set(split_recorded(known, [get_local_records()])[0])
    needed = {get_training_id(phase) for run in known - recorded for phase in list_training_phases(run)}
    for run in dict.fromkeys(runs):
        folder = item_of_run(run).folder
        if run not in recorded or folder.name in needed or not folder.is_dir():
            continue
        if not any(owner and owner.is_alive for owner in map(look, (folder / "owner", folder / "training"))):
            yield from ((path, measure_size(path)) for path in sorted(folder.iterdir()) if path.name not in KEPT)
    yield from ((part, measure_size(part)) for part in _half_written(home()) if _is_left(part))
    yield from ((folder, measure_size(folder)) for folder in needless_shards())
    names_recorded = {item_of_run(run).name for run in recorded.intersection(runs)}
    waiting = queue() or {}
    for sweep in sorted({one.sweep for one in submissions}):
        if _has_ended([one for one in submissions if one.sweep == sweep], names_recorded, waiting):
            yield from (
                (path, measure_size(path)) for path in sorted((get_sweeps_folder() / sweep / "jobs").glob("*.pkl"))
            )


def is_trained(path: Path) -> bool:
    """Return whether this is a part of a run's checkpoint, which holds the only copy of its trained weights."""
    return path.is_relative_to(home() / "runs") and (
        path.suffix == ".safetensors" or path.name.startswith("checkpoint")
    )


def kind_of(path: Path) -> str:
    """Return a word for a reader of what may go."""
    if is_trained(path):
        return "checkpoint file"
    if path.name.endswith(".part"):
        return "half-written file"
    if path.suffix == ".pkl":
        return "job file"
    return "file of a run" if path.is_relative_to(home() / "runs") else "shard"


def _has_ended(submissions: Sequence[Submission], recorded: Collection[str], waiting: Collection[str]) -> bool:
    """Return whether the runs of a sweep are recorded, and none of its jobs, stages too, is in the scheduler's queue.

    Of a sweep that has submitted nothing but stages so far, the runs are still to come.
    """
    names = {name for one in submissions for name in one.runs}
    jobs = {job.get("job_id") for one in submissions for job in one.jobs.values()}
    return bool(names) and names <= {*recorded} and jobs.isdisjoint(waiting)


def _half_written(folder: Path) -> list[Path]:
    """Return the files and folders of temporary names, but none inside another: it goes, or stays, with that."""
    found: list[Path] = []
    for place, folders, files in os.walk(folder):
        parts = {name for name in (*folders, *files) if name.startswith(".") and name.endswith(".part")}
        folders[:] = [name for name in folders if name not in parts]
        found += [Path(place, name) for name in parts]
    return sorted(found)


def _is_left(part: Path) -> bool:
    """Return whether nobody works on it: no living owner of the stage it will be, and nothing in it changed lately."""
    name = part.name[1:].rsplit(".", 2)[0]
    owner = look(part.with_name(f"{name}.building") / "owner")
    if owner is not None and owner.is_alive:
        return False
    inside = part.rglob("*") if part.is_dir() else ()
    changed = [status.st_mtime for path in (part, *inside) if (status := _status(path))]
    return bool(changed) and time.time() - max(changed) > LEFT_ALONE_SECONDS


def _status(path: Path) -> os.stat_result | None:
    """Return what the disk says of a path; None when it has gone meanwhile."""
    with suppress(FileNotFoundError):
        return path.lstat()
    return None


def measure_size(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; what has gone meanwhile has none."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    return sum(status.st_size for file in files if (status := _status(file)))


def remove(path: Path) -> None:
    """Remove a file or a folder; another process that removes it as well does no harm."""
    with suppress(FileNotFoundError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
