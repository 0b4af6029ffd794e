"""Check that encoders and datasets from the Hugging Face hub are complete in the local cache.

An interrupted download leaves the small files. `snapshot_download` compares the cache with the list of files that it
stored. Without a list, incomplete blobs show the interruption. An encoder also needs weights, with every shard of an
index, and a tokenizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from repro.pipeline.needs import NOMIC_BERT
from repro.storage.files import json_object, read_json

WEIGHT_FILES = ("model.safetensors", "pytorch_model.bin")
TOKENIZER_FILES = (
    "tokenizer.json",
    "vocab.txt",
    "vocab.json",
    "spiece.model",
    "sentencepiece.bpe.model",
    "tokenizer.model",
)
"""Each file is sufficient for a tokenizer, or indicates one that is."""
DATA_SUFFIXES = (".parquet", ".jsonl", ".json", ".csv", ".tsv", ".arrow", ".gz", ".zst", ".bz2", ".xz", ".zip", ".txt")
INCOMPLETE_SUFFIX = ".incomplete"
DAMAGE_ERRORS = (ValueError, KeyError, TypeError, AttributeError)
"""Errors of reading a JSON file that is cut, or that holds values of other types."""


def find_missing_encoder_files(name: str) -> list[str]:
    """Return a line per missing or damaged part of a local folder or hub model. Empty if it is complete."""
    folder, problem = (Path(name), "") if Path(name).is_dir() else _find_snapshot(name)
    if problem:
        return [problem]
    try:
        return list(_list_missing_of_folder(folder, has_tokenizer=name != NOMIC_BERT))
    except DAMAGE_ERRORS as error:
        return [f"{folder} has a damaged file ({error!r}): remove it and fetch it again"]


def find_missing_dataset_files(path: str, revision: str) -> list[str]:
    """Return a line per missing part of a hub dataset in the local cache."""
    # Any file will do: only the library that loads the dataset knows which ones it needs.
    snapshot, problem = _find_snapshot(path, revision=revision, repo_type="dataset", allow_patterns="README.md")
    if problem:
        return [problem]
    files = (file for file in snapshot.rglob("*") if file.name != "dataset_infos.json")
    return [] if any(file.suffix in DATA_SUFFIXES for file in files) else [f"{path}: no file of data"]


def _find_snapshot(name: str, *, repo_type: str = "model", **options: Any) -> tuple[Path, str]:
    """Return the cached folder of a repository, and why it is missing or incomplete, or ""."""
    from huggingface_hub import constants, get_cached_repo_tree, snapshot_download
    from huggingface_hub.errors import CachedRepoTreeNotFoundError, HFValidationError, IncompleteSnapshotError

    try:
        snapshot = Path(snapshot_download(name, repo_type=repo_type, local_files_only=True, **options))
    except IncompleteSnapshotError as error:
        details = str(error).partition(" is incomplete: ")[2].partition(". ")[0]
        return Path(), f"{name} is downloaded only in part: {details}"
    except (OSError, HFValidationError):
        cache = f"the cache of the hub, {constants.HF_HUB_CACHE} (HF_HOME moves it)"
        return Path(), f"{name} is not in {cache}; repro fetch downloads it if there is a network"
    with suppress(CachedRepoTreeNotFoundError):
        get_cached_repo_tree(name, repo_type=repo_type, revision=snapshot.name)
        return snapshot, ""
    blobs = snapshot.parents[1] / "blobs"
    # A later download may have completed a blob and left the incomplete file behind.
    blob_names = sorted({path.name.partition(".")[0] for path in blobs.glob(f"*{INCOMPLETE_SUFFIX}")})
    interrupted = [blob_name[:12] for blob_name in blob_names if not (blobs / blob_name).is_file()]
    return snapshot, f"{name}: the download of blob {', '.join(interrupted)} was interrupted" if interrupted else ""


def _list_missing_of_folder(folder: Path, *, has_tokenizer: bool) -> Iterator[str]:
    """Yield each file that transformers or sentence-transformers would miss in a folder."""
    module_list = folder / "modules.json"
    modules = read_json(module_list) if module_list.is_file() else []
    kinds = {module["path"]: module["type"].rpartition(".")[2] for module in modules if module["path"]}
    folders = [folder, *(folder / path for path, kind in kinds.items() if kind not in ("Pooling", "Dense"))]
    configs = [path for candidate in folders if (path := candidate / "config.json").is_file()]
    for path in configs:
        json_object(path)
    if not configs:
        yield f"{folder}: config.json"
    if not any(map(_has_weights, folders)):
        yield f"{folder}: whole weights ({' or '.join(WEIGHT_FILES)}, or every shard of one)"
    if has_tokenizer and not any((candidate / name).is_file() for candidate in folders for name in TOKENIZER_FILES):
        yield f"{folder}: a tokenizer (one of {', '.join(TOKENIZER_FILES)})"
    for path, kind in kinds.items():
        if kind in ("Pooling", "Dense") and not (folder / path / "config.json").is_file():
            yield f"{folder}: {path}/config.json"
        if kind == "Dense" and not _has_weights(folder / path):
            yield f"{folder}: whole weights of {path}"


def _has_weights(folder: Path) -> bool:
    """Return whether one weights file is complete, or all shards of an index are."""
    for name in WEIGHT_FILES:
        index = folder / f"{name}.index.json"
        shards = set(json_object(index)["weight_map"].values()) if index.is_file() else set()
        if _is_complete(folder / name) or (shards and all(_is_complete(folder / shard) for shard in shards)):
            return True
    return False


def _is_complete(path: Path) -> bool:
    """Return whether a weights file exists, with the length in its header if it has one."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file() or not path.stat().st_size:
        return False
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="np"):
                return True
        except (OSError, SafetensorError):
            return False
    return True
