"""Promises of `repro explain-context` on a model trained for a few steps: it finds the query, ranks, and says so."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from repro.analyses.context_example import EXHIBIT
from repro.cli.main import app
from repro.data.beir import Retrieval, write_beir_folder
from repro.execute import execute
from repro.interop.explaining import find_query
from repro.interop.opening import open_model, open_suite
from repro.records.store import Record
from repro.spec import base
from tests.commands import run_command
from tests.interop.test_sentence_transformers import model_of

RUN = base("smoke", architecture="contextual", sampler="domain")
PATHS = (
    *("own_minus_wrong/mean/difference", "own_minus_null/planted-000/low", "moved_by_null/mean/cosine_distance"),
    *("context_cosine/across/cosine", "headroom/mean/difference", "headroom_taken/mean/share"),
)


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the run is trained once."""
    return tmp_path_factory.mktemp("explaining")


@pytest.fixture(autouse=True)
def same_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPRO_HOME", str(home))


@pytest.fixture(scope="module")
def record(home: Path) -> Record:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPRO_HOME", str(home))
        return execute(RUN, progress=lambda line: None)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folders of a contextual model, `mine`, and of a biencoder, `plain`."""
    folder = tmp_path_factory.mktemp("saved")
    model_of("contextual").save_pretrained(folder / "mine")
    model_of("biencoder").save_pretrained(folder / "plain")
    return folder


def typed(*words: str) -> str:
    return run_command("explain-context", *words)


def test_ranks_match_brute_force(record: Record) -> None:
    suite = open_suite("planted")
    dataset, query = find_query(suite, "q3", suite.datasets[1].name)
    told = json.loads(typed(record.id[:10], "--query", "q3", "--dataset", dataset.name, "--top", "3", "--json"))
    assert told["query"]["text"] == query.text and told["dataset"] == dataset.name and told["model"] == record.id
    assert told["corpora"] == {"own": dataset.name, "wrong": told["corpora"]["wrong"], "null": "nothing"}
    model, (_, collection) = open_model(record.id).model, _read(dataset.name)
    model.set_context(None)
    scores = model.encode([query.text], "query")[0] @ model.encode(collection.documents, "document").T
    order = sorted(range(len(scores)), key=lambda n: (-round(float(scores[n]), 6), collection.document_ids[n]))
    places = {collection.document_ids[n]: place for place, n in enumerate(order, 1)}
    assert [hit["ranks"]["null"] for hit in told["hits"]] == [places[hit["id"]] for hit in told["hits"]]
    assert {hit["id"] for hit in told["hits"] if hit["is_relevant"]} <= set(collection.judgements["q3"])
    position = list(collection.judgements)
    value = record.arrays["planted"][len(position) : 2 * len(position)][sorted(position).index("q3")]
    assert told["scores"]["own"] == pytest.approx(value, abs=1e-5), "the same score as in the record"


def _read(name: str) -> tuple[str, Retrieval]:
    from repro.evaluate.collections import read_collections

    return name, read_collections(open_suite("planted"))[name].retrieval


def test_record_has_an_example(record: Record) -> None:
    found = record.metrics
    for path in PATHS:
        assert f"context_effect/{path}" in found
    parts = [found[f"context_effect/attention/layer_1/{part}"] for part in ("contexts", "prompts", "text")]
    assert sum(parts) == pytest.approx(1) and min(parts) > 0
    own, wrong = (record.arrays[name].astype(float) for name in ("planted", "planted+wrong"))
    thirds = np.split(own - wrong, 3)
    expected = np.mean([third.mean() for third in thirds])
    assert found["context_effect/own_minus_wrong/mean/difference"] == pytest.approx(expected, abs=1e-6)
    assert record.exhibits[EXHIBIT][1]["what"] == "query, NDCG@10"


def test_three_contexts_are_compared(record: Record) -> None:
    """They are shown next to each other, and progress is logged."""
    words = ["explain-context", record.id, "--query", "q0", "--dataset", "planted-000"]
    done = CliRunner().invoke(app, words, catch_exceptions=False)
    assert done.stderr.startswith(f"opening {record.id}\n") and "searching 40 documents of" in done.stderr
    for words in ("context from", "own − wrong", "Words of the query", "Words of the document", "● relevant"):
        assert words in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 100


def test_single_collection_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repro.interop.wrong_corpus.ELSEWHERE", "planted")  # `desk` takes a minute to mine
    model_of("contextual").save_pretrained(tmp_path / "mine")
    texts, judged = ("rain and hills", "bread"), {"q": {"d0": 1}}
    write_beir_folder(tmp_path / "alone", Retrieval("alone", ("d0", "d1"), texts, ("q",), ("rain",), judged))
    words = ("--model", str(tmp_path / "mine"), "--suite", str(tmp_path / "alone"), "--num-contexts", "2")
    told = json.loads(typed(*words, "--query", "is there snow", "--json"))
    assert not told["is_judged"] and told["scores"] == {}
    assert told["corpora"] == {"own": "alone", "wrong": "planted-000", "null": "nothing"}, "as `evaluate` borrows"
    said = CliRunner().invoke(app, ("explain-context", *words, "--query", "q-3")).stderr
    assert "no query has this id or text: 'q-3' is read as a query of your own" in said
    shown = typed(*words, "--query", "  Rain ")
    assert all(one in shown for one in ("own − wrong", "null", "● relevant"))
    told = CliRunner().invoke(app, ("explain-context", *words, "--query", "rain")).stderr
    assert "read as a query of your own" not in told
    assert "one collection only, and a --suite of several would lend another of its own" in told
    assert "--wrong-from" not in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ((), "which model?"),
        (("ID", "--model", "x", "--query", "q0"), "which model?"),
        (("ID",), "which query?"),
        (("ID", "--query", "q0"), "add --dataset NAME"),
        (("ID", "--query", "no such words"), "no collection of suite planted has the query 'no such words'"),
        (("ID", "--query", "q0", "--dataset", "mars"), "--dataset 'mars' is not in suite planted"),
        (("ID", "--query", "q0", "--dataset", "planted-000", "--num-contexts", "99"), "takes 1 to"),
        (("ID", "--query", "q0", "--context-seed", "-1"), "--context-seed -1"),
        (("--model", "PLAIN", "--query", "q0", "--suite", "planted"), "takes no context"),
        (("--model", "MINE", "--query", "q0"), "name one with --suite"),
        (("zzz", "--query", "q0"), "no run is known by it"),
    ],
)  # fmt: skip
def test_mistakes_are_refused(words: tuple[str, ...], says: str, record: Record, saved: Path) -> None:
    named = {"ID": record.id, "MINE": str(saved / "mine"), "PLAIN": str(saved / "plain")}
    with pytest.raises(ValueError, match=says):
        typed(*(named.get(word, word) for word in words))
