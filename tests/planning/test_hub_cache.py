"""Downloads from the hub: an interrupted one is recognised, for encoders and for the data of mteb's tasks."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest
from huggingface_hub._tree_cache import TreeCacheEntry, write_tree_cache
from safetensors.numpy import save_file

from repro.planning.requirements import Need, list_requirements
from repro.spec import base
from tests.commands import ignore
from tests.interop.small import COMMIT, make_hub_snapshot

NAME = "somebody/model"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache of the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def begin_download(cache: Path) -> Path:
    """Write what a killed download leaves: a snapshot with a config only, and an incomplete blob."""
    snapshot = make_hub_snapshot(cache, NAME)
    (snapshot / "config.json").write_text("{}")
    (snapshot.parents[1] / "blobs").mkdir()
    (snapshot.parents[1] / "blobs" / "f00d.1234.incomplete").write_bytes(b"half")
    return snapshot


def complete_download(folder: Path) -> None:
    """Add weights and a tokenizer to a folder, and complete the blob."""
    save_file({"weight": np.ones(64, np.float32)}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text("{}")
    blobs = folder.parents[1] / "blobs"
    if blobs.is_dir():
        (blobs / "f00d").write_bytes(b"whole")


def write_listing(snapshot: Path, *names: str) -> None:
    """Write the hub's list of files as `snapshot_download` caches it."""
    fields = {"size": 9, "blob_id": "f00d", "lfs_sha256": None, "lfs_size": None, "xet_hash": None}
    entries = {name: TreeCacheEntry(**fields) for name in names}
    write_tree_cache(str(snapshot.parents[1]), COMMIT, entries)


def find_need(name: str, **fields: Any) -> Need:
    """Return what a run of these fields needs under this name."""
    return next(need for need in list_requirements([base("desk", **fields)]) if need.name == name)


def find_encoder_need() -> Need:
    return find_need(f"encoder {NAME}", start=NAME)


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A complete encoder in a local folder."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    complete_download(folder)
    return folder


def test_broken_download_is_no_encoder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A snapshot without weights, or without a file that the hub lists, is downloaded."""
    snapshot, requested, real = begin_download(cache), [], huggingface_hub.snapshot_download
    assert not find_encoder_need().is_here() and find_encoder_need().problems()

    def download(name: str, **options: Any) -> str:
        if not options.get("local_files_only"):
            requested.append(name)
            complete_download(snapshot)
        return real(name, **{**options, "local_files_only": True})

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    find_encoder_need().download(ignore)
    assert requested == [NAME] and find_encoder_need().is_here() and not find_encoder_need().problems()
    write_listing(snapshot, "model.safetensors", "onnx/model.onnx", "pytorch_model.bin")
    assert find_encoder_need().is_here(), "other formats of the weights are not needed"
    write_listing(snapshot, "model.safetensors", "2_Dense/model.safetensors")
    assert not find_encoder_need().is_here()
    # transformers caches file by file, without the hub's list
    write_listing(snapshot, "model.safetensors")
    index = {"weight_map": {"a": "model.safetensors", "b": "missing.safetensors"}}
    (snapshot / "model.safetensors.index.json").write_text(json.dumps(index))
    assert not find_encoder_need().is_here(), "one of its two shards is missing"


def test_fetched_without_weights_is_an_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = begin_download(cache)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **options: str(snapshot))
    with pytest.raises(ValueError, match="no weights in safetensors"):
        find_encoder_need().download(ignore)


def test_local_folder_is_never_downloaded(encoder: Path) -> None:
    name = base("desk", surrogate=str(encoder)).surrogate
    need = find_need(f"encoder {name}", surrogate=name, filter="surrogate")
    assert need.is_here()
    (encoder / "model.safetensors").unlink()
    assert not need.is_here()
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        need.download(ignore)


def test_mteb_data_counts_once_loaded(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Task:
        metadata = SimpleNamespace(name="Task", dataset={"path": "mteb/one", "revision": COMMIT})

        def load_data(self) -> None:
            calls.append("load")

        def unload_data(self) -> None:
            calls.append("unload")

    monkeypatch.setattr("repro.analyses.mteb.list_mteb_tasks", lambda suite: [Task()])
    need = find_need("data mteb", suite="mteb", measure="mteb")
    assert not need.is_here() and need.problems()
    need.download(ignore)
    assert need.is_here() and calls == ["load", "unload"]
    Task.metadata.dataset["revision"] = "b" * 40
    assert not need.is_here()
