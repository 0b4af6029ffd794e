"""Find files that a finished sweep no longer needs: checkpoints of recorded runs, partial files, shards."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from repro.planning.cost import list_trainings
from repro.records.store import split_recorded, try_read_record
from repro.spec import Run
from repro.spec.identity import run_id
from repro.storage.files import is_dead_part
from repro.storage.lease import get_live_owner
from repro.storage.paths import get_home, get_local_records, get_writer_lease, run_folder
from repro.storage.shards import list_redundant_shards
from repro.train.checkpoint import CHECKPOINT_FILE
from slurm.sweep import list_submitted_runs

RETAINED_NAMES = ("metrics.jsonl", "tensorboard", "trec", "job.json", "owner", "training")
"""Files and folders in the folder of a run that are never listed. The owners of a training run go with its checkpoint."""
MIN_AGE_SECONDS = 86_400.0
"""Seconds without a change after which a partial file or folder can be removed."""


def list_leftovers(runs: Sequence[Run]) -> Iterator[tuple[Path, int]]:
    """Yield the removable paths with their sizes in bytes.

    Includes the training runs of recorded runs, and their first phases. Never includes files of an unrecorded run,
    records, metrics, logs or scores. It also excludes a training run that another known run needs if that run has no
    record yet.
    """
    for path in _list_removable_paths(runs):
        yield path, measure_size(path)


def _list_removable_paths(runs: Sequence[Run]) -> Iterator[Path]:
    known_runs = {*runs, *list_submitted_runs()}
    recorded = set(split_recorded(known_runs, [get_local_records()])[0])
    missing = known_runs - recorded
    needed = {training for run in missing for training in (*list_trainings(run), run.filter_model)}
    names = (name for run in runs if run in recorded for name in (run_id(run), *list_trainings(run)))
    for folder in map(run_folder, dict.fromkeys(names)):
        if folder.name in needed or not folder.is_dir() or _is_unrecorded_run(folder):
            continue
        if not get_live_owner(folder / "owner") and not get_live_owner(folder / "training"):
            yield from (path for path in sorted(folder.iterdir()) if path.name not in RETAINED_NAMES)
    yield from filter(_is_abandoned, _list_partial_paths(get_home()))
    yield from list_redundant_shards()


def _is_unrecorded_run(folder: Path) -> bool:
    """Return whether a run has started in this folder and has no readable record.

    Its id equals that of the training run, and it may be unknown: neither selected nor launched.
    """
    record = get_local_records() / f"{folder.name}.json"
    return (folder / "owner").is_dir() and not (record.is_file() and try_read_record(record))


def is_trained(path: Path) -> bool:
    """Return whether a path belongs to a run's checkpoint, the only copy of its trained weights."""
    is_checkpoint = path.suffix == ".safetensors" or path.name.startswith("checkpoint")
    return is_checkpoint and path.is_relative_to(get_home() / "runs")


def _list_partial_paths(folder: Path) -> list[Path]:
    """Return files and folders with temporary names.

    Nested ones are excluded, since they are removed with their parent.
    """
    paths = sorted(folder.rglob(".*.part"))
    return [path for path in paths if not {*path.parents} & {*paths}]


def _is_abandoned(part: Path) -> bool:
    """Return whether nothing in a partial file or folder changed for a day, and no process holds its lock or lease."""
    content = part.rglob("*") if part.is_dir() else ()
    # A file can disappear between the listing and its stat.
    times = [status.st_mtime for path in (part, *content) if (status := _read_stat(path)) is not None]
    is_old = bool(times) and time.time() - max(times) > MIN_AGE_SECONDS
    # The lock of another machine may be invisible here, its lease is not. A temporary name is `.NAME.DIGITS.part`.
    target = part.with_name(part.name[1:].rsplit(".", 2)[0])
    has_writer = get_live_owner(get_writer_lease(target)) is not None
    return is_old and not has_writer and (not part.is_dir() or is_dead_part(part))


def _read_stat(path: Path) -> os.stat_result | None:
    """Return the stat result of a path, or None if it no longer exists."""
    with suppress(FileNotFoundError):
        return path.lstat()
    return None


def measure_size(path: Path) -> int:
    """Return the size in bytes of a file or of all files in a folder. Files that have disappeared count as 0."""
    files = [file for file in path.rglob("*") if file.is_file()] if path.is_dir() else [path]
    stats = [_read_stat(file) for file in files]
    return sum(status.st_size for status in stats if status is not None)


def remove(path: Path) -> None:
    """Remove a file or folder. Concurrent removal by another process is harmless."""
    owners = path.parent / "training"
    # Otherwise a training run that starts again would count as ended, because an earlier owner has finished it.
    if path.name == CHECKPOINT_FILE and not get_live_owner(owners):
        shutil.rmtree(owners, ignore_errors=True)
    with suppress(FileNotFoundError):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
