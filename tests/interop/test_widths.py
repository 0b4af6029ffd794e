"""Prefixes of vectors are exported and scored. Prefixes that the model was not trained for give a warning."""

import json
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from repro.data.beir import write_beir_folder
from repro.evaluate.prefixes import take_prefix
from repro.interop.exporting import export_model
from repro.interop.opening import Opened
from repro.interop.sentence_transformers_folder import as_sentence_transformer
from repro.interop.stock_encoder import StockEncoder
from repro.interop.trained_on import write_trained_on
from repro.interop.trained_widths import (
    find_untrained_widths,
    get_width,
    list_export_warnings,
    list_width_warnings,
    parse_widths,
)
from repro.spec import base
from tests.commands import run_command
from tests.interop.small import TEXTS, export_small_model, make_collection, make_model


def test_cut_folder_gives_our_prefixes(tmp_path: Path) -> None:
    """Our cut and the truncation of the library give the same prefixes."""
    model, whole = export_small_model(tmp_path, "biencoder", "sentence-transformers")
    warning = export_model(str(tmp_path / "ours"), tmp_path / "cut", "sentence-transformers", width=8)[0]
    cut = SentenceTransformer(str(tmp_path / "cut"), device="cpu")
    truncated = SentenceTransformer(str(whole), device="cpu", truncate_dim=8)
    assert cut.truncate_dim == cut.get_embedding_dimension() == 8
    for prompt in ("query", "document"):
        expected = take_prefix(model.encode(TEXTS, prompt), 8)
        for theirs in (cut, truncated):
            vectors = theirs.encode(TEXTS, prompt_name=prompt, normalize_embeddings=True, show_progress_bar=False)
            np.testing.assert_allclose(vectors, expected, atol=1e-6, rtol=0)
    assert np.allclose(np.linalg.norm(cut.encode(TEXTS, show_progress_bar=False), axis=1), 1), "the folder normalises"
    assert "is not known to be trained for prefixes of 8 dimensions" in warning
    assert "vectors of 8 numbers, the first of 16" in (tmp_path / "cut" / "README.md").read_text()


@pytest.mark.parametrize(
    ("architecture", "to", "width", "message"),
    [
        ("biencoder", "sentence-transformers", 12, "--width='12': 12 does not divide 16"),
        ("biencoder", "sentence-transformers", 32, "32 does not divide 16, the width of the vectors"),
        ("biencoder", "transformers", 8, "only a biencoder's folder for sentence-transformers can be cut"),
        ("contextual", "sentence-transformers", 8, "of other vectors take the first 8 dimensions"),
    ],
)
def test_impossible_width_is_refused(tmp_path: Path, architecture: str, to: str, width: int, message: str) -> None:
    make_model(architecture).save_pretrained(tmp_path / "ours")
    with pytest.raises(ValueError, match="--width=") as raised:
        export_model(str(tmp_path / "ours"), tmp_path / "out", to, width=width)
    assert message in str(raised.value) and "\n" not in str(raised.value)
    assert not (tmp_path / "out").exists()


def test_widths_are_checked_against_vectors() -> None:
    model = make_model("biencoder")
    assert parse_widths("4,8,full", 16) == (4, 8) and parse_widths(None, 16) == () and get_width(model) == 16
    assert parse_widths("12,full,3,3", 16) == (3, 12), "other models have widths that do not divide the whole"
    for text, message in (("4,24", "24 .* from 1 to 16"), ("0", "0 is not a width"), ("4+8", "is not a width")):
        with pytest.raises(ValueError, match=message):
            parse_widths(text, 16)
    assert get_width(StockEncoder(as_sentence_transformer(model, width=8))) == 8


def test_untrained_prefixes_are_warned_about() -> None:
    opened, run = Opened(make_model("biencoder"), "it"), base("smoke", nested_sizes="8+16")
    assert find_untrained_widths(run, (4, 8)) == [4] and find_untrained_widths(None, (4, 8)) is None
    for trained, width in ((run, 16), (run, 8), (None, 16)):
        assert list_export_warnings(opened, width, trained) == []
    assert "was not trained for prefixes of 4" in list_export_warnings(opened, 4, run)[0]
    scores = {"zoo/mean/ndcg_at_10": 0.5, "zoo+width4/mean/ndcg_at_10": 0.4, "zoo+width8/mean/ndcg_at_10": 0.3}
    (line,) = list_width_warnings({"called": "it", "widths": [4, 8], "untrained_widths": [4]}, "zoo", scores)
    assert "prefixes of 4 dimensions; they lose 10.0 points" in line
    assert list_width_warnings({"called": "it"}, "zoo", scores) == []


def test_widths_are_compared_with_intervals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    documents = [f"{word} and {other}" for word in ("rain", "snow", "bread") for other in ("iron", "drum")]
    write_beir_folder(tmp_path / "zoo", make_collection("zoo", documents, documents))
    model = make_model("biencoder")
    model.save_pretrained(tmp_path / "plain")
    words = ["evaluate", "--suite", "zoo", "--model", "plain", "--no-bm25", "--width", "4,8,full"]
    output = run_command(*words)
    header = next(line for line in output.splitlines() if "collection" in line)
    assert header.split() == ["collection", "full", "width4", "width8"]
    assert "full − width4" in output and "is not known to be trained for prefixes of 4 dimensions" in output
    write_trained_on(tmp_path / "plain", base("smoke", nested_sizes="4+8+16"))
    scores = json.loads(run_command(*words, "--json"))
    assert scores["provenance"]["model"]["untrained_widths"] == [], "an exported folder names its run"
    metrics = scores["metrics"]
    assert {path.split("/")[0] for path in metrics} == {"zoo", "zoo+width4", "zoo+width8"}
    vectors = {side: take_prefix(model.encode(documents, side), 4) for side in ("query", "document")}
    places = np.argsort(-np.round(vectors["query"] @ vectors["document"].T, 6), axis=1, kind="stable")
    ranks = [list(row).index(n) for n, row in enumerate(places)]
    expected = np.mean([1 / np.log2(rank + 2) if rank < 10 else 0 for rank in ranks])
    assert metrics["zoo+width4/mean/ndcg_at_10"] == pytest.approx(expected, abs=1e-6)
