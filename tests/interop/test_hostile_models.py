"""What was found by hand on the command line: a model of ours that is damaged, and words that were taken in silence."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from repro.data.beir import write_beir_folder
from repro.interop.arguments import to_device
from repro.interop.evaluating import EvaluationRequest, run_evaluation
from repro.model.biencoder import Biencoder
from repro.model.config import ModelConfig
from tests.commands import ignore
from tests.fuzz.collections import small


def saved(folder: Path) -> Path:
    config = ModelConfig(architecture="biencoder", num_layers=1, num_first_stage_layers=1, hidden_size=16)
    Biencoder(config).save_pretrained(folder)
    return folder / "model.safetensors"


@pytest.mark.parametrize("damage", ["header", "half", "pickle", "nan"])
def test_damaged_model_is_refused(tmp_path: Path, damage: str) -> None:
    path = saved(tmp_path / "m")
    whole = path.read_bytes()
    if damage == "nan":
        weights = load_file(path)
        next(iter(weights.values())).view(-1)[0] = torch.nan
        save_file(weights, path)
    else:
        path.write_bytes({"header": b"\x10" + bytes(7) + b"{}", "half": whole[:-9], "pickle": b"\x80\x04."}[damage])
    with pytest.raises(ValueError, match=r"m/model.safetensors"):
        Biencoder.from_pretrained(tmp_path / "m")


@pytest.mark.parametrize("device", ["mars", "cpu:99", "meta", "", "cuda:77"])
def test_impossible_device_is_refused(device: str) -> None:
    if device:
        with pytest.raises(ValueError, match=f"device '{device}' is not on this machine"):
            to_device(torch.nn.Linear(1, 1), device)  # type: ignore[arg-type]
    else:
        to_device(torch.nn.Linear(1, 1), None)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "words"), [({"device": "mars"}, "device 'mars'"), ({"widths": "0,-3,x"}, "--width .*bm25 has no vectors")]
)
def test_options_without_effect_are_refused(tmp_path: Path, asked: dict[str, str], words: str) -> None:
    write_beir_folder(tmp_path / "x", small("x"))
    with pytest.raises(ValueError, match=words):
        run_evaluation(
            EvaluationRequest(model="bm25", suite=str(tmp_path / "x"), **asked), tmp_path / "out", progress=ignore
        )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["file", "inside a file"])
def test_impossible_output_is_refused_first(tmp_path: Path, kind: str) -> None:
    write_beir_folder(tmp_path / "x", small("x"))
    (tmp_path / "taken").write_text("mine")
    said: list[str] = []
    out = tmp_path / "taken" if kind == "file" else tmp_path / "taken" / "out"
    with pytest.raises(ValueError, match=r"taken.* is not a folder"):
        run_evaluation(EvaluationRequest(model="bm25", suite=str(tmp_path / "x")), out, progress=said.append)
    assert not said and (tmp_path / "taken").read_text() == "mine"
