"""`repro search` ranks as the model does, under the context that `evaluate` draws."""

import io
import json
import os
import sys
from pathlib import Path

import numpy as np
import pytest

from repro.data.beir import Retrieval, write_beir_folder, write_suite
from repro.data.tokens import get_minilm_folder
from repro.evaluate.contexts import draw_context
from repro.interop.adapting import adapt_model
from repro.interop.opening import open_model
from repro.interop.search import search
from repro.model.config import ModelConfig
from repro.model.contextual import ContextualModel
from repro.model.start import build_model
from tests.commands import get_exit_code, ignore, run_command

TEXTS = [
    "Rain falls on the plain in spring.",
    "A hill rises above the land around it.",
    "Install a package with pip, or build it from source.",
    "The river is wide, slow and brown.",
    "A compiler turns source text into machine code.",
]
QUERIES = ["how do I install software", "weather"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Five documents as jsonl."""
    path = tmp_path / "docs.jsonl"
    path.write_text("".join(json.dumps({"id": f"d{place}", "text": text}) + "\n" for place, text in enumerate(TEXTS)))
    return path


def save(folder: Path, architecture: str, backbone: str, **changes: object) -> Path:
    """Write a small model with MiniLM's word vectors and random layers."""
    sizes = {"hidden_size": 32, "num_heads": 2, "intermediate_size": 64, "num_contexts": 3, "prompts": "task"}
    config = ModelConfig(architecture=architecture, backbone=backbone, **(sizes | changes))  # type: ignore[arg-type]
    build_model(config, start="words", seed=3).save_pretrained(folder)
    return folder


def brute_force(model: Path | str, corpus: Path, context: str = "own") -> np.ndarray:
    """Return the scores (queries, documents) that the model itself computes."""
    opened = open_model(str(model), progress=ignore).model
    if isinstance(opened, ContextualModel):
        source = Retrieval(corpus.name, tuple(f"d{place}" for place in range(len(TEXTS))), tuple(TEXTS), (), (), {})
        opened.set_context(draw_context(context, source, num_contexts=3, seed=0).texts, 0)
    return opened.encode(QUERIES, "query") @ opened.encode(TEXTS, "document").T


@pytest.mark.parametrize(
    ("architecture", "backbone"),
    [("biencoder", "nomic"), ("contextual", "bert"), ("contextual", "nomic"), ("minilm", "bert"), ("adapted", "bert")],
)
def test_search_matches_model(tmp_path: Path, corpus: Path, architecture: str, backbone: str) -> None:
    model: Path | str = tmp_path / "model"
    if architecture == "minilm":
        model = "minilm"
    elif architecture == "adapted":
        adapt_model("minilm", str(corpus), tmp_path / "model", progress=ignore)
    else:
        save(tmp_path / "model", architecture, backbone)
    expected = brute_force(get_minilm_folder() if architecture == "minilm" else model, corpus)
    results = search(str(model), str(corpus), QUERIES, top=5, progress=ignore)
    for hits, scores in zip(results, expected, strict=True):
        assert [hit.id for hit in hits] == [f"d{place}" for place in np.argsort(-scores, kind="stable")]
        assert [hit.score for hit in hits] == pytest.approx(np.sort(scores)[::-1].tolist(), abs=1e-4)
        assert [hit.text for hit in hits] == [TEXTS[int(hit.id[1:])] for hit in hits]
        assert [hit.rank for hit in hits] == [1, 2, 3, 4, 5]


def test_context_decides_scores(tmp_path: Path, corpus: Path) -> None:
    """Without documents in training it is the null context. A biencoder refuses one."""
    model = save(tmp_path / "model", "contextual", "nomic", residual=True)
    for kind in ("own", "null"):
        hits, _ = search(str(model), str(corpus), QUERIES, context=kind, progress=ignore)
        assert hits[0].score == pytest.approx(float(brute_force(model, corpus, kind)[0].max()), abs=1e-4)
    other = tmp_path / "other.txt"
    other.write_text("one\ntwo\n")
    other_hits, _ = search(str(model), str(corpus), QUERIES, context=str(other), progress=ignore)
    assert abs(other_hits[0].score - hits[0].score) > 1e-6
    blind = save(tmp_path / "blind", "contextual", "nomic", sequence_dropout=1.0)
    hits, _ = search(str(blind), str(corpus), QUERIES, progress=ignore)
    assert hits[0].score == pytest.approx(float(brute_force(blind, corpus, "null")[0].max()), abs=1e-4)
    plain = save(tmp_path / "plain", "biencoder", "nomic")
    for name in (blind, plain):
        with pytest.raises(ValueError, match="leave out --context"):
            search(str(name), str(corpus), QUERIES, context="own", progress=ignore)


@pytest.mark.parametrize(("name", "role"), [("quora", "query"), ("things", "document")])
def test_prompt_follows_collection(tmp_path: Path, name: str, role: str) -> None:
    """Documents and context of a collection of questions have the prompt of queries, as in `evaluate`."""
    model = save(tmp_path / "model", "contextual", "nomic", residual=True)
    ids, documents = ("a", "b", "c"), ("is it rain", "will it rain", "do hills rise")
    collection = Retrieval(name, ids, documents, ids[:2], documents[:2], {"a": {"b": 1}, "b": {"a": 1}})
    write_beir_folder(tmp_path / name, collection)
    (hits,) = search(str(model), str(tmp_path / name), ["rain"], progress=ignore)
    opened = open_model(str(model), progress=ignore).ours
    context = draw_context("own", collection, num_contexts=3, seed=0)
    opened.set_context(context.texts, 0, role)
    scores = opened.encode(["rain"], "query")[0] @ opened.encode(documents, role).T
    assert {hit.id: hit.score for hit in hits} == pytest.approx(dict(zip(ids, scores.tolist(), strict=True)), abs=1e-5)


def test_replaced_file_is_read_again(tmp_path: Path, corpus: Path) -> None:
    """Its size and its time may be those of the old file, as after `cp -p`."""
    before = corpus.stat()
    assert search("minilm", str(corpus), QUERIES, top=1, progress=ignore)[0][0].id == "d2"
    corpus.write_text(corpus.read_text().replace("Install a package with pip", "Bake a warm bread on wood"))
    os.utime(corpus, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert corpus.stat().st_mtime_ns == before.st_mtime_ns
    hits = search("minilm", str(corpus), QUERIES, top=5, progress=ignore)[0]
    assert "Install" not in " ".join(hit.text for hit in hits)


def test_malformed_corpus_is_named(corpus: Path) -> None:
    corpus.write_text('{"id": "x", "words": "no text"}\n')
    with pytest.raises(ValueError, match=r"docs\.jsonl, line 1"):
        search("minilm", str(corpus), QUERIES, progress=ignore)


def test_several_collections_are_refused(tmp_path: Path) -> None:
    for name in ("ants", "bees"):
        write_beir_folder(tmp_path / name, Retrieval(name, ("d",), (name,), ("q",), (name,), {"q": {"d": 1}}))
    write_suite(tmp_path, "zoo", [("ants", "insects"), ("bees", "insects")])
    with pytest.raises(ValueError, match=str(tmp_path / "bees")):
        search("minilm", str(tmp_path), QUERIES, progress=ignore)
    write_suite(tmp_path, "zoo", [("ants", "insects")])
    (hits,) = search("minilm", str(tmp_path), ["x"], progress=ignore)
    assert [hit.text for hit in hits] == ["ants"]


def test_command_reads_stdin(
    tmp_path: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    model = save(tmp_path / "model", "contextual", "nomic")
    monkeypatch.setattr(sys, "stdin", io.StringIO("\n".join(QUERIES)))
    assert get_exit_code("search", str(model), "--corpus", str(corpus), "--top", "2", "--json") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["query"] for row in rows] == QUERIES and {len(row["results"]) for row in rows} == {2}
    assert get_exit_code("search", str(model), "x") == get_exit_code("search", "nope", "x", "--corpus", "docs") == 2


def test_messages_are_not_in_json(tmp_path: Path) -> None:
    """A folder of collections has messages about skipped entries."""
    collection = Retrieval("near", ("d",), ("text",), ("q",), ("ask",), {"q": {"d": 1}})
    write_beir_folder(tmp_path / "zoo" / "near", collection)
    (tmp_path / "zoo" / "notes.txt").touch()
    (row,) = json.loads(run_command("search", "minilm", "x", "--corpus", str(tmp_path / "zoo"), "--json"))
    assert [result["id"] for result in row["results"]] == ["d"]
