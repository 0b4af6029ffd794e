"""Models of the Hugging Face hub in its local cache. The hub's client resumes downloads and checks that they are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

IGNORED_FILES = ("*.bin", "*.h5", "*.msgpack", "*.onnx", "*.ot", "*.pt", "onnx/*", "openvino/*")
"""Weights in formats that are not read."""


def find_model(name: str, revision: str | None = None, **options: Any) -> Path | None:
    """Return the folder of a model: a local folder, or a hub id with its weights in the cache. None if it is not cached.

    Raises:
        ValueError: if the name is neither a folder nor a hub id.
    """
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    options = {"ignore_patterns": IGNORED_FILES, **options, "local_files_only": True}
    try:
        folder = Path(snapshot_download(name, revision=revision, **options))
    except HFValidationError as error:
        raise ValueError(f"{name} is neither a folder nor a hub id") from error
    except OSError:
        # not in the cache, or without files that the hub lists
        return None
    # transformers may have cached only the settings or the tokenizer
    return folder if any(folder.rglob("*.safetensors")) else None


def download_model(name: str, revision: str | None = None, **options: Any) -> Path:
    """Return the folder of a model, which is downloaded if it is not in the cache.

    Raises:
        ValueError: if it has no weights in safetensors, or cannot be downloaded.
    """
    if folder := find_model(name, revision, **options):
        return folder
    from huggingface_hub import snapshot_download

    options = {"ignore_patterns": IGNORED_FILES, **options}
    try:
        folder = Path(snapshot_download(name, revision=revision, **options))
    except OSError as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{name} is no folder and not downloaded ({reason}): `hf download {name}`") from error
    if not any(folder.rglob("*.safetensors")):
        raise ValueError(f"{name} has no weights in safetensors in {folder}: `hf download {name}`")
    return folder
