"""`repro search` ranks as the model does, under the context that `evaluate` draws."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from repro.data.beir import Retrieval, write_beir_folder, write_suite
from repro.evaluate.contexts import draw_context
from repro.interop.opening import open_model
from repro.interop.search import search
from repro.model.contextual import ContextualModel
from tests.commands import get_exit_code, ignore
from tests.data.files import write_rows
from tests.interop.small import make_model

IDS = ("a", "b", "c", "d", "e")
TEXTS = ("is it rain", "will it rain", "do hills rise", "a river is wide and slow", "install a package with pip")
QUERIES = ["how do I install software", "weather"]


def save(folder: Path, architecture: str, **changes: object) -> str:
    make_model(architecture, **changes).save_pretrained(folder)
    return str(folder)


@pytest.mark.parametrize(
    ("architecture", "name", "changes"),
    [("biencoder", "things", {}), ("contextual", "things", {"residual": True}), ("minilm", "things", {}),
     ("contextual", "quora", {"residual": True}), ("contextual", "blind", {"sequence_dropout": 1.0})],
)  # fmt: skip
def test_search_matches_model(tmp_path: Path, architecture: str, name: str, changes: dict[str, float]) -> None:
    """Documents and context of a collection of questions have the prompt of queries, as in `evaluate`."""
    collection = Retrieval(name, IDS, TEXTS, IDS[:2], TEXTS[:2], {"a": {"b": 1}, "b": {"a": 1}})
    write_beir_folder(tmp_path / name, collection)
    source = architecture if architecture == "minilm" else save(tmp_path / "model", architecture, **changes)
    model, role = open_model(source, progress=ignore).model, "query" if name == "quora" else "document"
    if isinstance(model, ContextualModel):
        kind = "null" if name == "blind" else "own"
        model.set_context(draw_context(kind, collection, num_contexts=4, seed=0).texts, 0, role)
    expected = model.encode(QUERIES, "query") @ model.encode(TEXTS, role).T
    results = search(source, str(tmp_path / name), QUERIES, top=5, progress=ignore)
    for hits, scores in zip(results, expected, strict=True):
        assert [hit.id for hit in hits] == [IDS[place] for place in np.argsort(-scores, kind="stable")]
        assert [hit.score for hit in hits] == pytest.approx(np.sort(scores)[::-1].tolist(), abs=1e-5)
        assert [hit.text for hit in hits] == [TEXTS[IDS.index(hit.id)] for hit in hits]


def test_several_collections_are_refused(tmp_path: Path) -> None:
    for name in ("ants", "bees"):
        write_beir_folder(tmp_path / name, Retrieval(name, ("d",), (name,), ("q",), (name,), {"q": {"d": 1}}))
    write_suite(tmp_path, "zoo", [("ants", "insects"), ("bees", "insects")])
    with pytest.raises(ValueError, match=str(tmp_path / "bees")):
        search("minilm", str(tmp_path), QUERIES, progress=ignore)


def test_documents_stay_in_one_column(tmp_path: Path) -> None:
    corpus = write_rows(tmp_path / "x.jsonl", [{"text": "a", "answer": "b"}, {"answer": "d"}])
    with pytest.raises(ValueError, match="'answer' here and in 'text' before"):
        search("minilm", str(corpus), QUERIES, progress=ignore)


def test_command_reads_stdin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model, corpus = save(tmp_path / "model", "contextual"), tmp_path / "docs.jsonl"
    corpus.write_text("".join(json.dumps({"id": id, "text": text}) + "\n" for id, text in zip(IDS, TEXTS, strict=True)))
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(QUERIES)))
    assert get_exit_code("search", model, "--corpus", str(corpus), "--top", "2", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["query"] for row in rows] == QUERIES and {len(row["results"]) for row in rows} == {2}
    assert get_exit_code("search", "nope", "x", "--corpus", str(corpus)) == 2
