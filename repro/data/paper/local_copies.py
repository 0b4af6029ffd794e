"""Local copies of declared sources: folders, downloads and verification.

After a download, a file of checksums stores the revision, and sha256 and size of each file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repro.data.folders import list_visible_files
from repro.data.paper.benchmarks import ARCHIVES, BENCHMARKS, SUITES
from repro.data.paper.hub import CHECKSUMS, FETCHING, SOURCES, find_incomplete_reason, get_source_folder
from repro.data.readers import unpack
from repro.storage.digests import hash_file
from repro.storage.files import atomic_folder, json_object, write_json
from repro.storage.lease import acquire, get_last_owner
from repro.storage.paths import get_data_folder

Progress = Callable[[str], None]


def list_source_names() -> list[str]:
    """Return the names that can be fetched: training sources, evaluation sets, and suites of them."""
    return [*SOURCES, *(name for name in BENCHMARKS if name not in SUITES), *SUITES]


def resolve_sources(name: str) -> tuple[str, ...]:
    """Return the sources of a name: the source itself, or those of a suite. ValueError if it is unknown."""
    if name not in list_source_names():
        raise ValueError(f"unknown source {name!r}; choose one of {list_source_names()}")
    return SUITES.get(name, (name,))


def get_copy_folder(name: str) -> Path:
    """Return the folder of the local copy of one source."""
    return get_source_folder(name) if name in SOURCES else get_data_folder() / "beir" / name


def format_size(name: str) -> str:
    """Return the estimated size of one source as text."""
    return f"{SOURCES[name].size_gb} GB" if name in SOURCES else f"{BENCHMARKS[name].size_mb} MB"


def fetch(name: str, *, progress: Progress = print, base: str = ARCHIVES) -> Path:
    """Download one source if it is missing, write its checksums, and return its folder.

    A further call resumes an interrupted download. `base` is the address of BEIR's archives.
    """
    # a copy may be a link to another disk, which stays
    folder = get_copy_folder(name).resolve()
    if _is_complete(folder, name):
        return folder
    # hidden, so that it is not taken for a collection
    lease_folder = folder.with_name(f".{folder.name}.fetching")
    lease = acquire(lease_folder)
    if lease is None:
        raise ValueError(f"{name} is being fetched by {get_last_owner(lease_folder)}: wait for it")
    with lease:
        if not _is_complete(folder, name):
            _fetch_alone(name, folder, progress, base)
    return folder


def _is_complete(folder: Path, name: str) -> bool:
    """Return whether a copy has files and checksums. Raises ValueError if the checksums are damaged."""
    if not (folder / CHECKSUMS).is_file() or not _list_files(folder):
        return False
    read_checksums(folder, name)
    # The marker remains if the process was killed after it wrote the checksums and before it removed the marker.
    (folder / FETCHING).unlink(missing_ok=True)
    return True


def _fetch_alone(name: str, folder: Path, progress: Progress, base: str) -> None:
    progress(f"fetching {name}, about {format_size(name)}, into {folder}")
    if name in SOURCES:
        revision = _fetch_from_hub(name, folder)
    else:
        revision = "manual copy"
        if not _list_files(folder):
            revision = f"md5 {BENCHMARKS[name].md5}"
            # without files of the collection, it is no copy that someone made
            shutil.rmtree(folder, ignore_errors=True)
            _fetch_archive(name, folder, base)
    # The checksums mark the copy as complete, so the marker goes only after them.
    write_checksums(folder, name, revision)
    (folder / FETCHING).unlink(missing_ok=True)


def write_checksums(folder: Path, name: str, revision: str) -> None:
    """Write sha256 and size of each file below `folder`."""
    files = {
        str(path.relative_to(folder)): {"sha256": hash_file(path), "size": path.stat().st_size}
        for path in _list_files(folder)
    }
    write_json(folder / CHECKSUMS, {"source": name, "revision": revision, "files": files})


def find_problems(name: str, *, is_thorough: bool = True) -> list[str]:
    """Return a line for each file that is missing or has changed. Without `is_thorough`, only sizes are compared.

    A manual copy has no checksums, so it cannot be verified. The line then explains how to create them.
    """
    folder = get_copy_folder(name)
    checksums = folder / CHECKSUMS
    if not _list_files(folder):
        return [
            f"{name} (about {format_size(name)}) is not in {folder}; on a machine with internet: repro fetch {name}"
        ]
    if name in SOURCES and (reason := find_incomplete_reason(name, folder)):
        return [reason]
    if not checksums.is_file():
        return [f"{folder} has no {CHECKSUMS}: repro fetch {name} writes it from the existing files"]
    try:
        files = read_checksums(folder, name)
    except ValueError as error:
        return [str(error)]
    lines = []
    for relative, expected in files.items():
        path = folder / relative
        if not path.is_file():
            lines.append(f"{path} is missing")
        elif path.stat().st_size != expected["size"]:
            lines.append(f"{path} has {path.stat().st_size} bytes, {expected['size']} were fetched")
        elif is_thorough and hash_file(path) != expected["sha256"]:
            lines.append(f"{path} has changed since it was fetched (sha256)")
    return lines


def read_checksums(folder: Path, name: str) -> dict[str, dict[str, Any]]:
    """Return sha256 and size of each file in the checksums of a copy, by path.

    Raises:
        ValueError: if the checksums are damaged. The message explains how to write them again.
    """
    path = folder / CHECKSUMS
    try:
        files = json_object(path).get("files")
        entries = [*files.values()] if isinstance(files, dict) else [None]
        if not all(isinstance(entry, dict) and {"sha256", "size"} <= entry.keys() for entry in entries):
            raise ValueError(f"{path} lists no files with their sha256 and size")
    except ValueError as error:
        raise ValueError(
            f"{error}; remove this file and run repro fetch {name}, which writes it again without a download"
        ) from error
    assert isinstance(files, dict), "checked above"
    return files


def compute_version(name: str) -> str:
    """Return the version of a copy's content: a digest of its checksums, or names and sizes if it has none."""
    folder = get_copy_folder(name)
    checksums = folder / CHECKSUMS
    if checksums.is_file():
        # damaged checksums would change the version and cause a rebuild of everything that depends on it
        read_checksums(folder, name)
        return hash_file(checksums)[:12]
    # Reading terabytes only to name a version would be too slow. Sizes change with nearly every edit.
    return "-".join(f"{path.relative_to(folder)}:{path.stat().st_size}" for path in _list_files(folder))


def _fetch_from_hub(name: str, folder: Path) -> str:
    from huggingface_hub import HfApi, snapshot_download

    # the error of the HTTP library that the hub's client uses
    from huggingface_hub.errors import HTTPError

    source = SOURCES[name]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        # The revision is resolved before the download, so that all files belong to one commit.
        revision = str(HfApi().dataset_info(source.hub_id).sha)
        # Marks the copy as incomplete until its checksums are written. Only now: without a network, a manual copy stays
        # usable.
        (folder / FETCHING).touch()
        snapshot_download(source.hub_id, repo_type="dataset", revision=revision, local_dir=folder)
    except (OSError, HTTPError) as error:
        if not any(path.is_file() and path.name != FETCHING for path in folder.rglob("*")):
            # nothing was downloaded, so a manual copy into this folder would be complete
            (folder / FETCHING).unlink(missing_ok=True)
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(
            f"{name}: {source.hub_id} (about {format_size(name)}) could not be fetched from the hub ({reason}); repeat "
            f"the command to resume, or put a copy in {folder}"
        ) from error
    return revision


def _fetch_archive(name: str, folder: Path, base: str) -> None:
    archive = folder.parent / f"{name}.zip"
    download(f"{base}/{name}.zip", archive, BENCHMARKS[name].md5)
    # the folder appears under its name only when it is complete
    with atomic_folder(folder) as part:
        unpacked = unpack(archive, part / "unpacked")
        for path in list(unpacked.iterdir()):
            path.rename(part / path.name)
        # only hidden files of the archiver are left
        shutil.rmtree(part / "unpacked", ignore_errors=True)
    archive.unlink()


def download(url: str, path: Path, md5: str) -> None:
    """Download a file if it does not exist. The client of the hub retries broken connections.

    The file gets its name when it is complete. Until then it is a part (`….part`), which the next call completes.

    Raises:
        ValueError: if the file has another md5. A part with another md5 is removed.
        OSError: if the server does not answer. The part stays.
    """
    from huggingface_hub import constants
    from huggingface_hub.errors import HTTPError
    from huggingface_hub.file_download import http_get

    if path.is_file():
        if hash_file(path, "md5") != md5:
            raise ValueError(f"{path} is not the file that was expected (md5 is not {md5}): remove it and fetch again")
        return
    part = path.with_name(path.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    # a part that lacks only its name has nothing left to request
    if not part.is_file() or hash_file(part, "md5") != md5:
        try:
            with part.open("ab") as file:
                http_get(url, file, resume_size=file.tell())
        except (OSError, HTTPError) as error:
            hint = "unset HF_HUB_OFFLINE" if constants.HF_HUB_OFFLINE else f"repeat to resume from {part}"
            raise OSError(f"could not download {url} ({error}); {hint}") from error
        if hash_file(part, "md5") != md5:
            part.unlink()
            raise ValueError(f"{url} is not the file that was expected (md5 is not {md5}): it was removed; try again")
    part.replace(path)


def _list_files(folder: Path) -> list[Path]:
    return sorted(path for path in list_visible_files(folder) if path.name != CHECKSUMS)
