"""Damaged, dangerous or inconsistent checkpoints end in one clear error, and no code of theirs is executed."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from repro.interop.official.folder import find_folder, load_official
from repro.interop.safe_weights import read_safetensors
from repro.model.biencoder import Biencoder
from tests.interop.checkpoints import random_weights, write_checkpoint
from tests.interop.small import make_hub_snapshot, make_model


class Bomb:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return (os.mkdir, (self.path,))


def assert_refused(folder: Path, message: str, **options: Any) -> None:
    """Loading the folder raises a message of one line. Malformed headers are in tests/fuzz/test_strategies.py."""
    with pytest.raises(ValueError, match=message) as caught:
        load_official(folder, **options)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_no_pickle_is_ever_loaded(tmp_path: Path, name: str) -> None:
    write_checkpoint(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    (tmp_path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert_refused(tmp_path, "pickle")
    with pytest.raises(ValueError, match="pickle"):
        read_safetensors(tmp_path / name)
    torch.save({"a": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert_refused(tmp_path, "pickle")
    assert not (tmp_path / "exploded").exists()


def test_a_truncated_file_is_named(tmp_path: Path) -> None:
    """tests/fuzz has other kinds of damage."""
    make_model("biencoder").save_pretrained(tmp_path / "ours")
    write_checkpoint(tmp_path / "theirs")
    for name, load in (("ours", Biencoder.from_pretrained), ("theirs", load_official)):
        path = tmp_path / name / "model.safetensors"
        path.write_bytes(path.read_bytes()[:-1])
        with pytest.raises(ValueError, match=rf"{name}/model\.safetensors"):
            load(tmp_path / name)


def test_wrong_weights_are_named(tmp_path: Path) -> None:
    weights = random_weights("nomic")
    weights.pop("first_stage_model.mlp.0.bias")
    weights["second_stage_model.input_ln.weight"] = torch.zeros(16)
    weights["second_stage_model.backbone.emb_ln.bias"] = torch.zeros(17)
    write_checkpoint(tmp_path, weights=weights)
    counts = "1 missing, 1 extra, 1 of another shape"
    assert_refused(tmp_path, rf"{counts}.*mlp\.0\.bias.*input_ln.*emb_ln\.bias is \[17\], not \[16\]")


def test_names_of_compiled_models_are_read(tmp_path: Path) -> None:
    plain = random_weights("nomic")
    weights = {name.replace("_stage_model.", "_stage_model._orig_mod.", 1): plain[name] for name in plain}
    write_checkpoint(tmp_path, weights=weights)
    load_official(tmp_path)
    weights["first_stage_model.mlp.0.bias"] = torch.zeros(16)
    write_checkpoint(tmp_path, weights=weights)
    assert_refused(tmp_path, "twice")


def test_non_finite_weights_are_named(tmp_path: Path) -> None:
    weights = random_weights("nomic")
    weights["first_stage_model.mlp.0.bias"][3] = float("nan")
    write_checkpoint(tmp_path, weights=weights)
    assert_refused(tmp_path, r"not finite in \['first_stage_model\.mlp\.0\.bias'\]")


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"embedder": "meta-llama/Llama-3.2-1B", "base_model": None}, "base_model"),
        ({"autoregressive_backbone": True}, "autoregressive_backbone"),
        ({"dataset_backbone": "bert-base-uncased"}, "dataset_backbone"),
        ({"transductive_tie_token_embeddings": True}, "transductive_tie"),
        ({"pooling_strategy": "last_token"}, "pooling_strategy"),
        ({"transductive_tokens_per_document": 2}, "tokens_per_document"),
        ({"disable_transductive_rotary_embedding": False}, "rotary"),
        (b'{"embedder": "bert-base-uncased"}', "bert-base-uncased.*nomic-bert-2048.*ModernBERT-base"),
        (b"{", "not JSON"),
        (b"[]", "list"),
        (b"\xff\xfe{", "not JSON"),
    ],
)
def test_impossible_configs_name_the_field(tmp_path: Path, fields: dict[str, Any] | bytes, message: str) -> None:
    if isinstance(fields, bytes):
        write_checkpoint(tmp_path)
        (tmp_path / "config.json").write_bytes(fields)
    else:
        write_checkpoint(tmp_path, **fields)
    assert_refused(tmp_path, message)


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Cut the hub off. Its cache is the temporary folder."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("jxm/cde-small-v1", "could not be downloaded .*hf download jxm/cde-small-v1"),
        ("cde-small-v2", "cde-small-v2 is not a folder.*hf download cde-small-v2"),
        ("/no/such folder/anywhere", "neither a folder nor a hub id"),
    ],
)
def test_unreachable_hub_id_is_explained(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        find_folder(name)


@pytest.mark.usefixtures("offline")
def test_partial_cache_is_no_model(tmp_path: Path) -> None:
    snapshot = make_hub_snapshot(tmp_path, "some/model")
    (snapshot / "0_Transformer").mkdir()
    # Loading only a tokenizer leaves a cache without weights.
    (snapshot / "config.json").write_text("{}")
    with pytest.raises(ValueError, match=r"some/model has no weights .*hf download some/model"):
        find_folder("some/model", files=["*.json", "*.safetensors"])
    (snapshot / "0_Transformer" / "model.safetensors").write_bytes(b"")
    assert find_folder("some/model", files=["*.json", "*.safetensors"]) == snapshot
