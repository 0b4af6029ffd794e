"""External corpora and suites: imported ones, and local copies of the paper's data."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

from repro.data.own.imported import build_imported, find_imported, list_imported_corpora
from repro.data.pairs import join_pairs, write_pairs
from repro.data.paper.benchmarks import SUITES, check_suite, make_suite
from repro.data.paper.hub import SOURCES, SourceFile, get_local_copy, list_source_files
from repro.data.paper.local_copies import compute_version, resolve_sources
from repro.spec import MTEB_SUITES
from repro.storage.paths import is_imported
from repro.storage.platform_info import count_usable_cores
from repro.storage.stages import WHOLE, Part, Sharding, Stage


def find_external_stage(name: str) -> Stage | None:
    """Return the stage of a corpus. Returns None if the name is unknown.

    Raises:
        ValueError: if it is known but its files are missing. The message explains how to get them.
    """
    make: Callable[[Path], None]
    sharding = None
    if is_imported(name):
        corpus = find_imported(name)
        origin, make = corpus.origin, partial(build_imported, corpus)
    elif name in SOURCES:
        get_local_copy(name)
        origin, make = _compute_origin(name), partial(_write_source, name)
        sharding = Sharding(partial(_write_source_part, name), _join_source)
    elif name in SUITES:
        check_suite(name)
        origin, make = _compute_origin(name), lambda folder: make_suite(name, folder / "suites" / name)
    else:
        return None
    return Stage("corpus", {"corpus": name, "made_from": origin}, make, sharding=sharding)


def find_corpus_of_suite(suite: str) -> str | None:
    """Return the corpus of a suite, or None if it is unknown. ValueError if it is known but its files are missing."""
    if suite in SUITES:
        check_suite(suite)
        return suite
    return find_imported(suite).corpus if is_imported(suite) else None


def list_external_corpora() -> list[str]:
    """Return the names of all external corpora."""
    return [*SOURCES, *list_imported_corpora()]


def list_external_suites() -> list[str]:
    """Return the names of all external suites."""
    return [*SUITES, *MTEB_SUITES, *list_imported_corpora()]


def _write_source(name: str, folder: Path) -> None:
    part = folder / "files"
    part.mkdir()
    _write_source_part(name, part, WHOLE)
    _join_source(folder, [part])
    shutil.rmtree(part)


def _write_source_part(name: str, folder: Path, part: Part) -> None:
    """Convert the files of a part of a copy, one process per core. Whole files make the result independent of the parts."""
    files = list_source_files(name)
    files = files[part.span(len(files))]
    paths = [folder / f"{file.number:06d}.arrow" for file in files]
    num_processes = min(count_usable_cores(), len(files))
    if num_processes < 2:
        for file, path in zip(files, paths, strict=True):
            _convert_file(file, path)
        return
    # Forking a process with threads of Arrow may hang.
    with ProcessPoolExecutor(num_processes, get_context("spawn")) as pool:
        for _ in pool.map(_convert_file, files, paths):
            pass


def _convert_file(file: SourceFile, path: Path) -> None:
    write_pairs(path, file.read(), with_negatives=True)


def _join_source(folder: Path, parts: Sequence[Path]) -> None:
    paths = sorted((path for part in parts for path in part.glob("*.arrow")), key=lambda path: path.name)
    join_pairs(folder / "train.arrow", paths)


def _compute_origin(name: str) -> str:
    text = json.dumps([name, [compute_version(source) for source in resolve_sources(name)]])
    return hashlib.sha256(text.encode()).hexdigest()[:12]
