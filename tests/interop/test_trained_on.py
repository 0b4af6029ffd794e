"""Queries of a suite that a model was trained on are counted and can be excluded."""

import random
import shutil
from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from repro.data.beir import write_beir_folder
from repro.data.own.imported import find_imported
from repro.data.pairs import read_pairs
from repro.evaluate.collections import read_collections
from repro.interop.corpus import open_suite
from repro.interop.trained_on import find_seen_queries, write_trained_on
from repro.pipeline.corpora import make_corpus_stage
from repro.records.lookup import find_run_by_id, read_runs
from repro.spec import base
from repro.spec.identity import run_id
from tests.commands import ignore, run_command
from tests.data.files import write_rows
from tests.interop.small import WORDS, evaluate, make_collection


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of 400 pairs and a suite.

    The suite has 6 training pairs, 3 training queries with other documents, and 5 new queries.
    """
    folder = tmp_path_factory.mktemp("seen")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("REPRO_HOME", str(folder / "home"))
        draw = random.Random(0)
        texts = [" ".join(draw.choices(WORDS, k=9)) + f" number {n}" for n in range(400)]
        rows = [{"query": f"Where is {text[:20]} of {n}?", "document": text} for n, text in enumerate(texts)]
        write_rows(Path("pairs.jsonl"), rows)
        run_command("data", "import", "pairs.jsonl", "--name", "mine", "--scale", "smoke")
        trained = read_pairs(make_corpus_stage(find_imported("mine").corpus).path / "train.arrow")
        queries, documents = (trained.texts(side, range(9)) for side in ("query", "document"))
        test_queries = [*(query.upper() for query in queries), *(f"which {word} is it" for word in WORDS[:5])]
        test_documents = [*documents[:6], *(f"quite another {word}" for word in WORDS[:8])]
        for name, count in (("mixed", 14), ("known", 2)):
            write_beir_folder(folder / "zoo" / name, make_collection(name, test_documents, test_queries[:count]))
    return folder


@pytest.fixture
def run(desk: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of the biencoder that the import planned."""
    monkeypatch.chdir(desk)
    monkeypatch.setenv("REPRO_HOME", str(desk / "home"))
    (path,) = desk.glob("home/corpora/mine/mine-smoke.json")
    return next(run_id(run) for run in read_runs(path) if run.architecture == "biencoder")


def test_trained_queries_are_counted(run: str, tmp_path: Path) -> None:
    """A run and its exports count the same queries, regardless of case. Stock fine-tuning loses the file."""
    expected = {"known": {"num_queries": 2, "num_seen_queries": 2}, "mixed": {"num_queries": 14, "num_seen_queries": 9}}
    exported, tuned = (str(tmp_path / name) for name in ("exported", "tuned"))
    run_command("export", run, exported)
    SentenceTransformer(exported, device="cpu").save_pretrained(tuned, create_model_card=False)
    for model, counts in ((run, {run: expected}), (exported, {exported: expected}), (tuned, {})):
        assert evaluate("--model", model)["provenance"]["trained_on"] == counts
    output = run_command("evaluate", "--suite", "zoo", "--no-bm25", "--model", run)
    assert "trained on 11 of 16 queries" in " ".join(output.split())


def test_documents_and_earlier_trainings_count(run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A query may be a document of a pair. A model that starts from an exported one has seen what that one has."""
    trained = read_pairs(make_corpus_stage(find_imported("mine").corpus).path / "train.arrow")
    texts = [*trained.texts("document", range(3)), *trained.texts("query", range(2)), "a new query"]
    write_beir_folder(tmp_path / "asked", make_collection("asked", list(WORDS), texts))
    collections = read_collections(open_suite(str(tmp_path / "asked")))
    folders = tmp_path / "first", tmp_path / "second"
    for folder, its_run in zip(folders, (find_run_by_id(run), base("smoke")), strict=True):
        folder.mkdir()
        write_trained_on(folder, its_run)
    assert len(find_seen_queries(run, collections, ignore).ids["asked"]) == 5
    starts = iter([folders[0], None])
    monkeypatch.setattr("repro.interop.trained_on.get_encoder_folder", lambda _: next(starts))
    assert len(find_seen_queries(str(folders[1]), collections, ignore).ids["asked"]) == 5


def test_missing_corpus_is_incomplete(desk: Path, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine, or after another import, the suite cannot be compared with the training text."""
    (tmp_path / "model").mkdir()
    write_trained_on(tmp_path / "model", find_run_by_id(run))
    collections = read_collections(open_suite(str(desk / "zoo")))
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "other"))
    for source, is_complete in ((str(tmp_path / "model"), False), ("minilm", False), ("bm25", True)):
        seen = find_seen_queries(source, collections, ignore)
        assert not seen.ids and seen.is_complete == is_complete


def test_trained_queries_can_be_excluded(desk: Path, run: str) -> None:
    """The scores equal those of a suite without these queries. A suite without other queries is refused."""
    result = evaluate("--model", run, "--leave-out-seen")
    shutil.copytree(desk / "zoo" / "mixed", desk / "rest" / "mixed")
    qrels = desk / "rest" / "mixed" / "qrels" / "test.tsv"
    lines = qrels.read_text().splitlines()
    qrels.write_text("\n".join([lines[0], *lines[10:]]) + "\n")
    alone = evaluate("--model", run, suite="rest")
    for name in ("mixed", "mean"):
        assert result["metrics"][f"zoo/{name}/ndcg_at_10"] == alone["metrics"][f"rest/{name}/ndcg_at_10"]
    assert "zoo/known/ndcg_at_10" not in result["metrics"] and alone["provenance"]["trained_on"] == {}
    with pytest.raises(ValueError, match="none is left"):
        evaluate("--model", run, "--leave-out-seen", suite="zoo/known")
