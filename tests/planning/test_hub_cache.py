"""Downloads from the hub: an interrupted one is recognised, for encoders and for the data of mteb's tasks."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import numpy as np
import pytest
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
    (snapshot := top / "snapshots" / COMMIT).mkdir(parents=True)
    for folder in ("refs", "blobs"):
        (top / folder).mkdir()
    (top / "refs" / "main").write_text(COMMIT)
    (snapshot / "config.json").write_text("{}")
    (top / "blobs" / "f00d.1234.incomplete").write_bytes(b"half")
    return snapshot


def complete_download(folder: Path) -> None:
    """Add weights and a tokenizer to a folder, and complete the blob."""
    save_file({"weight": np.ones(64, np.float32)}, folder / "model.safetensors")
    (folder / "tokenizer.json").write_text("{}")
    if (blobs := folder.parents[1] / "blobs").is_dir():
        (blobs / "f00d").write_bytes(b"whole")


def write_listing(snapshot: Path, **sizes: int) -> None:
    """Write the hub's list of files as `snapshot_download` caches it."""
    from huggingface_hub._tree_cache import TreeCacheEntry, write_tree_cache

    fields = {"lfs_sha256": None, "lfs_size": None, "xet_hash": None}
    entries = {name: TreeCacheEntry(size=size, blob_id="f00d", **fields) for name, size in sizes.items()}
    write_tree_cache(str(snapshot.parents[1]), COMMIT, entries)


def find_encoder_need(name: str = NAME) -> Need:
    """Return what a run that starts from this encoder needs."""
    return next(need for need in list_requirements([base("desk", start=name)]) if need.name == f"encoder {name}")


def test_broken_download_is_no_encoder(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot, requested, real = begin_download(cache), [], huggingface_hub.snapshot_download
    assert not find_encoder_need().is_here()
    problems = "; ".join(find_encoder_need().problems())
    assert all(phrase in problems for phrase in ("blob f00d was interrupted", "whole weights", "a tokenizer"))

    def download(name: str, **options: Any) -> str:
        if not options.get("local_files_only"):
            requested.append(name)
            complete_download(snapshot)
        return real(name, **{**options, "local_files_only": True})

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    find_encoder_need().bring(ignore)
    assert requested == [NAME] and find_encoder_need().is_here() and not find_encoder_need().problems()


def test_fetched_without_weights_is_an_error(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    snapshot = begin_download(cache)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name, **options: str(snapshot))
    with pytest.raises(ValueError, match=r"still lacks .*whole weights"):
        find_encoder_need().bring(ignore)


def test_finished_blob_leaves_no_gap(cache: Path) -> None:
    complete_download(begin_download(cache))
    assert find_missing_encoder_files(NAME) == []


def test_listed_files_need_their_size(cache: Path) -> None:
    complete_download(snapshot := begin_download(cache))
    (snapshot.parents[1] / "blobs" / "f00d").unlink()  # as after a download of another revision
    size = (snapshot / "model.safetensors").stat().st_size
    write_listing(snapshot, **{"model.safetensors": size})
    assert find_missing_encoder_files(NAME) == []
    write_listing(snapshot, **{"model.safetensors": size + 1})
    assert find_missing_encoder_files(NAME) == [f"{NAME}: model.safetensors has {size} bytes of {size + 1}"]
    write_listing(snapshot, **{"model.safetensors": size, "2_Dense/model.safetensors": 9})
    [lack] = find_missing_encoder_files(NAME)
    assert lack == f"{NAME} is downloaded only in part: 1 file(s) are missing (2_Dense/model.safetensors)"


def test_local_folder_needs_all_shards(tmp_path: Path) -> None:
    (folder := tmp_path / "mine").mkdir()
    (folder / "config.json").write_text("{}")

    def local() -> Need:
        runs = [base("desk", surrogate=str(folder), filter="surrogate")]
        return next(need for need in list_requirements(runs) if need.name == f"encoder {folder}")

    assert not local().is_here()
    with pytest.raises(ValueError, match="still lacks"):
        local().bring(ignore)
    complete_download(folder)
    assert local().is_here()
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[:-1])
    assert "whole weights" in "".join(find_missing_encoder_files(str(folder)))
    (folder / "model.safetensors").rename(folder / "two.safetensors")
    (folder / "one.safetensors").write_bytes(content)
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert "whole weights" in "".join(find_missing_encoder_files(str(folder)))
    (folder / "two.safetensors").write_bytes(content)
    assert find_missing_encoder_files(str(folder)) == []
    modules = [{"path": "", "type": "st.Transformer"}, {"path": "1_Pooling", "type": "st.Pooling"}]
    (folder / "modules.json").write_text(json.dumps(modules))
    assert find_missing_encoder_files(str(folder)) == [f"{folder}: 1_Pooling/config.json"]


def test_mteb_data_counts_once_loaded(cache: Path, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = []

    class Task:
        metadata = SimpleNamespace(name="Task", dataset={"path": "mteb/one", "revision": COMMIT})

        def load_data(self) -> None:
            loaded.append("load")
            (snapshot / "corpus.parquet").write_text("rows")
            (snapshot.parents[1] / "blobs" / "f00d").write_bytes(b"whole")

        def unload_data(self) -> None:
            loaded.append("unload")

    monkeypatch.setattr("repro.analyses.mteb.list_mteb_tasks", lambda suite: [Task()])
    needs = {need.name: need for need in list_requirements([base("large", suite="mteb", measure="mteb")])}
    need = needs["data mteb"]
    snapshot = begin_download(cache, "mteb/one", "datasets")
    (snapshot / "config.json").rename(snapshot / "README.md")  # a dataset card only
    assert not need.is_here() and need.problems()[0].startswith("1 of 1 tasks, the first: Task was not loaded")
    assert "interrupted" in find_missing_dataset_files("mteb/one", COMMIT)[0]
    need.bring(ignore)
    assert need.is_here() and loaded == ["load", "unload"]
    need.bring(ignore)
    assert loaded == ["load", "unload"], "complete data is not loaded again"
    (snapshot / "corpus.parquet").unlink()
    assert need.problems() == ["1 of 1 tasks, the first: Task: mteb/one: no file of data"]


def test_paper_backbone_needs_no_tokenizer(cache: Path) -> None:
    for name, lacks in ((NOMIC_BERT, []), (NAME, ["a tokenizer"])):
        complete_download(snapshot := begin_download(cache, name))
        (snapshot / "tokenizer.json").unlink()
        missing = find_missing_encoder_files(name)
        assert len(missing) == len(lacks) and all(lack in problem for lack, problem in zip(lacks, missing, strict=True))
    assert get_tokenizer_name(base("small")) == get_tokenizer_name(base("desk")) == "minilm"
    assert load_tokenizer("minilm").get_vocab_size() == 30522, "as that of bert-base-uncased"


@pytest.mark.parametrize("content", ["[]", "3", "{", '"text"'])
def test_malformed_config_is_fetched_again(cache: Path, content: str) -> None:
    complete_download(snapshot := begin_download(cache))
    (snapshot / "config.json").write_text(content)
    [lack] = find_missing_encoder_files(NAME)
    assert str(snapshot / "config.json") in lack and lack.endswith("remove it and fetch it again")


@pytest.mark.parametrize("content", ["3", '{"path": "x"}', '[{"path": "1_Pooling"}]', '[{"path": 1, "type": 2}]'])
def test_odd_modules_are_no_tracebacks(tmp_path: Path, content: str) -> None:
    (folder := tmp_path / "odd").mkdir()
    complete_download(folder)
    (folder / "config.json").write_text("{}")
    (folder / "modules.json").write_text(content)
    for index in ("[]", '{"weight_map": 1}', '{"weight_map": {"a": ["b"]}}'):
        (folder / "model.safetensors.index.json").write_text(index)
        assert find_missing_encoder_files(str(folder)) == []
