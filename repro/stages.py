"""Shared artefacts (corpora, embeddings, clusters): folders named by what they were made from, each built once under a lock."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from filelock import SoftFileLock

from repro.places import stage_folder
from repro.writing import whole_folder


def stage_path(name: str, key: Mapping[str, Any]) -> Path:
    """Gives the folder of a stage: its name and twelve hex digits of its key."""
    text = json.dumps(dict(key), sort_keys=True, separators=(",", ":"))
    return stage_folder() / name / hashlib.sha256(text.encode()).hexdigest()[:12]


def is_built(path: Path) -> bool:
    """Says whether a stage is complete; its key file is written last."""
    return (path / "stage.json").is_file()


def build_stage(name: str, key: Mapping[str, Any], build: Callable[[Path], None]) -> Path:
    """Gives the folder of a stage, building it when it is not there.

    `build` fills an empty folder; it appears under its name by rename when it is complete, so a killed build leaves
    nothing that could be mistaken for a stage. Two processes that want the same stage build it once.
    """
    path = stage_path(name, key)
    if is_built(path):
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with SoftFileLock(f"{path}.lock"):
        if not is_built(path):
            with whole_folder(path) as part:
                build(part)
                (part / "stage.json").write_text(json.dumps({"name": name, "key": dict(key)}, indent=1, sort_keys=True))
    return path
