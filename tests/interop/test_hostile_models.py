"""Damaged weights, devices that do not exist and options without effect are refused before anything is scored."""

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
from tests.interop.small import make_collection


def save_model(folder: Path) -> Path:
    """Save a small biencoder and return the path of its weights."""
    config = ModelConfig(architecture="biencoder", num_layers=1, num_first_stage_layers=1, hidden_size=16)
    Biencoder(config).save_pretrained(folder)
    return folder / "model.safetensors"


@pytest.mark.parametrize("damage", ["header", "half", "pickle", "nan"])
def test_damaged_model_is_refused(tmp_path: Path, damage: str) -> None:
    path = save_model(tmp_path / "m")
    whole = path.read_bytes()
    if damage == "nan":
        weights = load_file(path)
        next(iter(weights.values())).view(-1)[0] = torch.nan
        save_file(weights, path)
    else:
        path.write_bytes({"header": b"\x10" + bytes(7) + b"{}", "half": whole[:-9], "pickle": b"\x80\x04."}[damage])
    with pytest.raises(ValueError, match=r"m/model.safetensors"):
        Biencoder.from_pretrained(tmp_path / "m")


def test_impossible_device_is_refused() -> None:
    to_device(torch.nn.Linear(1, 1), None)  # type: ignore[arg-type]
    for device in ("mars", "cpu:99", "meta", "cuda:77"):
        with pytest.raises(ValueError, match=f"device '{device}' is not on this machine"):
            to_device(torch.nn.Linear(1, 1), device)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "message"),
    [({"device": "mars"}, "device 'mars'"), ({"widths": "0,-3,x"}, "--width .*bm25 has no vectors")],
)
def test_options_without_effect_are_refused(tmp_path: Path, options: dict[str, str], message: str) -> None:
    write_beir_folder(tmp_path / "x", make_collection("x", ["one", "two"], ["what"]))
    request = EvaluationRequest(model="bm25", suite=str(tmp_path / "x"), **options)
    with pytest.raises(ValueError, match=message):
        run_evaluation(request, tmp_path / "out", progress=ignore)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("kind", ["file", "inside a file"])
def test_impossible_output_is_refused_first(tmp_path: Path, kind: str) -> None:
    write_beir_folder(tmp_path / "x", make_collection("x", ["one", "two"], ["what"]))
    (tmp_path / "taken").write_text("mine")
    lines: list[str] = []
    out = tmp_path / "taken" if kind == "file" else tmp_path / "taken" / "out"
    with pytest.raises(ValueError, match=r"taken.* is not a folder"):
        run_evaluation(EvaluationRequest(model="bm25", suite=str(tmp_path / "x")), out, progress=lines.append)
    assert not lines and (tmp_path / "taken").read_text() == "mine"
