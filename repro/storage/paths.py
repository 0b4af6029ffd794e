"""Paths on disk. Published files are stored with the code, and everything else in one folder, REPRO_HOME.

In a checkout, repro/, experiments/, figures/ and slurm/ are siblings. In an installed copy, setup.py puts the other
three inside `repro`, so that these common names do not appear in a user's site-packages.
"""

from __future__ import annotations

import os
import re
from functools import lru_cache
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
CHECKOUT = PACKAGE.parent
"""The root of the repository. In an installed copy it has no meaning and must not be used."""
BUNDLED = PACKAGE / "bundled"
IS_INSTALLED = BUNDLED.is_dir()
SOURCES = BUNDLED if IS_INSTALLED else CHECKOUT
"""The folder that contains experiments/, figures/ and slurm/."""
EXPERIMENT_FOLDERS = tuple(SOURCES / "experiments" / name for name in ("", "companions", "ours"))
"""Folders of the experiments: the paper's own, those of its companion papers, and our own questions."""
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
CORPUS_FILE = "corpus.json"
"""File of an imported corpus in its folder."""
CORPUS_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,40}")


def get_home() -> Path:
    """Return the folder of all generated files.

    The default of REPRO_HOME is out/ in a checkout, and cde-repro/ in the user's data folder for an installed copy.
    """
    folder = _get_named_folder("REPRO_HOME")
    if folder is None:
        folder = _get_user_data_folder() / "cde-repro" if IS_INSTALLED else CHECKOUT / "out"
    # The cache of `_resolve` needs an absolute path, because the working directory may change.
    return _resolve(folder.absolute())


def _get_named_folder(variable: str) -> Path | None:
    """Return the folder in an environment variable, with `~` expanded, or None if the variable is not set."""
    value = os.environ.get(variable)
    return Path(value).expanduser() if value else None


@lru_cache(maxsize=64)
def _resolve(path: Path) -> Path:
    """Return a path without links. The result is cached, because ten thousand runs resolve it forty thousand times."""
    return path.resolve()


def check_home() -> None:
    """Create the home folder. Raises OSError if it cannot be created."""
    get_home().mkdir(parents=True, exist_ok=True)


def _get_user_data_folder() -> Path:
    """Return XDG_DATA_HOME, or its default if it is unset or not absolute, as its specification requires."""
    data_home = Path(os.environ.get("XDG_DATA_HOME", ""))
    return data_home if data_home.is_absolute() else Path.home() / ".local" / "share"


def import_environment() -> dict[str, str]:
    """Return the environment that lets `python -m slurm.…` find our folders from any working directory.

    PYTHONSAFEPATH prevents imports of slurm or experiments from the working directory. PYTHONUTF8 sets the encoding of logs
    and files under any locale.
    """
    paths = os.pathsep.join(filter(None, [str(SOURCES), os.environ.get("PYTHONPATH")]))
    return {"PYTHONPATH": paths, "PYTHONSAFEPATH": "1", "PYTHONUTF8": "1"}


def check_model_name(name: str) -> None:
    """Raise ValueError if the hub id ORGANISATION/NAME is also a folder in the working directory.

    The libraries would load the folder instead of the model from the hub.
    """
    if HUB_NAME.fullmatch(name) and Path(name).exists():
        clash = f"{name!r} is the id of a hub model and a folder in {Path.cwd()}"
        raise ValueError(f"{clash}: write ./{name} for the folder, or start elsewhere for the hub's model")


def get_published_records() -> Path:
    """Return the folder of the records that are published with the code."""
    return SOURCES / "experiments" / "records"


def get_figures_folder() -> Path:
    """Return the folder of the figures."""
    return get_home() / "figures"


def get_local_records() -> Path:
    """Return the folder of the records of this machine."""
    return get_home() / "records"


def run_folder(run_id: str) -> Path:
    """Return the working folder of one run: metrics, checkpoints, TREC runs."""
    return get_home() / "runs" / run_id


def get_sweeps_folder() -> Path:
    """Return the folder that contains one folder per sweep."""
    return get_home() / "sweeps"


def get_stage_folder() -> Path:
    """Return the folder of the shared stages."""
    return get_home() / "stages"


def get_building_folder(path: Path) -> Path:
    """Return the folder of the lease and the digests of a stage, next to the stage."""
    return path.with_name(f"{path.name}.building")


def get_corpora_folder() -> Path:
    """Return the folder of the imported corpora."""
    return get_home() / "corpora"


def get_writer_lease(path: Path) -> Path:
    """Return the folder of the lease for building a stage or importing a corpus, given the path of the result."""
    if path.parent == get_corpora_folder():
        return get_home() / "imports" / path.name
    return get_building_folder(path) / "owner"


def is_imported(name: str) -> bool:
    """Return whether a name, with or without a digest after `@`, is one of an imported corpus."""
    bare = name.partition("@")[0]
    return bool(CORPUS_NAME.fullmatch(bare)) and (get_corpora_folder() / bare / CORPUS_FILE).is_file()


def get_data_folder() -> Path:
    """Return the folder of local copies of the paper's data. REPRO_DATA overrides it."""
    return (_get_named_folder("REPRO_DATA") or get_home() / "data").resolve()
