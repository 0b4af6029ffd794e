"""Promises about suites whose queries a model was trained on: they are counted, and can be left out."""

import json
import random
from pathlib import Path

import pytest

from repro.data.beir import Retrieval, write_beir_folder
from repro.data.own.imported import find_imported
from repro.data.pairs import read_pairs
from repro.pipeline.corpora import make_corpus_stage
from repro.records.lookup import read_runs
from repro.spec.identity import run_id
from tests.commands import run_command

WORDS = ("rain", "snow", "hills", "bread", "copper", "iron", "violin", "drum", "kettle", "lamp", "tea", "wool")


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 400 pairs and a suite: 6 training pairs, 3 training queries of other documents, 5 new queries."""
    folder = tmp_path_factory.mktemp("seen")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("REPRO_HOME", str(folder / "home"))
        draw = random.Random(0)
        texts = [" ".join(draw.choices(WORDS, k=9)) + f" number {n}" for n in range(400)]
        rows = [{"query": f"Where is {text[:20]} of {n}?", "document": text} for n, text in enumerate(texts)]
        Path("pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
        run_command("data", "import", "pairs.jsonl", "--name", "mine", "--scale", "smoke")
        trained = read_pairs(make_corpus_stage(find_imported("mine").corpus).path / "train.arrow")
        queries, documents = (trained.texts(side, range(9)) for side in ("query", "document"))
        asked = [*(query.upper() for query in queries), *(f"which {word} is it" for word in WORDS[:5])]
        found = [*documents[:6], *(f"quite another {word}" for word in WORDS[:8])]
        ids = tuple(f"d{n:02d}" for n in range(len(found)))
        judged = {f"q{n:02d}": {ids[n]: 1} for n in range(len(asked))}
        for name, kept in (("mixed", judged), ("known", {one: judged[one] for one in list(judged)[:2]})):
            suite = Retrieval(name, ids, tuple(found), tuple(kept), tuple(asked[: len(kept)]), kept)
            write_beir_folder(folder / "zoo" / name, suite)
    return folder


@pytest.fixture
def run(desk: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The biencoder's id."""
    monkeypatch.chdir(desk)
    monkeypatch.setenv("REPRO_HOME", str(desk / "home"))
    (path,) = desk.glob("home/corpora/mine/mine-smoke.json")
    return next(run_id(one) for one in read_runs(path) if one.architecture == "biencoder")


def test_trained_queries_are_counted(desk: Path, run: str) -> None:
    """A run and its export count the same queries, in any case of their letters; other models count none."""
    words = ("evaluate", "--suite", "zoo", "--no-bm25")
    expected = {
        "known": {"num_queries": 2, "num_seen_queries": 2, "num_seen_pairs": 2},
        "mixed": {"num_queries": 14, "num_seen_queries": 9, "num_seen_pairs": 6},
    }
    found = json.loads(run_command(*words, "--model", run, "--json"))
    assert found["provenance"]["trained_on"] == {run: expected}
    shown = run_command(*words, "--model", run)
    assert "trained on 11 of 16 queries" in shown and "--leave-out-seen" in shown
    for to in ("sentence-transformers", "transformers"):
        run_command("export", run, to, "--to", to)
        found = json.loads(run_command(*words, "--model", to, "--json"))
        assert found["provenance"]["trained_on"] == {to: expected}
    run_command("export", "transformers", "again", "--to", "sentence-transformers")
    (Path("transformers") / "trained_on.json").unlink()
    found = json.loads(run_command(*words, "--compare", "transformers", "again", "--json"))
    assert found["provenance"]["trained_on"] == {"again": expected}


def test_trained_queries_are_left_out(desk: Path, run: str) -> None:
    """The scores are those of a suite that lacks these queries, and a suite without another query is refused."""
    words = ("evaluate", "--model", run, "--no-bm25", "--leave-out-seen", "--json")
    found = json.loads(run_command(*words, "--suite", "zoo"))
    lines = (desk / "zoo" / "mixed" / "qrels" / "test.tsv").read_text().splitlines()
    rest = desk / "rest" / "mixed"
    (rest / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        (rest / name).write_bytes((desk / "zoo" / "mixed" / name).read_bytes())
    (rest / "qrels" / "test.tsv").write_text("\n".join([lines[0], *lines[10:]]) + "\n")
    alone = json.loads(run_command(*words[:4], "--json", "--suite", "rest"))
    assert found["metrics"]["zoo/mixed/ndcg_at_10"] == alone["metrics"]["rest/mixed/ndcg_at_10"]
    assert found["metrics"]["zoo/mean/ndcg_at_10"] == alone["metrics"]["rest/mean/ndcg_at_10"]
    assert "zoo/known/ndcg_at_10" not in found["metrics"] and alone["provenance"]["trained_on"] == {}
    with pytest.raises(ValueError, match="none is left"):
        run_command(*words, "--suite", "zoo/known")
