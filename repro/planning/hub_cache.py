"""Check that encoders and datasets from the Hugging Face hub are complete in the local cache.

An interrupted download leaves the small files. The check covers weights and tokenizer, every shard in an index, the size
of every known file of the repository, and incomplete blobs.
"""

from __future__ import annotations

from collections.abc import Iterator
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


def find_missing_encoder_files(name: str) -> list[str]:
    """Return a line per missing or damaged part of a local folder or hub model. Empty if it is complete."""
    if Path(name).is_dir():
        return list(_list_missing_of_folder(Path(name)))
    snapshot, problems = _find_snapshot(name)
    if snapshot is None:
        return problems
    return [*problems, *_list_missing_of_folder(snapshot, has_tokenizer=name != NOMIC_BERT)]


def find_missing_dataset_files(path: str, revision: str) -> list[str]:
    """Return a line per missing part of a hub dataset in the local cache."""
    snapshot, problems = _find_snapshot(path, revision, repo_type="dataset", may_be_part=True)
    if snapshot is None or problems:
        return problems
    files = [file for file in snapshot.rglob("*") if file.is_file() and file.suffix in DATA_SUFFIXES]
    files = [file for file in files if file.name != "dataset_infos.json"]
    return [] if files else [f"{path}: no file of data"]


def _find_snapshot(
    name: str, revision: str | None = None, *, repo_type: str = "model", may_be_part: bool = False
) -> tuple[Path | None, list[str]]:
    """Return the cached folder of a repository (None if missing), and a line per incomplete part.

    `may_be_part`: whether only some of its files are expected.
    """
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, IncompleteSnapshotError

    # For a dataset any file will do: only the library that loads it knows which ones it needs.
    patterns = "README.md" if may_be_part else None
    try:
        snapshot = snapshot_download(
            name, revision=revision, repo_type=repo_type, local_files_only=True, allow_patterns=patterns
        )
    except IncompleteSnapshotError as error:
        details = str(error).partition(" is incomplete: ")[2].partition(". ")[0]
        return None, [f"{name} is downloaded only in part: {details}"]
    except (OSError, HFValidationError):
        cache = f"the cache of the hub, {constants.HF_HUB_CACHE} (HF_HOME moves it)"
        return None, [f"{name} is not in {cache}; repro fetch downloads it if there is a network"]
    return Path(snapshot), list(_list_incomplete(name, Path(snapshot), repo_type))


def _list_incomplete(name: str, snapshot: Path, repo_type: str) -> Iterator[str]:
    """Yield incomplete blobs, and files that differ from the cached listing of the repository."""
    from huggingface_hub import get_cached_repo_tree
    from huggingface_hub.errors import CachedRepoTreeNotFoundError

    try:
        files = get_cached_repo_tree(name, repo_type=repo_type, revision=snapshot.name)
    except CachedRepoTreeNotFoundError:
        blobs = snapshot.parents[1] / "blobs"
        # A later download may have completed a blob and left the incomplete file behind.
        blob_names = sorted({path.name.partition(".")[0] for path in blobs.glob(f"*{INCOMPLETE_SUFFIX}")})
        interrupted = [blob_name for blob_name in blob_names if not (blobs / blob_name).is_file()]
        yield from (f"{name}: the download of blob {blob_name[:12]} was interrupted" for blob_name in interrupted)
        return
    for file in files:
        path = snapshot / file.path
        if path.is_file() and path.stat().st_size != file.size:
            yield f"{name}: {file.path} has {path.stat().st_size} bytes of {file.size}"


def _list_missing_of_folder(folder: Path, *, has_tokenizer: bool = True) -> Iterator[str]:
    """Yield each file that transformers or sentence-transformers would miss in a folder."""
    modules = _read_modules(folder)
    folders = [folder, *(folder / module for module, kind in modules.items() if kind not in ("Pooling", "Dense"))]
    if not any((candidate / "config.json").is_file() for candidate in folders):
        yield f"{folder}: config.json"
    yield from filter(None, (_find_damage(candidate / "config.json") for candidate in folders))
    if not any(_has_weights(candidate) for candidate in folders):
        yield f"{folder}: whole weights ({' or '.join(WEIGHT_FILES)}, or every shard of one)"
    if has_tokenizer and not any((candidate / name).is_file() for candidate in folders for name in TOKENIZER_FILES):
        yield f"{folder}: a tokenizer (one of {', '.join(TOKENIZER_FILES)})"
    for module, kind in modules.items():
        if kind in ("Pooling", "Dense") and not (folder / module / "config.json").is_file():
            yield f"{folder}: {module}/config.json"
        if kind == "Dense" and not _has_weights(folder / module):
            yield f"{folder}: whole weights of {module}"


def _has_weights(folder: Path) -> bool:
    """Return whether one weights file is complete, or all shards of an index are."""
    for name in WEIGHT_FILES:
        index = folder / f"{name}.index.json"
        weight_map = _read_object(_read_object(index).get("weight_map")) if index.is_file() else {}
        shards = {str(shard) for shard in weight_map.values()}
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


def _read_modules(folder: Path) -> dict[str, str]:
    """Return the kind of each module by its sub-folder. Empty if the model has a single folder."""
    try:
        entries = read_json(folder / "modules.json")
    except ValueError:
        return {}
    modules = [_read_object(entry) for entry in entries] if isinstance(entries, list) else []
    return {
        str(module["path"]): str(module.get("type", "")).rpartition(".")[2] for module in modules if module.get("path")
    }


def _read_object(source: Any) -> dict[str, Any]:
    """Return a JSON object, given itself or its file, or an empty dictionary if it is invalid."""
    try:
        values = json_object(source) if isinstance(source, Path) else source
    except ValueError:
        return {}
    return values if isinstance(values, dict) else {}


def _find_damage(path: Path) -> str:
    """Return the error of a JSON file, or an empty string if it is valid or missing."""
    try:
        if path.is_file():
            json_object(path)
    except ValueError as error:
        return f"{error}: remove it and fetch it again"
    return ""
