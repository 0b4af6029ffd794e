"""Local copies of declared sources: where they lie, how they are fetched, and whether they are what was fetched.

Each copy has a file of checksums, written when it was fetched: its revision, and sha256 and size of each file.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repro.data.folders import list_visible_files
from repro.data.paper.benchmarks import ARCHIVES, BENCHMARKS, SUITES
from repro.data.paper.download import download
from repro.data.paper.hub import CHECKSUMS, FETCHING, SOURCES, find_incomplete_reason
from repro.data.readers import unpack
from repro.storage.digests import hash_file
from repro.storage.files import json_object, whole_file, whole_folder
from repro.storage.paths import get_data_folder

Progress = Callable[[str], None]


def list_declared() -> list[str]:
    """Return the names that can be fetched: training sources, evaluation sets, suites of them."""
    return [*SOURCES, *(name for name in BENCHMARKS if name not in SUITES), *SUITES]


def resolve_sources(name: str) -> tuple[str, ...]:
    """Return the sources behind a name: itself, or those of a suite. ValueError lists the names there are."""
    if name not in list_declared():
        raise ValueError(f"unknown source {name!r}; choose one of {list_declared()}")
    return SUITES.get(name, (name,))


def get_copy_folder(name: str, data_dir: Path | None = None) -> Path:
    """Return where the local copy of one source lies."""
    root = data_dir or get_data_folder()
    return root / SOURCES[name].hub_id.split("/")[1] if name in SOURCES else root / "beir" / name


def format_size(name: str) -> str:
    """Return the size of one source for a reader; an estimate."""
    return f"{SOURCES[name].size_gb} GB" if name in SOURCES else f"{BENCHMARKS[name].size_mb} MB"


def fetch(name: str, data_dir: Path | None = None, *, progress: Progress = print, base: str = ARCHIVES) -> Path:
    """Return the folder of one source, downloading what is missing and writing its checksums.

    Interrupted, it goes on when called again. `base`: where BEIR's archives are.
    """
    folder = get_copy_folder(name, data_dir)
    if (folder / CHECKSUMS).is_file():
        list_listed_files(folder, name)
        (folder / FETCHING).unlink(missing_ok=True)  # killed just before it was removed
        return folder
    progress(f"fetching {name}, about {format_size(name)}, into {folder}")
    if name in SOURCES:
        revision = _fetch_from_hub(name, folder)
    else:
        revision = f"md5 {BENCHMARKS[name].md5}"
        if not folder.is_dir():
            _fetch_archive(name, folder, progress, base)
    write_checksums(folder, name, revision)
    (folder / FETCHING).unlink(missing_ok=True)
    return folder


def write_checksums(folder: Path, name: str, revision: str) -> None:
    """Write sha256 and size of each file below `folder`."""
    files = {
        str(path.relative_to(folder)): {"sha256": hash_file(path), "size": path.stat().st_size}
        for path in _files(folder)
    }
    content = {"source": name, "revision": revision, "files": files}
    with whole_file(folder / CHECKSUMS) as part:
        part.write_text(json.dumps(content, indent=1, sort_keys=True) + "\n", encoding="utf-8")


def problems(name: str, data_dir: Path | None = None, *, is_thorough: bool = True) -> list[str]:
    """Return a sentence for each file that is missing or other than it was fetched; sizes only when not thorough.

    A copy without checksums was made by somebody else: it is told so, as nothing can be checked.
    """
    folder = get_copy_folder(name, data_dir)
    listed = folder / CHECKSUMS
    if not _files(folder):
        return [
            f"{name} (about {format_size(name)}) is not in {folder}; on a machine with internet: repro fetch {name}"
        ]
    if name in SOURCES and (why := find_incomplete_reason(name, folder)):
        return [why]
    if not listed.is_file():
        return [f"{folder} has no {CHECKSUMS}: repro fetch {name} writes it, trusting the files that are there"]
    try:
        wanted_files = list_listed_files(folder, name)
    except ValueError as error:
        return [str(error)]
    found = []
    for relative, wanted in wanted_files.items():
        path = folder / relative
        if not path.is_file():
            found.append(f"{path} is missing")
        elif path.stat().st_size != wanted["size"]:
            found.append(f"{path} has {path.stat().st_size} bytes, {wanted['size']} were fetched")
        elif is_thorough and hash_file(path) != wanted["sha256"]:
            found.append(f"{path} has another content than was fetched (sha256)")
    return found


def list_listed_files(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """Return sha256 and size of each file that the checksums of a copy list, by its path.

    ValueError for a list that is damaged: it names the file and says how it is written anew, beside the data.
    """
    path = folder / CHECKSUMS
    try:
        files = json_object(path).get("files")
        entries = [*files.values()] if isinstance(files, dict) else [None]
        if not all(isinstance(one, dict) and {"sha256", "size"} <= one.keys() for one in entries):
            raise ValueError(f"{path} lists no files with their sha256 and size")
    except ValueError as error:
        raise ValueError(
            f"{error}; remove this one file, and repro fetch {name} writes it anew: what was fetched stays as it is"
        ) from error
    assert isinstance(files, dict), "checked above"
    return files


def compute_version(name: str, data_dir: Path | None = None) -> str:
    """Return what decides a copy's content: its checksums, or names and sizes where it has none."""
    folder = get_copy_folder(name, data_dir)
    listed = folder / CHECKSUMS
    if listed.is_file():
        list_listed_files(folder, name)  # else what is built from the copy would be built anew
        return hash_file(listed)[:12]
    return "-".join(f"{path.relative_to(folder)}:{path.stat().st_size}" for path in _files(folder))


def _fetch_from_hub(name: str, folder: Path) -> str:
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HTTPError  # of whichever library carries its requests

    source = SOURCES[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / FETCHING).touch()  # what is there from now on is taken for no copy until its checksums are written
    try:
        revision = source.revision or str(HfApi().dataset_info(source.hub_id).sha)
        snapshot_download(source.hub_id, repo_type="dataset", revision=revision, local_dir=folder)
    except (OSError, HTTPError) as error:
        if not any(path.is_file() and path.name != FETCHING for path in folder.rglob("*")):
            (folder / FETCHING).unlink(missing_ok=True)  # nothing came: a copy that is put there is a whole one
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{name}: {source.hub_id} (about {format_size(name)}) could not be fetched from the hub ({reason}); the same "
            f"command goes on, or put a copy in {folder}"
        ) from error
    return revision


def _fetch_archive(name: str, folder: Path, progress: Progress, base: str) -> None:
    archive = folder.parent / f"{name}.zip"
    download(f"{base}/{name}.zip", archive, md5=BENCHMARKS[name].md5, progress=progress)
    with whole_folder(folder) as part:
        inside = unpack(archive, part / "unpacked")
        for path in list(inside.iterdir()):
            path.rename(part / path.name)
        shutil.rmtree(part / "unpacked", ignore_errors=True)  # empty, but for what an archiver hides
    archive.unlink()


def _files(folder: Path) -> list[Path]:
    return sorted(path for path in list_visible_files(folder) if path.name != CHECKSUMS)
