"""A model keeps its tokenizer wherever it is saved. Its digest depends on the words, not on the folder."""

import json
import shutil
from pathlib import Path

import numpy as np

from repro.data.tokens import load_tokenizer
from repro.evaluate.digests import compute_model_digest
from repro.evaluate.mteb.model import MtebModel
from repro.interop.exporting import export_model
from repro.interop.opening import open_model
from repro.model.start import load_model
from tests.commands import ignore
from tests.interop.small import CORPUS, TEXTS, export_small_model


def renumber_words(folder: Path) -> None:
    """Give the words of a folder's tokenizer other ids."""
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    words = list(content["model"]["vocab"])
    content["model"]["vocab"] = {word: place for place, word in enumerate(words[:2000] + words[:1999:-1])}
    path.write_text(json.dumps(content))


def test_other_words_are_another_model(tmp_path: Path) -> None:
    _, folder = export_small_model(tmp_path, "contextual")
    model = open_model(str(folder)).ours
    model.set_context(CORPUS)
    vectors, digest = model.encode(TEXTS), compute_model_digest(model)
    revision = MtebModel(model).mteb_model_meta.revision
    renumber_words(folder)
    again = open_model(str(folder)).ours
    again.set_context(CORPUS)
    assert compute_model_digest(again) != digest
    assert MtebModel(again).mteb_model_meta.revision != revision
    assert np.abs(again.encode(TEXTS) - vectors).max() > 1e-3, "the old words were cached"


def test_saved_model_needs_no_old_folder(tmp_path: Path) -> None:
    """Its digest is that of the source and stands in its card, wherever the folder lies."""
    folder = export_small_model(tmp_path, "contextual")[1].rename(tmp_path / "moved")
    digest = compute_model_digest(open_model(str(folder)).ours)
    assert digest == compute_model_digest(open_model(str(tmp_path / "ours")).ours)
    assert f"weights and configuration: {digest}\n" in (folder / "README.md").read_text()
    renumber_words(folder)
    opened = open_model(str(folder)).ours
    opened.set_context(CORPUS)
    expected = opened.encode(TEXTS, "query")
    opened.save_pretrained(tmp_path / "again")
    export_model(str(tmp_path / "again"), tmp_path / "exported", progress=ignore)
    shutil.rmtree(folder)
    for again in (load_model(tmp_path / "again"), open_model(str(tmp_path / "exported")).ours):
        again.set_context(CORPUS)
        # `encode` could still use the cached tokenizer of the removed folder.
        assert load_tokenizer(again.config.tokenizer).get_vocab_size() == 30522
        np.testing.assert_allclose(again.encode(TEXTS, "query"), expected, atol=1e-6)
