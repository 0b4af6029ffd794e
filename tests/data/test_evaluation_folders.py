"""Evaluation data that a user provides: archives equal folders, known collections keep their quirks, nothing is trained on."""

import json
import shutil
from pathlib import Path

import pytest

from repro.data.beir import Retrieval, get_legal_name, load_beir, load_suite, write_beir_folder
from repro.data.own.imported import import_source
from repro.data.pairs import read_pairs
from repro.data.paper.quirks import Quirks
from repro.evaluate.collections import read_collections
from repro.interop.corpus import find_corpus
from repro.interop.opening import open_suite
from repro.pipeline.corpora import make_corpus_stage
from tests.commands import run_command
from tests.data.files import pack_folder, write_rows

SIZE = 60


def score_bm25(suite: str) -> dict[str, float]:
    """Evaluate BM25 by command, and return its metrics without the name of the suite."""
    metrics = json.loads(run_command("evaluate", "--model", "bm25", "--suite", suite, "--json"))["metrics"]
    return {path.partition("/")[2]: value for path, value in metrics.items()}


def make_collection(name: str, ids: tuple[str, ...] | None = None) -> Retrieval:
    """Return a collection of 60 documents. With `ids`, queries have these ids and ask with texts of documents."""
    documents = tuple(f"text of document {n} and of thing {n % 7}" for n in range(SIZE))
    queries = ids or tuple(f"q{n}" for n in range(SIZE))
    texts = documents[: len(queries)] if ids else tuple(f"question {n}" for n in range(SIZE))
    judgements = {query: {f"d{(n + bool(ids)) % SIZE}": 1} for n, query in enumerate(queries)}
    return Retrieval(name, tuple(f"d{n}" for n in range(SIZE)), documents, queries, texts, judgements)


def write_two_splits(folder: Path) -> Path:
    """Write a BEIR folder with 40 training queries and 20 test queries. One training query is also tested."""
    write_beir_folder(folder, make_collection(folder.name), "all")
    lines = (folder / "qrels" / "all.tsv").read_text().splitlines()
    (folder / "qrels" / "all.tsv").unlink()
    for split, part in (("train", lines[1:41]), ("test", [*lines[41:], "q1\td50\t1"])):
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join([lines[0], *part]))
    return folder


@pytest.mark.parametrize(("name", "is_flat"), [("theirs.zip", False), ("theirs.zip", True), ("theirs.tar.gz", False)])
def test_archives_match_their_folder(tmp_path: Path, name: str, is_flat: bool) -> None:
    folder = write_two_splits(tmp_path / "theirs")
    sources = {"packed": pack_folder(folder, tmp_path / name, is_flat=is_flat), "plain": folder}
    collections = []
    for corpus, source in sources.items():
        stage = make_corpus_stage(import_source(source, name=corpus).corpus).build()
        pairs = read_pairs(stage / "train.arrow")
        queries = sorted(pairs.texts("query", range(len(pairs))))
        assert queries == sorted(f"question {n}" for n in range(40) if n != 1)
        collections.append(load_beir(stage / "suites" / corpus / "theirs"))
    assert collections[0] == collections[1]
    assert (len(collections[0].queries), len(collections[0].documents)) == (21, SIZE)
    with pytest.raises(ValueError, match="cannot be held out"):
        import_source(tmp_path / name, name="other", hold_out=["x"])


@pytest.mark.parametrize("split", ["train", "test"])
def test_archive_defects_name_the_archive(tmp_path: Path, split: str) -> None:
    folder = write_two_splits(tmp_path / "theirs")
    with (folder / "qrels" / f"{split}.tsv").open("a") as file:
        file.write("\nq9\tgone\t1\n")
    archive = pack_folder(folder, tmp_path / "theirs.zip")
    with pytest.raises(ValueError, match=rf"^{archive}/qrels/{split}\.tsv, line \d+: "):
        import_source(archive, name="packed")


def test_skipped_entries_name_the_archive(tmp_path: Path) -> None:
    """Its unpacked folder exists during the import only."""
    write_beir_folder(tmp_path / "theirs" / "exam", make_collection("exam"))
    (tmp_path / "theirs" / "notes.txt").touch()
    archive = pack_folder(tmp_path / "theirs", tmp_path / "theirs.zip")
    source = write_rows(tmp_path / "x.jsonl", [{"query": f"ask {n}", "document": f"answer {n}"} for n in range(200)])
    for corpus in (import_source(archive, name="exam"), import_source(source, name="mine", evaluate_on=archive)):
        (line,) = corpus.skipped
        assert line.startswith(f"{archive}: 1 collection read") and "notes.txt" in line


@pytest.mark.parametrize("name", ["msmarco", "quora", "ArguAna", "touche2020"])
def test_known_names_get_no_quirks(tmp_path: Path, name: str) -> None:
    """A held-out collection with the name of a known one is not treated as that one."""
    rows = [{"query": f"mend thing {n}", "document": f"thing {n} needs tool {n}", "domain": name} for n in range(300)]
    make_corpus_stage(import_source(write_rows(tmp_path / "x.jsonl", rows), name="mine").corpus).build()
    (collection,) = read_collections(open_suite("mine")).values()
    assert collection.retrieval.name == name.lower() and collection.quirks == Quirks()


def test_imported_collections_keep_their_quirks(tmp_path: Path) -> None:
    source = tmp_path / "known"
    ids = tuple(f"d{n}" for n in range(SIZE))
    for name in ("arguana", "quora"):
        write_beir_folder(source / name, make_collection(name, ids))
    with (source / "arguana" / "qrels" / "test.tsv").open("a") as file:
        file.write("d3\tgone\t1\n")
    write_beir_folder(source / "msmarco", make_collection("msmarco"), "dev")
    lines = (source / "msmarco" / "qrels" / "dev.tsv").read_text().splitlines()
    (source / "msmarco" / "qrels" / "test.tsv").write_text("\n".join([lines[0], "q0\td9\t1"]))
    import_source(source, name="mine")
    expected = read_collections(open_suite(str(source)))
    for name, collection in read_collections(open_suite("mine")).items():
        assert collection.notes == expected[name].notes and collection.retrieval == expected[name].retrieval
        assert collection.document_role == expected[name].document_role
        assert collection.num_extra_hits == expected[name].num_extra_hits
        assert collection.provenance["split"] == "test"  # the import read the split
    assert score_bm25("mine") == score_bm25(str(source))
    assert sorted(path.name for path in (get_suite_folder("mine") / "msmarco" / "qrels").iterdir()) == ["test.tsv"]


def test_known_split_is_not_required(tmp_path: Path) -> None:
    """A collection named msmarco without the split dev is searched, too."""
    collection = make_collection("msmarco")
    write_beir_folder(tmp_path / "msmarco", collection)
    import_source(tmp_path / "msmarco", name="mine")
    documents, _ = find_corpus("mine").read()
    assert documents == dict(zip(collection.document_ids, collection.documents, strict=True))


def get_suite_folder(name: str) -> Path:
    """Return the folder of an imported suite."""
    return open_suite(name).datasets[0].path.parent


def test_notes_count_local_queries(tmp_path: Path) -> None:
    folder = tmp_path / "msmarco"

    def read_notes(suite: str) -> list[str]:
        (collection,) = read_collections(open_suite(suite)).values()
        return collection.notes

    write_beir_folder(folder, make_collection("msmarco"), "dev")
    import_source(folder, name="mine")
    for suite in (str(folder), "mine"):
        assert read_notes(suite)[0].startswith("scored on dev (60 queries here)")
    shutil.move(folder / "qrels" / "dev.tsv", folder / "qrels" / "test.tsv")
    import_source(folder, name="other")
    assert read_notes("other") == []


def test_folders_of_any_name_are_imported(tmp_path: Path) -> None:
    names = ("my corpus", "日本語", "c++docs")
    for name in names:
        write_beir_folder(tmp_path / "all" / name, make_collection(name))
    import_source(tmp_path / "all", name="mine")
    assert {dataset.name for dataset in load_suite(get_suite_folder("mine")).datasets} == {*map(get_legal_name, names)}
    assert score_bm25("mine") == score_bm25(str(tmp_path / "all"))


@pytest.mark.parametrize("title", ["", "Thing of a kind"])
def test_evaluated_texts_are_not_trained_on(tmp_path: Path, title: str) -> None:
    """Documents are compared with and without their title."""
    exam = make_collection("exam")
    write_beir_folder(tmp_path / "exam", exam)
    path = tmp_path / "exam" / "corpus.jsonl"
    rows = [json.loads(line) | {"title": title} for line in path.read_text().splitlines()]
    write_rows(path, [*rows, {"_id": "bare", "title": "a title without a text"}])
    texts = [*exam.documents, *(f"{title} {text}" for text in exam.documents), *(f"not {n}" for n in range(200))]
    pairs = [{"query": f"how to mend {n}", "document": text} for n, text in enumerate(texts)]
    pairs.append({"query": exam.queries[7].upper(), "document": "any"})
    source = write_rows(tmp_path / "x.jsonl", pairs)
    audit = import_source(source, name="mine", evaluate_on=tmp_path / "exam").found
    assert (audit.num_kept, audit.counts["evaluated"]) == (200, 2 * SIZE + 1)
    assert [dataset.name for dataset in open_suite("mine").datasets] == ["exam"]
    (tmp_path / "exam" / "qrels" / "test.tsv").rename(tmp_path / "exam" / "qrels" / "train.tsv")
    with pytest.raises(ValueError, match="no split to evaluate on"):
        import_source(source, name="more", evaluate_on=tmp_path / "exam")


@pytest.mark.parametrize("name", ["theirs", "quora"])
def test_unjudged_queries_are_counted_at_import(tmp_path: Path, name: str) -> None:
    write_beir_folder(tmp_path / name, make_collection(name))
    expected = score_bm25(str(tmp_path / name))
    with (tmp_path / name / "queries.jsonl").open("a") as file:
        file.writelines(f'{{"_id": "more{n}", "text": "of no split"}}\n' for n in range(60))
    note = "60 queries without a judgement in any split"
    output = run_command("data", "import", str(tmp_path / name), "--name", "mine")
    assert note in output and "60 queries, 60 documents" in output
    for suite in ("mine", str(tmp_path / name)):
        (collection,) = read_collections(open_suite(suite)).values()
        assert note in collection.notes[0]
        assert score_bm25(suite) == expected
    source = write_rows(tmp_path / "x.jsonl", [{"query": f"ask {n}", "document": f"answer {n}"} for n in range(200)])
    words = ("data", "import", str(source), "--name", "pairs", "--scale", "smoke")
    assert note in run_command(*words, "--evaluate-on", str(tmp_path / name))
