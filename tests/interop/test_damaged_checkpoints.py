"""Damaged, dangerous or inconsistent checkpoints end in one clear error, and no code of theirs is executed."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from repro.interop.official.folder import load_official
from repro.interop.opening import open_model
from tests.interop.checkpoints import random_weights, write_checkpoint


class Bomb:
    """Creates a folder when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)

    def __reduce__(self) -> tuple[Callable[..., None], tuple[str]]:
        return (os.mkdir, (self.path,))


@pytest.mark.parametrize("name", ["model.safetensors", "pytorch_model.bin"])
def test_no_pickle_is_ever_loaded(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "theirs"
    write_checkpoint(folder)
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    with pytest.raises(ValueError, match=str(folder)):
        open_model(str(folder))
    assert not (tmp_path / "exploded").exists()


def test_names_of_compiled_models_are_read(tmp_path: Path) -> None:
    plain = random_weights("nomic")
    weights = {name.replace("_stage_model.", "_stage_model._orig_mod.", 1): plain[name] for name in plain}
    write_checkpoint(tmp_path, weights=weights)
    load_official(tmp_path)


WRONG_WEIGHTS = {
    "first_stage_model.mlp.0.bias": (None, "1 missing"),
    "second_stage_model.input_ln.weight": (torch.zeros(16), "1 extra.*input_ln"),
    "second_stage_model.backbone.emb_ln.bias": (torch.zeros(17), r"emb_ln\.bias is \[17\], not \[16\]"),
    "first_stage_model._orig_mod.mlp.0.bias": (torch.zeros(16), "twice"),
    "first_stage_model.mlp.2.bias": (torch.full((16,), float("nan")), "not finite"),
}


@pytest.mark.parametrize("name", WRONG_WEIGHTS)
def test_wrong_weights_are_named(tmp_path: Path, name: str) -> None:
    weights, (value, message) = random_weights("nomic"), WRONG_WEIGHTS[name]
    weights.pop(name, None)
    write_checkpoint(tmp_path, weights=weights if value is None else {**weights, name: value})
    with pytest.raises(ValueError, match=message):
        load_official(tmp_path)


@pytest.mark.parametrize(
    "fields",
    [
        {"embedder": "meta-llama/Llama-3.2-1B", "base_model": None},
        {"autoregressive_backbone": True},
        {"dataset_backbone": "bert-base-uncased"},
        {"transductive_tie_token_embeddings": True},
        {"pooling_strategy": "last_token"},
        {"transductive_tokens_per_document": 2},
        {"disable_transductive_rotary_embedding": False},
    ],
    ids=str,
)
def test_unsupported_configs_are_refused(tmp_path: Path, fields: dict[str, Any]) -> None:
    write_checkpoint(tmp_path, **fields)
    with pytest.raises(ValueError, match=list(fields)[-1]):
        load_official(tmp_path)
