"""`repro explain-context` finds a query, ranks its documents under three contexts and explains the differences."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from repro.analyses.context_example import EXHIBIT
from repro.cli.main import app
from repro.data.beir import write_beir_folder
from repro.evaluate.collections import read_collections
from repro.execute import execute
from repro.interop.explaining import find_query
from repro.interop.opening import open_model, open_suite
from repro.records.store import Record
from repro.spec import base
from tests.commands import ignore, run_command
from tests.interop.small import make_collection, make_model

pytestmark = pytest.mark.usefixtures("shared_home")
RUN = base("smoke", architecture="contextual", sampler="domain")
PATHS = (
    *("own_minus_wrong/mean/difference", "own_minus_null/planted-000/low", "moved_by_null/mean/cosine_distance"),
    *("context_cosine/across/cosine", "headroom/mean/difference", "headroom_taken/mean/share"),
)


@pytest.fixture
def record(shared_home: Path) -> Record:
    """The record of the run, which is trained once."""
    return execute(RUN, progress=ignore)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a contextual model, `mine`, one trained without documents, `blind`, and a biencoder, `plain`."""
    folder = tmp_path_factory.mktemp("saved")
    make_model("contextual").save_pretrained(folder / "mine")
    make_model("contextual", sequence_dropout=1.0).save_pretrained(folder / "blind")
    make_model("biencoder").save_pretrained(folder / "plain")
    return folder


def explain(*words: str) -> str:
    return run_command("explain-context", *words)


def test_ranks_match_brute_force(record: Record) -> None:
    suite = open_suite("planted")
    dataset, query = find_query(suite, "q3", suite.datasets[1].name)
    result = json.loads(explain(record.id[:10], "--query", "q3", "--dataset", dataset.name, "--top", "3", "--json"))
    assert result["query"]["text"] == query.text and result["dataset"] == dataset.name and result["model"] == record.id
    assert result["corpora"] == {"own": dataset.name, "wrong": result["corpora"]["wrong"], "null": "nothing"}
    model, collection = open_model(record.id).model, read_collections(suite)[dataset.name].retrieval
    model.set_context(None)
    scores = model.encode([query.text], "query")[0] @ model.encode(collection.documents, "document").T
    ranking = sorted(zip(-np.round(scores.astype(float), 6), collection.document_ids, strict=True))
    ranks = {document: rank for rank, (_, document) in enumerate(ranking, 1)}
    assert [hit["ranks"]["null"] for hit in result["hits"]] == [ranks[hit["id"]] for hit in result["hits"]]
    assert {hit["id"] for hit in result["hits"] if hit["is_relevant"]} <= set(collection.judgements["q3"])
    # The arrays of the record hold the scores of the second dataset after those of the first, sorted by query.
    ids = sorted(collection.judgements)
    value = record.arrays["planted"][len(ids) : 2 * len(ids)][ids.index("q3")]
    assert result["scores"]["own"] == pytest.approx(value, abs=1e-5)


def test_record_has_an_example(record: Record) -> None:
    metrics = record.metrics
    assert {f"context_effect/{path}" for path in PATHS} <= metrics.keys()
    shares = [metrics[f"context_effect/attention/layer_1/{part}"] for part in ("contexts", "prompts", "text")]
    assert sum(shares) == pytest.approx(1) and min(shares) > 0
    own, wrong = (record.arrays[name].astype(float) for name in ("planted", "planted+wrong"))
    expected = np.mean([third.mean() for third in np.split(own - wrong, 3)])
    assert metrics["context_effect/own_minus_wrong/mean/difference"] == pytest.approx(expected, abs=1e-6)
    assert record.exhibits[EXHIBIT][1]["what"] == "query, NDCG@10"


def test_single_collection_is_explained(tmp_path: Path, saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The default, `desk`, takes a minute to mine.
    monkeypatch.setattr("repro.interop.wrong_corpus.DEFAULT_SUITE", "planted")
    write_beir_folder(tmp_path / "alone", make_collection("alone", ["rain and hills", "bread"], ["rain"]))
    words = ("--model", str(saved / "mine"), "--suite", str(tmp_path / "alone"), "--num-contexts", "2")
    result = json.loads(explain(*words, "--query", "is there snow", "--json"))
    assert not result["is_judged"] and result["scores"] == {}
    assert result["corpora"] == {"own": "alone", "wrong": "planted-000", "null": "nothing"}
    new, known = (
        CliRunner().invoke(app, ("explain-context", *words, "--query", query)) for query in ("q-3", "  Rain ")
    )
    is_new = "read as a query of your own"
    assert is_new in new.stderr and is_new not in known.stderr
    assert all(part in known.stdout for part in ("own − wrong", "null", "● relevant"))
    assert "no collection with other documents" in known.stderr and "--wrong-from" not in known.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "which model?"),
        (("ID", "--model", "x", "--query", "q0"), "which model?"),
        (("ID",), "which query?"),
        (("ID", "--query", "q0"), "add --dataset NAME"),
        (("ID", "--query", "no such words"), "no collection of suite planted has the query 'no such words'"),
        (("ID", "--query", "q0", "--dataset", "mars"), "--dataset 'mars' is not in suite planted"),
        (("ID", "--query", "q0", "--dataset", "planted-000", "--num-contexts", "99"), "takes 1 to"),
        (("--model", "PLAIN", "--query", "q0", "--suite", "planted"), "name a model that takes documents"),
        (("--model", "BLIND", "--query", "q0", "--suite", "planted"), "trained without documents.*name a model"),
        (("--model", "MINE", "--query", "q0"), "name one with --suite"),
        (("zzz", "--query", "q0"), "no run has this id"),
    ],
)
def test_mistakes_are_refused(words: tuple[str, ...], message: str, record: Record, saved: Path) -> None:
    names = {name.upper(): str(saved / name) for name in ("mine", "blind", "plain")} | {"ID": record.id}
    with pytest.raises(ValueError, match=message):
        explain(*(names.get(word, word) for word in words))
