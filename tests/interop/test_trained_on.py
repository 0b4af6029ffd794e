"""Queries of a suite that a model was trained on are counted and can be excluded."""

import json
import random
import shutil
from pathlib import Path

import pytest

from repro.data.beir import write_beir_folder
from repro.data.own.imported import find_imported, import_source
from repro.data.pairs import read_pairs
from repro.evaluate.collections import read_collections
from repro.execute import execute
from repro.interop.corpus import open_suite
from repro.interop.trained_on import find_seen_queries, find_training_run, has_unknown_training, write_trained_on
from repro.pipeline.corpora import make_corpus_stage
from repro.records.lookup import find_run_by_id, read_runs
from repro.spec.identity import run_id
from tests.commands import ignore, run_command
from tests.data.files import write_rows
from tests.interop.small import WORDS, make_collection


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
        Path("pairs.jsonl").write_text("\n".join(map(json.dumps, rows)))
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


def test_trained_queries_are_counted(desk: Path, run: str) -> None:
    """A run and its exports count the same queries, regardless of case. Exports without the file count none."""
    words = ("evaluate", "--suite", "zoo", "--no-bm25")
    expected = {
        "known": {"num_queries": 2, "num_seen_queries": 2, "num_seen_pairs": 2},
        "mixed": {"num_queries": 14, "num_seen_queries": 9, "num_seen_pairs": 6},
    }
    result = json.loads(run_command(*words, "--model", run, "--json"))
    assert result["provenance"]["trained_on"] == {run: expected}
    output = run_command(*words, "--model", run)
    assert "trained on 11 of 16 queries" in output and "--leave-out-seen" in output
    for to in ("sentence-transformers", "transformers"):
        run_command("export", run, to, "--to", to)
        result = json.loads(run_command(*words, "--model", to, "--json"))
        assert result["provenance"]["trained_on"] == {to: expected}
    run_command("export", "transformers", "again", "--to", "sentence-transformers")
    card = Path("again", "README.md").read_text()
    assert "Trained on the corpus `mine@" in card and f"Run {run};" in card and "Not known" not in card
    assert "Not evaluated here." in card
    (Path("transformers") / "trained_on.json").unlink()
    result = json.loads(run_command(*words, "--compare", "transformers", "again", "--json"))
    assert result["provenance"]["trained_on"] == {"again": expected}


def test_unknown_training_text_is_warned_about(desk: Path, run: str, tmp_path: Path) -> None:
    """The library's own fine-tuning saves a folder without trained_on.json."""
    from sentence_transformers import SentenceTransformer

    run_command("export", run, str(tmp_path / "exported"), "--to", "sentence-transformers")
    theirs = SentenceTransformer(str(tmp_path / "exported"), device="cpu")
    theirs.save_pretrained(str(tmp_path / "tuned"), create_model_card=False)
    words = ("evaluate", "--suite", "zoo", "--no-bm25", "--model")
    for name, is_warned in (("exported", False), ("tuned", True)):
        output = " ".join(run_command(*words, str(tmp_path / name)).split())
        assert (f"training queries of {tmp_path / name} are unknown" in output) == is_warned
        # it was trained without prompts, which only trained_on.json shows
        assert ("stores no prompts" in output) == is_warned


def test_missing_corpus_of_an_export_is_named(
    desk: Path, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another machine the suite cannot be compared with the training text, and a line says so."""
    (tmp_path / "model").mkdir()
    write_trained_on(tmp_path / "model", find_run_by_id(run))
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "other"))
    lines: list[str] = []
    seen = find_seen_queries(str(tmp_path / "model"), read_collections(open_suite(str(desk / "zoo"))), lines.append)
    assert not seen and len(lines) == 1
    assert has_unknown_training(str(tmp_path / "model")) and has_unknown_training("minilm")
    assert not has_unknown_training("bm25")
    assert "trained on the corpus mine@" in lines[0] and "not on this machine" in lines[0]


def test_run_opens_after_another_import(desk: Path, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Trained weights do not need their text. Its queries are then not compared."""
    shutil.copytree(desk / "home", tmp_path / "home")
    monkeypatch.setenv("REPRO_HOME", str(tmp_path / "home"))
    execute(find_run_by_id(run), progress=ignore)
    words = ("evaluate", "--model", run, "--suite", "zoo", "--no-bm25", "--json", "--out")
    expected = json.loads(run_command(*words, str(tmp_path / "before")))
    shutil.rmtree(find_imported("mine").folder)
    rows = [{"query": f"what is {n}", "document": f"another text {n}"} for n in range(400)]
    import_source(write_rows(tmp_path / "other.jsonl", rows), name="mine")
    result = json.loads(run_command(*words, str(tmp_path / "after")))
    assert result["metrics"] == expected["metrics"]
    assert expected["provenance"]["trained_on"] and result["provenance"]["trained_on"] == {}
    run_command("export", run, str(tmp_path / "exported"), "--to", "transformers")
    assert find_training_run(str(tmp_path / "exported")) == find_run_by_id(run)


def test_trained_queries_can_be_excluded(desk: Path, run: str) -> None:
    """The scores equal those of a suite without these queries. A suite without other queries is refused."""
    words = ("evaluate", "--model", run, "--no-bm25", "--leave-out-seen", "--json")
    result = json.loads(run_command(*words, "--suite", "zoo"))
    lines = (desk / "zoo" / "mixed" / "qrels" / "test.tsv").read_text().splitlines()
    rest = desk / "rest" / "mixed"
    (rest / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl"):
        (rest / name).write_bytes((desk / "zoo" / "mixed" / name).read_bytes())
    (rest / "qrels" / "test.tsv").write_text("\n".join([lines[0], *lines[10:]]) + "\n")
    alone = json.loads(run_command(*words[:4], "--json", "--suite", "rest"))
    for name in ("mixed", "mean"):
        assert result["metrics"][f"zoo/{name}/ndcg_at_10"] == alone["metrics"][f"rest/{name}/ndcg_at_10"]
    assert "zoo/known/ndcg_at_10" not in result["metrics"] and alone["provenance"]["trained_on"] == {}
    with pytest.raises(ValueError, match="none is left"):
        run_command(*words, "--suite", "zoo/known")
    assert not has_unknown_training(run)
    output = run_command("evaluate", "--compare", run, "minilm", "--leave-out-seen", "--suite", "rest")
    assert "training queries of minilm are unknown" in " ".join(output.split()), "it is repeated below the scores"
