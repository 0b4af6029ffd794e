"""Models of the Hugging Face hub in its local cache. The hub's client resumes downloads and checks that they are whole."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from repro.storage.files import json_object

IGNORED_FILES = ("*.bin", "*.h5", "*.msgpack", "*.onnx", "*.ot", "*.pt", "onnx/*", "openvino/*")
"""Weights in formats that are not read."""


def find_model(name: str, revision: str | None = None, *, downloads: bool = False, **options: Any) -> Path | None:
    """Return the folder of a model with weights: a local folder, or a hub id in the cache. None if it is not cached.

    Args:
        name: The folder or hub id.
        revision: The commit of a hub model.
        downloads: Whether files that are missing in the cache are downloaded.
        options: Further options of `snapshot_download`.

    Raises:
        ValueError: if the name is neither a folder nor a hub id.
    """
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HFValidationError

    options = {"ignore_patterns": IGNORED_FILES, **options, "local_files_only": not downloads}
    try:
        folder = Path(snapshot_download(name, revision=revision, **options))
    except HFValidationError as error:
        raise ValueError(f"{name} is neither a folder nor a hub id") from error
    except OSError:
        # not in the cache, or without files that the hub lists
        if downloads:
            raise
        return None
    # transformers may have cached only the settings, the tokenizer or some of the shards
    weights = {*folder.rglob("*.safetensors")}
    indices = folder.rglob("*.safetensors.index.json")
    listed = {path.with_name(name) for path in indices for name in json_object(path)["weight_map"].values()}
    return folder if weights and listed <= weights and any(folder.rglob("config.json")) else None


def download_model(name: str, revision: str | None = None, **options: Any) -> Path:
    """Return the folder of a model, which is downloaded if it is not in the cache.

    Raises:
        ValueError: if it has no weights in safetensors, or cannot be downloaded.
    """
    try:
        folder = find_model(name, revision, **options) or find_model(name, revision, downloads=True, **options)
    except OSError as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{name} is no folder and not downloaded ({reason}): `hf download {name}`") from error
    if folder is None:
        raise ValueError(f"{name} has no weights in safetensors: `hf download {name}`")
    return folder
