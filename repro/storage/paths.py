"""Where things lie on disk: what is published lies beside the code, all else under one folder that REPRO_HOME names.

In a checkout the four folders lie side by side. An installed copy is one package: its experiments/, figures/ and slurm/
lie inside `repro` (setup.py puts them there), so that no name as common as these lands in a user's site-packages.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent
"""The root of the repository; meaningless in an installed copy, where nothing may be written or looked for there."""
INSIDE = PACKAGE / "beside"
IS_INSTALLED = INSIDE.is_dir()
SOURCES = INSIDE if IS_INSTALLED else CHECKOUT
"""The folder in which experiments/, figures/ and slurm/ lie."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


def home() -> Path:
    """Return the folder of everything the program makes.

    REPRO_HOME names it; otherwise it is out/ in a checkout, and cde-repro/ in the user's data folder when installed.
    ValueError if it cannot be one: a file has its name or that of a folder above it, its links lead in a circle, or its
    name is not UTF-8.
    """
    return _resolve_cached(
        _get_named_folder("REPRO_HOME") or (_user_data() / "cde-repro" if IS_INSTALLED else CHECKOUT / "out")
    )


def _get_named_folder(variable: str) -> Path | None:
    """Return the folder that a variable names, `~` being the user's own as in a shell; None if it is not set."""
    named = os.environ.get(variable)
    if not named:
        return None
    try:
        named.encode()
    except UnicodeEncodeError as error:  # records and messages hold paths, and are UTF-8
        shown = named.encode("utf-8", "backslashreplace").decode()
        raise ValueError(f"{variable}={shown} is not UTF-8: name a folder that is") from error
    try:
        return Path(named).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{variable}={named}: {error}; write the whole path") from error


@lru_cache(maxsize=64)
def _resolved_from(path: Path) -> Path:
    try:
        path.stat()
        found = path.resolve()
    except (OSError, RuntimeError) as error:
        if isinstance(error, RuntimeError) or error.errno == errno.ELOOP:
            raise ValueError(
                f"{_describe_home(path)} cannot be opened, since its links lead in a circle: {_REMEDY}"
            ) from None
        found = path.resolve()
    # False also for what may not be looked at
    there = next(one for one in (found, *found.parents) if os.path.exists(one))  # noqa: PTH110
    if not there.is_dir():
        raise ValueError(f"{_describe_home(found)} is no folder, since {there} is a file: {_REMEDY}")
    return found


_REMEDY = "set REPRO_HOME to a folder that you may write to"


def _describe_home(folder: Path) -> str:
    return f"REPRO_HOME={folder}" if os.environ.get("REPRO_HOME") else f"the folder of what is made here, {folder},"


def check_home() -> None:
    """Make the folder; ValueError when it cannot be made or written to, before anything is started that needs it."""
    folder = home()
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(f"{_describe_home(folder)} cannot be made ({error.strerror}): {_REMEDY}") from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise ValueError(f"{_describe_home(folder)} cannot be written to: {_REMEDY}")


def who_else_may_write() -> str:
    """Return a sentence if others than this user may write to the folder, or to one above it; else nothing.

    Whoever can write there can change what is trained, and the jobs that are submitted. Folders where each may remove
    only what is their own, such as /tmp, are safe.
    """
    for folder in (home(), *home().parents):
        with suppress(OSError):
            found = folder.stat()
            if found.st_mode & stat.S_ISVTX and folder != home():
                continue
            who = "everybody" if found.st_mode & stat.S_IWOTH else "its group" if found.st_mode & stat.S_IWGRP else ""
            if who:
                return f"{who} may write to {folder}, and so change what is trained and run here: chmod go-w {folder}"
    return ""


def _resolve_cached(path: Path) -> Path:
    """Return a path without links; asked once, since ten thousand runs ask for it forty thousand times."""
    return _resolved_from(path if path.is_absolute() else Path.cwd() / path)


def _user_data() -> Path:
    """Return XDG_DATA_HOME, or its default when it is unset or, as its specification asks, not absolute."""
    named = Path(os.environ.get("XDG_DATA_HOME", ""))
    return named if named.is_absolute() else Path.home() / ".local" / "share"


def import_environment() -> dict[str, str]:
    """Return what a process started as `python -m slurm.…` needs to find our folders, wherever it is started.

    PYTHONSAFEPATH keeps a folder called slurm or experiments in the working directory from being taken for ours.
    """
    paths = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1"}


def check_model_name(name: str) -> None:
    """ValueError if ORGANISATION/NAME, which means a model of the hub, is also a folder of the working directory.

    The libraries would open the folder, whoever put it there.
    """
    if HUB_NAME.fullmatch(name) and Path(name).exists():
        raise ValueError(
            f"{name!r} is the name of a model of the hub, and a folder of that name is in {Path.cwd()}: write "
            f"./{name} if you mean the folder, or start elsewhere if you mean the hub's model"
        )


def get_published_records() -> Path:
    """Return the folder of the records that are published with the code."""
    return SOURCES / "experiments" / "records"


def get_figures_folder() -> Path:
    """Return the folder to which pictures are drawn."""
    return home() / "figures"


def get_verdicts_folder() -> Path:
    """Return the folder of the verdicts on claims, kept so that they are not judged again."""
    return home() / "verdicts"


def get_local_records() -> Path:
    """Return the folder of the records made on this machine."""
    return home() / "records"


def run_folder(run_id: str) -> Path:
    """Return the folder in which one run works: metrics, checkpoints, TREC runs."""
    return home() / "runs" / run_id


def get_sweeps_folder() -> Path:
    """Return the folder that holds a folder for each sweep."""
    return home() / "sweeps"


def get_stage_folder() -> Path:
    """Return the folder of the shared stages."""
    return home() / "stages"


def get_corpora_folder() -> Path:
    """Return the folder of the corpora that readers have imported."""
    return home() / "corpora"


def imports_folder() -> Path:
    """Return the folder of the leases of imports, a folder for each name."""
    return home() / "imports"


def get_data_folder() -> Path:
    """Return the folder of local copies of the paper's data (REPRO_DATA names another)."""
    return (_get_named_folder("REPRO_DATA") or home() / "data").resolve()
