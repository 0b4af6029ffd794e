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

from repro.data.tokens import load_tokenizer
from repro.pipeline.needs import NOMIC_BERT, get_tokenizer_name
from repro.planning.hub_cache import find_missing_dataset_files, find_missing_encoder_files
from repro.planning.requirements import Need, list_requirements
from repro.spec import base
from tests.commands import ignore

NAME, COMMIT = "somebody/model", "a" * 40


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use an empty cache of the hub."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def begin_download(cache: Path, name: str = NAME, kind: str = "models") -> Path:
    """Write what a killed download leaves: a snapshot with a config only, and an incomplete blob."""
    top = cache / f"{kind}--{name.replace('/', '--')}"
    snapshot = top / "snapshots" / COMMIT
    for folder in (snapshot, top / "refs", top / "blobs"):
        folder.mkdir(parents=True)
    (top / "refs" / "main").write_text(COMMIT)
    (snapshot / "config.json").write_text("{}")
    (top / "blobs" / "f00d.1234.incomplete").write_bytes(b"half")
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


def test_broken_download_is_no_encoder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, requested, real = begin_download(cache), [], huggingface_hub.snapshot_download
    assert not find_encoder_need().is_here()
    [problem] = find_encoder_need().problems()
    assert "blob f00d was interrupted" in problem

    def download(name: str, **options: Any) -> str:
        if not options.get("local_files_only"):
            requested.append(name)
            complete_download(snapshot)
        return real(name, **{**options, "local_files_only": True})

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    find_encoder_need().download(ignore)
    assert requested == [NAME] and find_encoder_need().is_here() and not find_encoder_need().problems()


def test_fetched_without_weights_is_an_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = begin_download(cache)
    (snapshot.parents[1] / "blobs" / "f00d").write_bytes(b"whole")
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **options: str(snapshot))
    with pytest.raises(ValueError, match=r"still lacks .*whole weights"):
        find_encoder_need().download(ignore)


def test_listed_files_are_needed(cache: Path) -> None:
    snapshot = begin_download(cache)
    complete_download(snapshot)
    (snapshot.parents[1] / "blobs" / "f00d").unlink()  # as after a download of another revision
    write_listing(snapshot, "model.safetensors")
    assert find_missing_encoder_files(NAME) == []
    write_listing(snapshot, "model.safetensors", "2_Dense/model.safetensors")
    [problem] = find_missing_encoder_files(NAME)
    assert "1 file(s) are missing (2_Dense/model.safetensors)" in problem


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    """A complete encoder in a local folder."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    complete_download(folder)
    return folder


def test_local_folder_is_never_downloaded(encoder: Path) -> None:
    name = base("desk", surrogate=str(encoder)).surrogate
    need = find_need(f"encoder {name}", surrogate=name, filter="surrogate")
    assert need.is_here()
    (encoder / "model.safetensors").unlink()
    assert not need.is_here()
    with pytest.raises(ValueError, match=r"model\.safetensors"):
        need.download(ignore)
    # A folder that lacks its weights from the beginning can be named, and is not complete.
    name = base("desk", surrogate=str(encoder)).surrogate
    assert not find_need(f"encoder {name}", surrogate=name, filter="surrogate").is_here()


def test_local_folder_needs_all_shards(encoder: Path) -> None:
    content = (encoder / "model.safetensors").read_bytes()
    (encoder / "model.safetensors").unlink()
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (encoder / "model.safetensors.index.json").write_text(json.dumps(index))
    (encoder / "one.safetensors").write_bytes(content)
    for second_shard, lacks in ((None, True), (content[:-1], True), (content, False)):
        if second_shard is not None:
            (encoder / "two.safetensors").write_bytes(second_shard)
        assert ("whole weights" in "".join(find_missing_encoder_files(str(encoder)))) is lacks
    modules = [{"path": "", "type": "st.Transformer"}, {"path": "1_Pooling", "type": "st.Pooling"}]
    (encoder / "modules.json").write_text(json.dumps(modules))
    assert find_missing_encoder_files(str(encoder)) == [f"{encoder}: 1_Pooling/config.json"]


def test_mteb_data_counts_once_loaded(cache: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    class Task:
        metadata = SimpleNamespace(name="Task", dataset={"path": "mteb/one", "revision": COMMIT})

        def load_data(self) -> None:
            calls.append("load")
            (snapshot / "corpus.parquet").write_text("rows")
            (snapshot.parents[1] / "blobs" / "f00d").write_bytes(b"whole")

        def unload_data(self) -> None:
            calls.append("unload")

    monkeypatch.setattr("repro.analyses.mteb.list_mteb_tasks", lambda suite: [Task()])
    need = find_need("data mteb", suite="mteb", measure="mteb")
    snapshot = begin_download(cache, "mteb/one", "datasets")
    (snapshot / "config.json").rename(snapshot / "README.md")  # a dataset card only
    assert not need.is_here() and need.problems()[0].startswith("1 of 1 tasks, the first: Task was not loaded")
    assert "interrupted" in find_missing_dataset_files("mteb/one", COMMIT)[0]
    need.download(ignore)
    assert need.is_here() and calls == ["load", "unload"]
    need.download(ignore)
    assert calls == ["load", "unload"], "complete data is not loaded again"
    (snapshot / "corpus.parquet").unlink()
    assert need.problems() == ["1 of 1 tasks, the first: Task: mteb/one: no file of data"]


@pytest.mark.parametrize(("name", "num_missing"), [(NOMIC_BERT, 0), (NAME, 1)])
def test_paper_backbone_needs_no_tokenizer(cache: Path, name: str, num_missing: int) -> None:
    """Its tokenizer is that of bert-base-uncased, which is installed."""
    snapshot = begin_download(cache, name)
    complete_download(snapshot)
    (snapshot / "tokenizer.json").unlink()
    missing = find_missing_encoder_files(name)
    assert len(missing) == num_missing and all("a tokenizer" in problem for problem in missing)
    assert get_tokenizer_name(base("small")) == get_tokenizer_name(base("desk")) == "minilm"
    assert load_tokenizer("minilm").get_vocab_size() == 30522


@pytest.mark.parametrize(
    ("name", "text"),
    [("config.json", "{"), ("config.json", "[]"), ("modules.json", "3"), ("modules.json", '[{"path": "1_Pooling"}]'),
     ("pytorch_model.bin.index.json", '{"weight_map": 1}')],
)  # fmt: skip
def test_damaged_file_is_fetched_again(name: str, text: str, encoder: Path) -> None:
    (encoder / name).write_text(text)
    if "index" in name:
        (encoder / "model.safetensors").unlink()
    [problem] = find_missing_encoder_files(str(encoder))
    assert problem.startswith(str(encoder)) and problem.endswith("remove it and fetch it again")
