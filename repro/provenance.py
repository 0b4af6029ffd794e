"""How a number came about: commit, uncommitted changes, versions, device, seconds."""

from __future__ import annotations

import hashlib
import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from repro.places import CHECKOUT

PACKAGES = ("torch", "transformers", "tokenizers", "faiss-cpu", "numpy", "bm25s", "ir-measures", "pytrec-eval-terrier")


def _git(*words: str) -> str | None:
    try:
        done = subprocess.run(["git", "-C", str(CHECKOUT), *words], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return None
    return done.stdout


def code_identity() -> dict[str, Any]:
    """Gives the commit, and a hash of what differs from it in tracked source (None: clean, or no git here)."""
    commit = _git("rev-parse", "HEAD")
    changed = _git("diff", "HEAD", "--", "*.py", "pyproject.toml", "requirements.lock")
    return {
        "commit": commit.strip() if commit else None,
        "uncommitted_sha256": hashlib.sha256(changed.encode()).hexdigest()[:12] if changed else None,
    }


def versions() -> dict[str, str]:
    """Gives the version of Python and of every package that can move a number."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Gives the device a run uses and the number of threads; loads torch."""
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or platform.machine()
    return {
        "device": device,
        "dtype": "bfloat16" if torch.cuda.is_available() else "float32",
        "num_threads": torch.get_num_threads(),
        "num_cpus": os.cpu_count(),
    }
