"""Damaged weights, devices that do not exist and options without effect are refused before anything is scored."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from repro.data.beir import write_beir_folder
from repro.interop.arguments import to_device
from repro.interop.evaluating import EvaluationRequest, run_evaluation
from repro.model.biencoder import Biencoder
from tests.interop.small import make_collection, make_model


@pytest.mark.parametrize("damage", ["header", "half", "pickle", "nan"])
def test_damaged_model_is_refused(tmp_path: Path, damage: str) -> None:
    make_model("biencoder", num_layers=1, num_first_stage_layers=1).save_pretrained(tmp_path / "m")
    path = tmp_path / "m" / "model.safetensors"
    content = path.read_bytes()
    if damage == "nan":
        weights = load_file(path)
        next(iter(weights.values())).view(-1)[0] = torch.nan
        save_file(weights, path)
    else:
        path.write_bytes({"header": b"\x10" + bytes(7) + b"{}", "half": content[:-9], "pickle": b"\x80\x04."}[damage])
    with pytest.raises(ValueError, match=r"m/model.safetensors"):
        Biencoder.from_pretrained(tmp_path / "m")


def test_impossible_device_is_refused() -> None:
    to_device(torch.nn.Linear(1, 1), None)  # type: ignore[arg-type]
    for device in ("mars", "cpu:99", "meta", "cuda:77"):
        with pytest.raises(ValueError, match=f"device '{device}' is not on this machine"):
            to_device(torch.nn.Linear(1, 1), device)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("options", "out", "message"),
    [
        ({"device": "mars"}, "out", "device 'mars'"),
        ({"widths": "0,-3,x"}, "out", "--width .*bm25 has no vectors"),
        ({}, "taken", r"taken.* is not a folder"),
        ({}, "taken/out", r"taken.* is not a folder"),
    ],
)
def test_impossible_evaluation_starts_nothing(tmp_path: Path, options: dict[str, str], out: str, message: str) -> None:
    """Impossible options and an output folder inside a file are refused before progress is logged."""
    write_beir_folder(tmp_path / "x", make_collection("x", ["one", "two"], ["what"]))
    (tmp_path / "taken").write_text("mine")
    lines: list[str] = []
    request = EvaluationRequest(model="bm25", suite=str(tmp_path / "x"), **options)
    with pytest.raises(ValueError, match=message):
        run_evaluation(request, tmp_path / out, progress=lines.append)
    assert not lines and not (tmp_path / "out").exists() and (tmp_path / "taken").read_text() == "mine"
