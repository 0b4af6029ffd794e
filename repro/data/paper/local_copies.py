"""Local copies of declared sources: folders, downloads and verification.

After a download, a file of checksums stores the revision, and sha256 and size of each file.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from repro.data.folders import is_hidden, list_visible_files
from repro.data.paper.benchmarks import ARCHIVES, BENCHMARKS, SUITES, list_missing_files
from repro.data.paper.hub import (
    CHECKSUMS,
    FETCHING,
    SOURCES,
    check_copy,
    find_incomplete_reason,
    get_source_folder,
    list_copied_files,
)
from repro.storage.digests import get_cached_digests, get_digests_note, hash_file, hash_json
from repro.storage.files import atomic_folder, json_object, write_json
from repro.storage.lease import acquire_when_free
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


def fetch(name: str, *, hub_id: str | None = None, progress: Progress = print) -> Path:
    """Download one source if it is missing, write its checksums, and return its folder.

    A further call resumes an interrupted download. Nothing is ever downloaded next to existing files: a copy that was made
    by hand only gets its checksums.

    Args:
        name: The source.
        hub_id: The dataset on the hub to fetch it from, instead of the declared ones.
        progress: Called with each message.

    Raises:
        ValueError: if it cannot be fetched, or if the rows or domains of the copy are not the declared ones.
    """
    # a copy may be a link to another disk, which stays
    folder = get_copy_folder(name).resolve()
    # hidden, so that it is not taken for a collection
    lease_folder = folder.with_name(f".{folder.name}.fetching")
    if _has_checksums(folder):
        if hub_id and hub_id not in (revision := str(json_object(folder / CHECKSUMS)["revision"])):
            raise ValueError(f"--from {hub_id}: {folder} already holds {revision}")
        return folder
    with acquire_when_free(lease_folder, lambda owner: progress(f"waiting for {owner}, which fetches {name}")):
        if not _has_checksums(folder):
            revision = _fetch_files(name, folder, hub_id, progress)
            if name in SOURCES:
                check_copy(name, folder)
            # The checksums mark the copy as complete, so the marker goes only after them.
            write_checksums(folder, name, revision)
            (folder / FETCHING).unlink(missing_ok=True)
    return folder


def _has_checksums(folder: Path) -> bool:
    return (folder / CHECKSUMS).is_file() and bool(_list_files(folder))


def _fetch_files(name: str, folder: Path, hub_id: str | None, progress: Progress) -> str:
    """Download the files of a source unless the folder has some, and return their revision."""
    if _list_files(folder) and not (folder / FETCHING).is_file():
        if name in SOURCES and (reason := find_incomplete_reason(name, folder)):
            raise ValueError(reason)
        progress(f"{folder} has files, so nothing is downloaded")
        return "manual copy"
    progress(f"fetching {name}, about {format_size(name)}, into {folder}")
    if name in SOURCES:
        return _fetch_from_hub(name, folder, hub_id)
    # without files of the collection, it is no copy that someone made
    shutil.rmtree(folder, ignore_errors=True)
    _fetch_archive(name, folder)
    return f"md5 {BENCHMARKS[name].md5}"


def write_checksums(folder: Path, name: str, revision: str) -> None:
    """Write sha256 and size of each file below `folder`."""
    files = {
        str(path.relative_to(folder)): {"sha256": hash_file(path), "size": path.stat().st_size}
        for path in _list_files(folder)
    }
    write_json(folder / CHECKSUMS, {"source": name, "revision": revision, "files": files})


def find_problems(name: str, *, is_thorough: bool = True) -> list[str]:
    """Return a line for each file that is missing or has changed. Without `is_thorough`, only sizes are compared."""
    folder = get_copy_folder(name)
    if not _list_files(folder):
        return [f"{name} ({format_size(name)}) is not in {folder}; on a machine with internet: repro fetch {name}"]
    if name in SOURCES and (reason := find_incomplete_reason(name, folder)):
        return [reason]
    if not (folder / CHECKSUMS).is_file():
        return [f"{folder} has no {CHECKSUMS}: repro fetch {name} writes it from the existing files"]
    files = json_object(folder / CHECKSUMS)["files"]
    copied = list_copied_files(folder) if name in SOURCES else ()
    added = sorted(path for path in copied if str(path.relative_to(folder)) not in files)
    lines = [f"{path} was not fetched with the others: remove it" for path in added]
    if name in BENCHMARKS:
        missing = list_missing_files(name)
        lines += [f"{path} is missing" for path in missing if str(path.relative_to(get_copy_folder(name))) not in files]
    for relative, expected in files.items():
        path = folder / relative
        if not path.is_file():
            lines.append(f"{path} is missing")
        elif path.stat().st_size != expected["size"]:
            lines.append(f"{path} has {path.stat().st_size} bytes, {expected['size']} were fetched")
        elif is_thorough and hash_file(path) != expected["sha256"]:
            lines.append(f"{path} has changed since it was fetched (sha256)")
    if name in SOURCES and is_thorough and not lines:
        try:
            check_copy(name, folder)
        except ValueError as error:
            lines.append(str(error))
    return lines


def compute_version(name: str) -> str:
    """Return the version of a copy's content. It does not depend on the file of checksums.

    It is a digest of the contents of an evaluation set. Of a training source, whose terabytes would take hours, it is a
    digest of the names and sizes of its files. `verify` compares the digests.
    """
    folder = get_copy_folder(name)
    if name in SOURCES:
        sizes = {str(path.relative_to(folder)): path.stat().st_size for path in list_copied_files(folder)}
        return hash_json(sizes)[:12]
    return hash_json(get_cached_digests(folder, _list_files(folder), get_digests_note(folder)))[:12]


def _fetch_from_hub(name: str, folder: Path, hub_id: str | None) -> str:
    """Download a dataset at one commit, and return its id and commit. A marker stores both until the copy is complete."""
    from huggingface_hub import HfApi, snapshot_download

    # the error of the HTTP library that the hub's client uses
    from huggingface_hub.errors import HTTPError

    reasons = []
    for candidate in [hub_id] if hub_id else SOURCES[name].hub_ids:
        try:
            if (folder / FETCHING).is_file():
                candidate, revision = (folder / FETCHING).read_text().split()
            else:
                # The revision is resolved before the download, so that all files belong to one commit.
                revision = str(HfApi().dataset_info(candidate).sha)
                folder.mkdir(parents=True, exist_ok=True)
                (folder / FETCHING).write_text(f"{candidate} {revision}")
            snapshot_download(candidate, repo_type="dataset", revision=revision, local_dir=folder)
            return f"{candidate} {revision}"
        except (OSError, HTTPError) as error:
            reasons.append(f"{candidate}: {(str(error).splitlines() or [type(error).__name__])[0]}")
            if _list_files(folder):
                break
            # Nothing has arrived, so another id or a copy may follow.
            (folder / FETCHING).unlink(missing_ok=True)
    remedy = f"repeat the command to resume, name another dataset with --from, or put a copy in {folder}"
    raise ValueError(f"{name} could not be fetched from the hub ({'; '.join(reasons)}); {remedy}")


def _fetch_archive(name: str, folder: Path) -> None:
    archive = folder.parent / f"{name}.zip"
    download(f"{ARCHIVES}/{name}.zip", archive, BENCHMARKS[name].md5)
    # the folder appears under its name only when it is complete
    with atomic_folder(folder) as part:
        shutil.unpack_archive(archive, part, "zip")
        # the archive has one folder, and hidden files of the archiver
        (top,) = [path for path in part.iterdir() if path.is_dir() and not is_hidden(path)]
        for path in list(top.iterdir()):
            path.rename(part / path.name)
        top.rmdir()
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
