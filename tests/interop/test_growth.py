"""The loss under an outdated context equals the difference of two evaluations."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from repro.data.beir import Retrieval, write_beir_folder
from repro.evaluate.contexts import draw_context
from repro.interop.card import make_model_card
from repro.interop.growth import NEW_SHARES, format_growth, measure_growth, remove_new_documents
from repro.interop.opening import Opened, open_suite
from tests.commands import ignore
from tests.interop.small import make_collection, make_model

WORDS = ["oak", "birch", "fern", "moss", "rose", "ivy", "reed", "lily", "elm", "ash", "yew", "pine"]
DOCUMENTS = [f"the {word} grows near the {WORDS[n - 1]}" for n, word in enumerate(WORDS)]
PLANTS = make_collection("plants", DOCUMENTS, [f"where is the {word}" for word in WORDS])


def test_loss_equals_two_evaluations(tmp_path: Path) -> None:
    """The reference computes NDCG@10 from the rank of the only relevant document under each context."""
    write_beir_folder(tmp_path / "plants", PLANTS)
    model = make_model("contextual")
    results = measure_growth(model, open_suite(str(tmp_path / "plants"), print), progress=ignore)

    def ndcg(source: Retrieval) -> float:
        model.set_context(draw_context("own", source, num_contexts=model.config.num_contexts, seed=0).texts, 0)
        queries, documents = model.encode(PLANTS.queries, "query"), model.encode(PLANTS.documents)
        scores = queries.astype(np.float64) @ documents.T.astype(np.float64)
        ranks = 1 + (scores > np.diag(scores)[:, None]).sum(1)
        return 100 * float(np.where(ranks <= 10, 1 / np.log2(ranks + 1), 0).mean())

    for growth, share in zip(results, NEW_SHARES, strict=True):
        old = remove_new_documents(PLANTS, share, 0)
        assert len(old.documents) == round(12 * (1 - share)) and {*old.document_ids} < {*PLANTS.document_ids}
        assert growth.points == pytest.approx(ndcg(old) - ndcg(PLANTS), abs=1e-3)
        assert growth.low <= growth.points <= growth.high and growth.num_queries == 12
    opened = Opened(model, "a model", None)
    for lines in ("", format_growth(results, "s")):
        card = make_model_card(opened, "x", "sentence-transformers", [], growth=lines)
        assert ("new documents:" in card.split("## Context")[1]) == bool(lines)


def test_parts_count_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two collections that are parts of one dataset count together as much as another dataset."""
    for name in ("a", "forum/b", "forum/c"):
        write_beir_folder(tmp_path / "zoo" / name, replace(PLANTS, name=name[-1]))
    gains = {"a": 0.3, "forum-b": 0.9, "forum-c": 0.0}
    # the first context is the new one, the others are old
    scores = {name: iter([0.0, *[gain] * len(NEW_SHARES)]) for name, gain in gains.items()}
    monkeypatch.setattr(
        "repro.interop.growth.score_headline",
        lambda run, collection: np.full(12, next(scores[collection.retrieval.name]), np.float32),
    )
    results = measure_growth(make_model("contextual"), open_suite(str(tmp_path / "zoo"), print), progress=ignore)
    assert [growth.points for growth in results] == pytest.approx([37.5, 37.5])


def test_models_without_context_are_refused(tmp_path: Path) -> None:
    """Such models have no context that could become outdated."""
    write_beir_folder(tmp_path / "plants", PLANTS)
    with pytest.raises(ValueError, match="--growth-on"):
        measure_growth(make_model("biencoder"), open_suite(str(tmp_path / "plants"), print))
