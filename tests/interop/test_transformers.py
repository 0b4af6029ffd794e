"""Exports for transformers and model cards: the same vectors, safetensors only, known facts only."""

import json
import re
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest
import torch
from transformers import AutoModel

from repro.interop.exporting import export_model
from repro.interop.opening import open_model
from repro.interop.self_contained import make_fast_tokenizer
from repro.interop.transformers_model import CdeConfig
from repro.model.biencoder import Biencoder
from repro.model.contextual import ContextualModel
from repro.model.encoding import WEIGHTS_FILE, write_tensors
from tests.commands import ignore
from tests.interop.checkpoints import write_usable_checkpoint
from tests.interop.small import CLOSE, CORPUS, TEXTS, export_small_model, make_hub_snapshot, make_model


def write_old_folder(model: Biencoder | ContextualModel, folder: Path) -> None:
    """Write the files of version 0.1.0, which need an import of our module."""
    make_fast_tokenizer(model.config).save_pretrained(folder)
    write_tensors({f"encoder.{name}": weight for name, weight in model.state_dict().items()}, folder / WEIGHTS_FILE)
    config = {"model_type": CdeConfig.model_type, "architectures": ["CdeModel"], "transductive_corpus_size": 4}
    (folder / "config.json").write_text(json.dumps(config | {"repro": asdict(model.config)}))


@pytest.mark.parametrize("architecture", ["biencoder", "contextual"])
def test_folder_of_version_0_1_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str) -> None:
    """It opens by our names and by AutoModel, also from the hub's cache. Saved again, it is a folder of today."""
    model = make_model(architecture)
    snapshot = make_hub_snapshot(tmp_path / "cache", "me/mine")
    write_old_folder(model, snapshot / "small")
    ours = open_model(str(snapshot / "small")).ours
    options = {"cache_dir": str(tmp_path / "cache"), "local_files_only": True, "subfolder": "small"}
    theirs = AutoModel.from_pretrained("me/mine", **options)
    theirs.save_pretrained(tmp_path / "again")
    again = open_model(str(tmp_path / "again")).ours
    if isinstance(model, ContextualModel):
        for encoder in (model, ours, theirs, again):
            encoder.set_context(CORPUS)
    for encoder in (ours, theirs, again):
        np.testing.assert_allclose(encoder.encode(TEXTS, "query"), model.encode(TEXTS, "query"), **CLOSE)
    narrow = AutoModel.from_pretrained(snapshot / "small", dtype=torch.bfloat16)
    assert {weight.dtype for weight in narrow.parameters()} == {torch.bfloat16}


def test_damaged_old_folder_is_refused(tmp_path: Path) -> None:
    """A pickle, an inconsistent config and an unknown field are named."""
    write_old_folder(make_model("biencoder"), tmp_path)
    weights = (tmp_path / "model.safetensors").rename(tmp_path / "pytorch_model.bin")
    with pytest.raises(ValueError, match="never read"):
        AutoModel.from_pretrained(tmp_path)
    weights.rename(tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    config["repro"]["num_layers"] += 1
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"\d+ missing, 0 extra, 0 of another shape"):
        AutoModel.from_pretrained(tmp_path)
    config["repro"]["colour"] = "red"
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="colour"):
        AutoModel.from_pretrained(tmp_path)


def test_plain_transformers_folder_is_refused(tmp_path: Path) -> None:
    _, folder = export_small_model(tmp_path, "biencoder", "sentence-transformers")
    (folder / "modules.json").unlink()
    with pytest.raises(ValueError, match=r"a plain model of transformers \('nomic_bert'\)"):
        open_model(str(folder))


def test_failed_export_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="contextual models only"):
        export_small_model(tmp_path, "biencoder", "official")
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob(".out*"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "precious").write_text("x")
    with pytest.raises(ValueError, match="nothing is overwritten"):
        export_model(str(tmp_path / "ours"), tmp_path / "out", "transformers")


@pytest.mark.parametrize(
    ("architecture", "to"),
    [("biencoder", "sentence-transformers"), ("contextual", "sentence-transformers"), ("biencoder", "transformers"),
     ("contextual", "transformers"), ("official", "official")],
)  # fmt: skip
def test_card_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], architecture: str, to: str
) -> None:
    """It starts with scores, marks unknown facts, and its code runs."""
    if architecture == "official":
        write_usable_checkpoint(tmp_path / "ours")
    else:
        make_model(architecture).save_pretrained(tmp_path / "ours")
    export_model(str(tmp_path / "ours"), tmp_path / "mine", to, progress=ignore)
    card = (tmp_path / "mine" / "README.md").read_text()
    sections = re.findall(r"^## (.*)$", card, re.MULTILINE)
    assert sections[:2] == ["Scores", "Use"] and sections[-1] == "Digests" and "Limits" in sections
    assert card.startswith("---\nlibrary_name: ")
    assert "Not known" in card and "Not evaluated here" in card, "the run is unknown"
    (code,) = re.findall(r"```python\n(.*?)```", card, re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 11
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(code, names)
    ours = open_model(str(tmp_path / "ours")).model
    ours.set_context(names["documents"])
    scores = ours.encode(names["questions"], "query") @ ours.encode(names["documents"]).T
    np.testing.assert_allclose(names["scores"], scores, atol=1e-5)
    assert capsys.readouterr().out.strip() == names["documents"][int(scores[0].argmax())]


def test_missing_import_is_named(tmp_path: Path) -> None:
    write_old_folder(make_model("biencoder"), tmp_path)
    code = f"from transformers import AutoModel; AutoModel.from_pretrained({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode != 0 and "import repro.interop.transformers_model first" in done.stderr
