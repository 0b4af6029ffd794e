"""Promises of a model's words: they go where it goes, and its digest is of them, not of where they lie."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from repro.data.tokens import get_minilm_folder, load_tokenizer
from repro.evaluate.digests import compute_model_digest
from repro.evaluate.mteb.model import MtebModel
from repro.interop.exporting import export_model
from repro.interop.opening import open_model
from repro.interop.sentence_transformers_folder import open_sentence_transformers
from repro.interop.transformers_model import CdeModel
from repro.model.start import load_model
from tests.interop.test_sentence_transformers import CORPUS, TEXTS, model_of

FORMATS = [
    ("contextual", "sentence-transformers"),
    ("contextual", "transformers"),
    ("contextual", "official"),
    ("biencoder", "transformers"),
]


def swap_words(folder: Path) -> None:
    """Give the words of a folder's tokenizer other numbers."""
    path = folder / "tokenizer.json"
    told = json.loads(path.read_text())
    words = list(told["model"]["vocab"])
    told["model"]["vocab"] = {word: place for place, word in enumerate(words[:2000] + words[:1999:-1])}
    path.write_text(json.dumps(told))


def exported(tmp_path: Path, architecture: str, to: str) -> Path:
    model_of(architecture, num_soft_prompts=8).save_pretrained(tmp_path / "ours")
    export_model(str(tmp_path / "ours"), tmp_path / "out", to, progress=lambda line: None)
    return tmp_path / "out"


@pytest.mark.parametrize(("architecture", "to"), FORMATS)
def test_digest_ignores_the_place(tmp_path: Path, architecture: str, to: str) -> None:
    folder = exported(tmp_path, architecture, to)
    card = (folder / "README.md").read_text()
    folder.rename(tmp_path / "moved")
    digest = compute_model_digest(open_model(str(tmp_path / "moved")).ours)
    assert digest == compute_model_digest(open_model(str(tmp_path / "ours")).ours)
    assert f"weights and configuration: {digest}\n" in card


def test_other_words_are_another_model(tmp_path: Path) -> None:
    folder = exported(tmp_path, "biencoder", "transformers")
    model = open_model(str(folder)).ours
    vectors, digest = model.encode(TEXTS), compute_model_digest(model)
    revision = MtebModel(model, context="none").mteb_model_meta.revision
    swap_words(folder)
    again = open_model(str(folder)).ours
    assert (
        compute_model_digest(again) != digest and MtebModel(again, context="none").mteb_model_meta.revision != revision
    )
    assert np.abs(again.encode(TEXTS) - vectors).max() > 1e-3, "nor are words read of before the change"


@pytest.mark.parametrize(("architecture", "to"), FORMATS)
def test_saved_model_needs_no_old_folder(tmp_path: Path, architecture: str, to: str) -> None:
    folder = exported(tmp_path, architecture, to)
    if to != "official":  # whose words are then the common ones
        swap_words(folder)
    opened = open_model(str(folder)).ours
    opened.set_context(CORPUS)
    wanted = opened.encode(TEXTS, "query")
    opened.save_pretrained(tmp_path / "again")
    CdeModel.of(opened).save_pretrained(tmp_path / "for_transformers")
    shutil.rmtree(folder)
    for again in (load_model(tmp_path / "again"), open_model(str(tmp_path / "for_transformers")).ours):
        again.set_context(CORPUS)
        assert load_tokenizer(again.config.tokenizer).get_vocab_size() == 30522, (
            "read anew: encode knows those of before"
        )
        np.testing.assert_allclose(again.encode(TEXTS, "query"), wanted, atol=1e-6)


def test_lost_folder_keeps_its_words(tmp_path: Path) -> None:
    folder = exported(tmp_path, "contextual", "sentence-transformers")
    module = open_sentence_transformers(folder)[0]
    shutil.rmtree(folder)
    module.save(str(tmp_path))
    assert (tmp_path / "tokenizer.json").is_file()


def test_lost_words_are_named(tmp_path: Path) -> None:
    (tmp_path / "words").mkdir()
    shutil.copy(get_minilm_folder() / "tokenizer.json", tmp_path / "words")
    name = str(tmp_path / "words")
    assert load_tokenizer(name).get_vocab_size() == 30522
    shutil.rmtree(tmp_path / "words")
    with pytest.raises(ValueError, match=f"^the tokenizer folder {name} is gone: put it back"):
        load_tokenizer(name)
