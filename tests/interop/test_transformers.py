"""Exports for transformers and model cards: the same vectors, safetensors only, known facts only."""

import re
from pathlib import Path

import numpy as np
import pytest

from repro.interop.exporting import export_model
from repro.interop.opening import open_model
from tests.commands import ignore
from tests.interop.small import export_small_model, make_model


def test_plain_transformers_folder_is_refused(tmp_path: Path) -> None:
    _, folder = export_small_model(tmp_path, "biencoder", "sentence-transformers")
    (folder / "modules.json").unlink()
    with pytest.raises(ValueError, match=r"a plain model of transformers \('nomic_bert'\)"):
        open_model(str(folder))


@pytest.mark.parametrize(
    ("architecture", "to"),
    [("biencoder", "sentence-transformers"), ("contextual", "sentence-transformers"), ("biencoder", "transformers"),
     ("contextual", "transformers")],
)  # fmt: skip
def test_card_is_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], architecture: str, to: str
) -> None:
    """It starts with scores, marks unknown facts, and its code runs."""
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
