"""Exports for transformers, uploads and model cards: the same vectors, safetensors only, known facts only."""

import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer, BatchEncoding

from repro.data.prompts import PROMPTS
from repro.interop.contextual_module import make_fast_tokenizer
from repro.interop.exporting import export_model, push_to_hub
from repro.interop.opening import open_model
from repro.interop.transformers_model import CdeModel
from repro.model.biencoder import Biencoder
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from tests.commands import ignore, run_command
from tests.interop.checkpoints import write_usable_checkpoint
from tests.interop.small import CLOSE, CORPUS, TEXTS, export_small_model, make_hub_snapshot, make_model


def normalise(vectors: torch.Tensor | np.ndarray) -> np.ndarray:
    vectors = np.asarray(vectors)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def export_old(tmp_path: Path, architecture: str) -> tuple[Biencoder | ContextualModel, Path]:
    """Write the format of version 0.1.0, which needs an import of our module."""
    model = make_model(architecture)
    CdeModel.of(model).save_pretrained(tmp_path / "out")
    make_fast_tokenizer(model.config).save_pretrained(tmp_path / "out")
    return model, tmp_path / "out"


def tokenize(folder: Path, texts: list[str], prompt: str, config: ModelConfig) -> BatchEncoding:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    prefix = getattr(PROMPTS[config.prompts], prompt)
    options = {"padding": True, "truncation": True, "return_tensors": "pt", "return_token_type_ids": False}
    return tokenizer([prefix + text for text in texts], **options)


def test_auto_classes_open_a_biencoder(tmp_path: Path) -> None:
    model, folder = export_old(tmp_path, "biencoder")
    theirs = AutoModel.from_pretrained(folder)
    with torch.no_grad():
        vectors = theirs(**tokenize(folder, TEXTS, "query", model.config)).pooler_output
    np.testing.assert_allclose(normalise(vectors), model.encode(TEXTS, "query"), **CLOSE)


def test_auto_classes_open_a_contextual_model(tmp_path: Path) -> None:
    """Its encoder has our interface, and saving it again gives identical bytes."""
    model, old = export_old(tmp_path, "contextual")
    folder = old.rename(tmp_path / "moved")
    theirs = AutoModel.from_pretrained(folder)
    size = AutoConfig.from_pretrained(folder).transductive_corpus_size
    context = tokenize(folder, CORPUS[:size], "document", model.config)
    texts = tokenize(folder, TEXTS, "document", model.config)
    model.set_context(CORPUS[:size])
    expected = model.encode(TEXTS, "document")
    with torch.no_grad():
        for options in (
            {"dataset_embeddings": theirs.first_stage(**context)},
            {"dataset_input_ids": context["input_ids"], "dataset_attention_mask": context["attention_mask"]},
        ):
            np.testing.assert_allclose(normalise(theirs(**texts, **options).pooler_output), expected, **CLOSE)
    with pytest.raises(ValueError, match="needs dataset_input_ids or dataset_embeddings"):
        theirs(**texts)
    theirs.encoder.set_context(CORPUS[:size])
    np.testing.assert_allclose(theirs.encoder.encode(TEXTS, "document"), expected, **CLOSE)
    assert theirs.encoder.config.tokenizer == str(folder)
    theirs.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    assert {path.suffix for path in folder.iterdir()} == {".json", ".safetensors"}


def test_damaged_folder_is_refused(tmp_path: Path) -> None:
    """A pickle, an inconsistent config and an unknown field are named."""
    _, folder = export_old(tmp_path, "biencoder")
    weights = (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ValueError, match="never read"):
        AutoModel.from_pretrained(folder)
    weights.rename(folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["repro"]["num_layers"] += 1
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"\d+ missing, 0 extra, 0 of another shape; first of each: \['encoder"):
        AutoModel.from_pretrained(folder)
    config["repro"]["colour"] = "red"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ValueError, match="colour"):
        AutoModel.from_pretrained(folder)


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


class FakeHub:
    """Records the two calls of an upload."""

    def __init__(self, error: Exception | None = None) -> None:
        self.calls = []
        self.error = error

    def create_repo(self, repo_id: str, **options: object) -> None:
        if self.error is not None:
            raise self.error
        self.calls.append(("create", repo_id, options))

    def upload_folder(self, *, folder_path: str, repo_id: str, commit_message: str) -> SimpleNamespace:
        self.calls.append(("upload", repo_id, folder_path))
        return SimpleNamespace(commit_url=f"address of {repo_id}")


def test_upload_is_folder_with_card(tmp_path: Path) -> None:
    """After a failure, the message has the command that repeats the upload."""
    _, folder = export_small_model(tmp_path, "biencoder", "transformers")
    message = rf"\(no way there\): repeat with `hf upload me/mine {folder} --private`"
    with pytest.raises(ValueError, match=message):
        push_to_hub(folder, "me/mine", private=True, api=FakeHub(ConnectionError("no way there")))
    hub = FakeHub()
    assert push_to_hub(folder, "me/mine", private=True, api=hub) == "address of me/mine"
    assert hub.calls == [("create", "me/mine", {"private": True, "exist_ok": True}), ("upload", "me/mine", str(folder))]
    (folder / "README.md").unlink()
    with pytest.raises(ValueError, match="has no README"):
        push_to_hub(folder, "me/mine", api=hub)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--push-to", "me//mine"], "me//mine: no hub id"),
        (["--push-to", "mine"], "mine: no hub id"),
        (["--push-to", "me/mi--ne"], "me/mi--ne: no hub id"),
        (["--private"], "--private needs an upload"),
    ],
)
def test_impossible_upload_is_refused_first(tmp_path: Path, words: list[str], message: str) -> None:
    make_model("biencoder").save_pretrained(tmp_path / "ours")
    with pytest.raises(ValueError, match=message):
        run_command("export", str(tmp_path / "ours"), str(tmp_path / "out"), "--to", "transformers", *words)
    assert not (tmp_path / "out").exists()


def test_unknown_options_are_refused(tmp_path: Path) -> None:
    model, folder = export_old(tmp_path, "biencoder")
    narrow = AutoModel.from_pretrained(folder, dtype=torch.bfloat16, trust_remote_code=False, use_safetensors=True)
    assert {weight.dtype for weight in narrow.parameters()} == {torch.bfloat16}
    with torch.no_grad():
        vectors = narrow(**tokenize(folder, TEXTS, "query", model.config)).pooler_output.float()
    assert (normalise(vectors) * model.encode(TEXTS, "query")).sum(1).min() > 0.98
    assert AutoModel.from_pretrained(folder, torch_dtype="float16").dtype == torch.float16
    assert AutoModel.from_pretrained(folder, dtype="auto").dtype == torch.float32
    for option in ({"device_map": "auto"}, {"output_loading_info": True}, {"use_safetensors": False}):
        with pytest.raises(ValueError, match=f"from_pretrained does not support .*{next(iter(option))}"):
            AutoModel.from_pretrained(folder, **option)
    with pytest.raises(ValueError, match="int8"):
        AutoModel.from_pretrained(folder, dtype="int8")


def test_hub_cache_folder_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model, folder = export_old(tmp_path, "biencoder")
    folder.rename(make_hub_snapshot(tmp_path / "cache", "me/mine") / "small")
    options = {"cache_dir": str(tmp_path / "cache"), "local_files_only": True, "subfolder": "small"}
    opened = AutoModel.from_pretrained("me/mine", **options).encoder
    np.testing.assert_allclose(opened.encode(TEXTS, "query"), model.encode(TEXTS, "query"), **CLOSE)


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
    assert "Not known here" in card and "Not evaluated here" in card, "the run is unknown"
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
    _, folder = export_old(tmp_path, "biencoder")
    code = f"from transformers import AutoModel; AutoModel.from_pretrained({str(folder)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode != 0 and "import repro.interop.transformers_model first" in done.stderr
