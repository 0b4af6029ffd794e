"""Evaluation data that a user provides: known collections keep their rules, splits are named, nothing is trained on."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from repro.data.beir import Retrieval, get_legal_name, load_beir, write_beir_folder, write_suite
from repro.data.columns import Columns
from repro.data.own.evaluation_folders import describe_split
from repro.data.own.imported import find_imported, import_source
from repro.data.pairs import read_pairs
from repro.data.paper.collection_rules import CollectionRules
from repro.evaluate.collections import read_collections
from repro.interop.corpus import open_suite
from repro.pipeline.corpora import check_available, make_corpus_stage
from repro.spec import base
from tests.commands import run_command
from tests.data.files import make_judged, write_rows

SIZE = 60


def score_bm25(suite: str) -> dict[str, float]:
    """Evaluate BM25 by command, and return its metrics without the name of the suite."""
    metrics = json.loads(run_command("evaluate", "--model", "bm25", "--suite", suite, "--json"))["metrics"]
    return {path.partition("/")[2]: value for path, value in metrics.items()}


def make_self_asking(name: str) -> Retrieval:
    """Return a collection whose queries have ids and texts of documents, and ask for the next one."""
    collection = make_judged(SIZE, name)
    ids = collection.document_ids
    judgements = {key: {ids[(n + 1) % SIZE]: 1} for n, key in enumerate(ids)}
    return Retrieval(name, ids, collection.documents, ids, collection.documents, judgements)


def write_splits(folder: Path, **splits: range) -> Path:
    """Write a BEIR folder in which each split judges these queries."""
    write_beir_folder(folder, make_judged(SIZE), "all")
    (folder / "qrels" / "all.tsv").unlink()
    for split, numbers in splits.items():
        lines = ["query-id\tcorpus-id\tscore", *(f"q{n}\td{n}\t1" for n in numbers)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize(("split", "numbers"), [("", range(30, 50)), ("dev", range(20, 30))])
def test_splits_are_chosen_and_named(tmp_path: Path, split: str, numbers: range) -> None:
    """Training reads train.tsv, without the queries that are evaluated. Splits that are not read are named."""
    folder = write_splits(tmp_path / "theirs", train=range(25), dev=range(20, 30), test=range(30, 50))
    corpus = import_source(folder, name="mine", split=split)
    stage = make_corpus_stage(corpus.corpus).build()
    pairs = read_pairs(stage / "train.arrow")
    assert {*pairs.texts("query", range(len(pairs)))} == {f"question {n}" for n in range(25) if n not in numbers}
    collection = load_beir(stage / "suites" / "mine" / "theirs")
    assert {*collection.queries} == {f"question {n}" for n in numbers}
    (note,) = [note for note in corpus.notes if "not read" in note]
    assert ("dev.tsv" in note.partition("not read")[2]) == (split == "")
    suite = open_suite(str(folder), split=split)
    evaluated = read_collections(suite)["theirs"]
    assert {*evaluated.retrieval.queries} == {f"question {n}" for n in numbers}
    assert evaluated.provenance["split"] == (split or "test")
    (line,) = describe_split(suite.datasets[0], suite.datasets[0].split)
    assert f"{split or 'test'}.tsv" in line and "train" not in line
    with pytest.raises(ValueError, match="'train'"):
        import_source(folder, name="other", split="eval")
    with pytest.raises(ValueError, match="cannot be held out"):
        import_source(folder, name="other", hold_out=["x"])


def test_declared_split_is_not_replaced(tmp_path: Path) -> None:
    """An unknown collection without test is scored on dev. That of a known one or of suite.json is refused."""
    assert read_collections(open_suite(str(write_splits(tmp_path / "x", dev=range(9)))))["x"].rules.split == "dev"
    known = str(write_splits(tmp_path / "all" / "msmarco", test=range(9)))
    with pytest.raises(ValueError, match=r"dev\.tsv is missing"):
        read_collections(open_suite(known))
    rules = read_collections(open_suite(known, split="test"))["msmarco"].rules
    assert rules.split == "test" and "dev" not in rules.note
    write_suite(tmp_path / "all", "all", [("msmarco", "f")], {"msmarco": CollectionRules(split="eval")})
    with pytest.raises(ValueError, match=r"eval\.tsv is missing"):
        read_collections(open_suite(str(tmp_path / "all")))


def test_other_split_keeps_rules(tmp_path: Path) -> None:
    """Stored rules hold for any split, whatever the name. A known name that matches no content is noted for each."""
    write_splits(tmp_path / "quora", dev=range(9), test=range(SIZE))
    rules = read_collections(open_suite(str(tmp_path / "quora"), split="dev"))["quora"].rules
    assert rules.split == "dev" and rules.note.startswith("named quora") and not rules.removes_self_hits
    stored = CollectionRules(removes_self_hits=True, note="ours")
    write_suite(tmp_path, "ours", [("quora", "f")], {"quora": stored})
    found = read_collections(open_suite(str(tmp_path), split="dev"))["quora"].rules
    assert found == replace(stored, split="dev")


def test_folders_become_an_evaluation_set(tmp_path: Path) -> None:
    """Scores are those of the folder itself. Other entries are named, and training splits are not read."""
    for name in ("one", "my corpus", "日本語", "c++docs"):
        write_splits(tmp_path / "all" / name, test=range(SIZE))
    write_splits(tmp_path / "all" / "one", train=range(4), test=range(SIZE))
    (tmp_path / "all" / "notes.txt").touch()
    output = run_command("data", "import", str(tmp_path / "all"), "--name", "theirs")
    corpus = find_imported("theirs")
    assert corpus.only_evaluates and output.rstrip().endswith("repro evaluate --model bm25 --suite theirs")
    assert any("notes.txt" in note for note in corpus.notes) and any("train.tsv" in note for note in corpus.notes)
    names = {get_legal_name(path.name) for path in (tmp_path / "all").iterdir() if path.is_dir()}
    assert {dataset.name for dataset in open_suite("theirs").datasets} == names
    assert score_bm25("theirs") == score_bm25(str(tmp_path / "all"))


@pytest.mark.parametrize(("options", "language"), [([], "german"), (["--language", "none"], None)])
def test_folder_has_its_own_language(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], language: str | None
) -> None:
    """BM25 stems the language of a folder, whatever was imported under its name."""
    import_source(write_splits(tmp_path / "faq", test=range(SIZE)), name="faq")
    path = tmp_path / "faq" / "corpus.jsonl"
    write_rows(path, [{"_id": f"d{n}", "text": f"das ist die Antwort auf Frage {n}"} for n in range(SIZE)])
    monkeypatch.chdir(tmp_path)
    output = run_command("evaluate", "--model", "bm25", "--suite", "faq", "--json", *options)
    stemmer = json.loads(output)["provenance"]["suite"]["bm25"]["stemmer"]
    assert stemmer == (language and f"{language} (Snowball)")


def test_evaluation_sets_cannot_be_trained_on(tmp_path: Path) -> None:
    """Nor can a folder whose pairs are all evaluated. Options about pairs are refused."""
    corpus = import_source(write_splits(tmp_path / "one", test=range(SIZE)), name="theirs")
    with pytest.raises(ValueError, match="no training pairs"):
        check_available([base("smoke", corpus=corpus.corpus, suite="theirs")])
    check_available([base("smoke", suite="theirs", corpus="planted-tiny")])
    for options in ({"hold_out": ["x"]}, {"columns": Columns(threshold="2")}, {"evaluate_on": tmp_path / "one"}):
        with pytest.raises(ValueError, match=r"cannot be held out|leave it out"):
            import_source(tmp_path / "one", name="more", **options)
    with pytest.raises(ValueError, match="no pair to train on"):
        import_source(write_splits(tmp_path / "two", train=range(9), test=range(9)), name="pairs")


def test_folder_goes_before_corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is read, which a line says. The full name of the corpus still opens the corpus."""
    folder = write_splits(tmp_path / "theirs" / "two", test=range(SIZE)).parent
    corpus = import_source(folder, name="theirs")
    monkeypatch.chdir(tmp_path)
    (folder / "two").rename(folder / "three")
    lines: list[str] = []
    assert [dataset.name for dataset in open_suite("theirs", lines.append).datasets] == ["three"]
    assert len(lines) == 1
    assert [dataset.name for dataset in open_suite(corpus.corpus).datasets] == ["two"]


def test_known_names_get_no_rules(tmp_path: Path) -> None:
    """A held-out collection with the name of a known one is not treated as that one."""
    names = ("quora", "x")
    rows = [{"query": f"mend {d} {n}", "document": f"{d} {n} is", "domain": d} for n in range(300) for d in names]
    source = write_rows(tmp_path / "x.jsonl", rows)
    make_corpus_stage(import_source(source, name="mine", hold_out=["quora"]).corpus).build()
    (collection,) = read_collections(open_suite("mine")).values()
    assert collection.retrieval.name == "quora" and collection.rules == CollectionRules()


def test_imported_collections_keep_their_rules(tmp_path: Path) -> None:
    source = tmp_path / "known"
    for name in ("arguana", "quora"):
        write_beir_folder(source / name, make_self_asking(name))
    with (source / "arguana" / "qrels" / "test.tsv").open("a") as file:
        file.write("d3\tgone\t1\n")
    write_beir_folder(source / "msmarco", make_judged(SIZE, "msmarco"), "dev")
    (source / "msmarco" / "qrels" / "test.tsv").write_text("q0\td9\t1\n")
    import_source(source, name="mine")
    expected = read_collections(open_suite(str(source)))
    for name, collection in read_collections(open_suite("mine")).items():
        assert collection.notes == expected[name].notes and collection.retrieval == expected[name].retrieval
        assert collection.document_role == expected[name].document_role
        assert collection.num_extra_hits == expected[name].num_extra_hits
        assert collection.provenance["split"] == "test"  # the import read the split
    assert score_bm25("mine") == score_bm25(str(source))


@pytest.mark.parametrize("title", ["", "Thing of a kind"])
def test_evaluated_texts_are_not_trained_on(tmp_path: Path, title: str) -> None:
    """Documents are compared with and without their title, and queries in any spelling."""
    exam = make_judged(SIZE, "exam")
    write_beir_folder(tmp_path / "exam", exam)
    path = tmp_path / "exam" / "corpus.jsonl"
    rows = [json.loads(line) | {"title": title} for line in path.read_text().splitlines()]
    write_rows(path, [*rows, {"_id": "bare", "title": "a title without a text"}])
    texts = [*exam.documents, *(f"{title} {text}" for text in exam.documents), *(f"not {n}" for n in range(200))]
    pairs = [{"query": f"how to mend {n}", "document": text} for n, text in enumerate(texts)]
    pairs.append({"query": f"query: {exam.queries[7].upper()}?", "document": "any"})
    source = write_rows(tmp_path / "x.jsonl", pairs)
    audit = import_source(source, name="mine", evaluate_on=tmp_path / "exam").found
    assert (audit.num_kept, audit.dropped["evaluated"]) == (200, 2 * SIZE + 1)
    assert [dataset.name for dataset in open_suite("mine").datasets] == ["exam"]
    (tmp_path / "exam" / "qrels" / "test.tsv").rename(tmp_path / "exam" / "qrels" / "train.tsv")
    with pytest.raises(ValueError, match=r"test\.tsv is missing"):
        import_source(source, name="more", evaluate_on=tmp_path / "exam")
