"""Promises of what a reader gives to be evaluated on: read once, in archives too, by the rules of its own kind."""

import json
import shutil
import tarfile
import zipfile
from pathlib import Path

import pytest

from repro.data.beir import Retrieval, get_legal_name, load_beir, load_suite, write_beir_folder
from repro.data.own.imported import bring
from repro.data.pairs import read_pairs
from repro.evaluate.collections import read_collections
from repro.interop.opening import open_suite
from repro.pipeline.corpora import make_corpus_stage
from tests.commands import run_command

SIZE = 60


def scores(suite: str) -> dict[str, float]:
    found = json.loads(run_command("evaluate", "--model", "bm25", "--suite", suite, "--json"))["metrics"]
    return {path.partition("/")[2]: value for path, value in found.items()}


def collection(name: str, ids: tuple[str, ...] | None = None) -> Retrieval:
    documents = tuple(f"text of document {n} and of thing {n % 7}" for n in range(SIZE))
    queries = ids or tuple(f"q{n}" for n in range(SIZE))
    asked = documents[: len(queries)] if ids else tuple(f"question {n}" for n in range(SIZE))
    judged = {query: {f"d{(n + bool(ids)) % SIZE}": 1} for n, query in enumerate(queries)}
    return Retrieval(name, tuple(f"d{n}" for n in range(SIZE)), documents, queries, asked, judged)


def with_two_splits(folder: Path) -> Path:
    """A BEIR folder whose first forty queries are to train on; one of them is evaluated, too."""
    write_beir_folder(folder, collection(folder.name), "all")
    lines = (folder / "qrels" / "all.tsv").read_text().splitlines()
    (folder / "qrels" / "all.tsv").unlink()
    for split, part in (("train", lines[1:41]), ("test", [*lines[41:], "q1\td50\t1"])):
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join([lines[0], *part]))
    return folder


def archive_of(folder: Path, archive: Path, *, is_flat: bool = False) -> Path:
    """A zip or tar of a folder, itself in it or only what it holds."""
    root = folder if is_flat else folder.parent
    if archive.suffix == ".zip":
        with zipfile.ZipFile(archive, "w") as opened:
            for path in folder.rglob("*"):
                opened.write(path, path.relative_to(root))
    else:
        with tarfile.open(archive, "w:gz") as opened:
            opened.add(folder, "." if is_flat else folder.name)
    return archive


@pytest.mark.parametrize(("name", "is_flat"), [("theirs.zip", False), ("theirs.zip", True), ("theirs.tar.gz", False)])
def test_archives_match_their_folder(tmp_path: Path, name: str, is_flat: bool) -> None:
    folder = with_two_splits(tmp_path / "theirs")
    packed = bring(archive_of(folder, tmp_path / name, is_flat=is_flat), name="packed")
    plain = bring(folder, name="plain")
    (one, other) = (make_corpus_stage(corpus.corpus).build() for corpus in (packed, plain))
    pairs = [read_pairs(stage / "train.arrow") for stage in (one, other)]
    asked = [sorted(each.texts("query", range(len(each)))) for each in pairs]
    assert asked[0] == asked[1] == sorted(f"question {n}" for n in range(40) if n != 1)
    exams = [load_beir(stage / "suites" / corpus / "theirs") for stage, corpus in ((one, "packed"), (other, "plain"))]
    assert exams[0] == exams[1] and (len(exams[0].queries), len(exams[0].documents)) == (21, SIZE)
    with pytest.raises(ValueError, match="cannot be held out: this corpus is evaluated on theirs"):
        bring(tmp_path / name, name="other", hold_out=["x"])


def test_a_packed_evaluation_set_is_one(tmp_path: Path) -> None:
    write_beir_folder(tmp_path / "theirs", collection("theirs"))
    corpus = bring(archive_of(tmp_path / "theirs", tmp_path / "theirs.zip"), name="packed")
    assert corpus.only_evaluates and scores("packed") == scores(str(tmp_path / "theirs"))


def test_archive_defects_name_the_archive(tmp_path: Path) -> None:
    folder = with_two_splits(tmp_path / "theirs")
    for split in ("train", "test"):
        text = (folder / "qrels" / f"{split}.tsv").read_text()
        (folder / "qrels" / f"{split}.tsv").write_text(text.replace("q9\td9", "q9\tgone").replace("q59\td59", "q59\tx"))
        with pytest.raises(ValueError, match=r"^/\S*theirs\.zip/qrels/\w+\.tsv, line \d+: ") as caught:
            bring(archive_of(folder, tmp_path / "theirs.zip"), name="packed")
        assert f"{tmp_path}/theirs.zip/qrels" in str(caught.value)
        (folder / "qrels" / f"{split}.tsv").write_text(text)


@pytest.mark.parametrize("name", ["msmarco", "quora", "ArguAna", "touche2020"])
def test_known_names_get_no_quirks(tmp_path: Path, name: str) -> None:
    rows = [
        {"query": f"how to mend thing {n}", "document": f"thing {n} is mended with tool {n}", "domain": name}
        for n in range(400)
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    run_command("data", "import", str(tmp_path / "x.jsonl"), "--name", "mine", "--scale", "smoke")
    (read,) = read_collections(open_suite("mine")).values()
    assert read.retrieval.name == name.lower() and read.notes == [] and read.num_extra_hits == 0
    assert read.document_role == "document" and read.provenance["split"] == "test"
    assert scores("mine")["mean/ndcg_at_10"] > 0


def test_imported_collections_keep_their_quirks(tmp_path: Path) -> None:
    ids = tuple(f"d{n}" for n in range(SIZE))
    for name in ("arguana", "quora"):
        write_beir_folder(tmp_path / "known" / name, collection(name, ids))
    with (tmp_path / "known" / "arguana" / "qrels" / "test.tsv").open("a") as file:
        file.write("d3\tgone\t1\n")
    write_beir_folder(tmp_path / "known" / "msmarco", collection("msmarco"), "dev")
    lines = (tmp_path / "known" / "msmarco" / "qrels" / "dev.tsv").read_text().splitlines()
    (tmp_path / "known" / "msmarco" / "qrels" / "test.tsv").write_text("\n".join([lines[0], "q0\td9\t1"]))
    bring(tmp_path / "known", name="mine")
    direct, imported = (open_suite(one) for one in (str(tmp_path / "known"), "mine"))
    for name, one in read_collections(imported).items():
        before = read_collections(direct)[name]
        assert one.notes == before.notes and one.retrieval == before.retrieval
        assert (one.document_role, one.num_extra_hits) == (before.document_role, before.num_extra_hits)
        assert one.provenance["split"] == "test"  # the split was read when it was imported
    assert scores("mine") == scores(str(tmp_path / "known"))
    assert sorted(path.name for path in (load_suite_folder("mine") / "msmarco" / "qrels").iterdir()) == ["test.tsv"]


def load_suite_folder(name: str) -> Path:
    return open_suite(name).datasets[0].path.parent


def test_notes_count_local_queries(tmp_path: Path) -> None:
    write_beir_folder(tmp_path / "msmarco", collection("msmarco"), "dev")
    (read,) = read_collections(open_suite(str(tmp_path / "msmarco"))).values()
    assert read.notes[0].startswith("scored on dev (60 queries here)")
    bring(tmp_path / "msmarco", name="mine")
    (read,) = read_collections(open_suite("mine")).values()
    assert read.notes[0].startswith("scored on dev (60 queries here)")
    shutil.move(tmp_path / "msmarco" / "qrels" / "dev.tsv", tmp_path / "msmarco" / "qrels" / "test.tsv")
    bring(tmp_path / "msmarco", name="other")
    (read,) = read_collections(open_suite("other")).values()
    assert read.notes == []


def test_evaluated_negatives_are_not_trained_on(tmp_path: Path) -> None:
    write_beir_folder(tmp_path / "exam", collection("exam"))
    right = collection("exam").documents
    rows = [
        {"query": f"how to mend {n}", "document": f"with tool {n}", "negatives": [right[n % SIZE].upper(), f"not {n}"]}
        for n in range(200)
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ("data", "import", str(tmp_path / "x.jsonl"), "--name", "mine", "--scale", "smoke")
    shown = run_command(*words, "--evaluate-on", str(tmp_path / "exam"))
    assert "200 negatives with a judged text of the given evaluation set, taken out" in shown
    pairs = read_pairs(make_corpus_stage(bring_again("mine")).build() / "train.arrow")
    assert pairs.negatives(range(len(pairs))) == [[f"not {n}"] for n in range(200)]


def bring_again(name: str) -> str:
    from repro.data.own.imported import find_imported

    return find_imported(name).corpus


@pytest.mark.parametrize("name", ["my corpus", "日本語", "c++docs"])
def test_folders_of_any_name_are_imported(tmp_path: Path, name: str) -> None:
    write_beir_folder(tmp_path / "all" / name, collection(name))
    write_beir_folder(tmp_path / "all" / "other", collection("other"))
    bring(tmp_path / "all", name="mine")
    assert get_legal_name(name) in {one.name for one in load_suite(load_suite_folder("mine")).datasets}
    assert scores("mine") == scores(str(tmp_path / "all"))


@pytest.mark.parametrize("title", ["", "Thing of a kind"])
def test_titles_do_not_hide_evaluated_documents(tmp_path: Path, title: str) -> None:
    exam = collection("exam")
    write_beir_folder(tmp_path / "exam", exam)
    path = tmp_path / "exam" / "corpus.jsonl"
    rows = [json.loads(line) | {"title": title} for line in path.read_text().splitlines()]
    rows.append({"_id": "bare", "title": "a title without a text"})
    path.write_text("\n".join(map(json.dumps, rows)))
    texts = [*exam.documents, *(f"{title} {text}" for text in exam.documents), *(f"not {n}" for n in range(200))]
    pairs = [{"query": f"how to mend {n}", "document": text} for n, text in enumerate(texts)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, pairs)))
    found = bring(tmp_path / "x.jsonl", name="mine", evaluate_on=tmp_path / "exam").found
    assert (found.num_kept, found.counts["evaluated"]) == (200, 2 * SIZE)


@pytest.mark.parametrize("name", ["theirs", "quora"])
def test_unjudged_queries_are_counted_at_import(tmp_path: Path, name: str) -> None:
    write_beir_folder(tmp_path / name, collection(name))
    direct = scores(str(tmp_path / name))
    with (tmp_path / name / "queries.jsonl").open("a") as file:
        file.writelines(f'{{"_id": "more{n}", "text": "of no split"}}\n' for n in range(60))
    says = "60 queries without a judgement in any split are left out"
    shown = run_command("data", "import", str(tmp_path / name), "--name", "mine")
    assert f"{says}, as BEIR's own loader does" in shown and "60 queries, 60 documents" in shown
    for suite in ("mine", str(tmp_path / name)):
        assert says in run_command("evaluate", "--model", "bm25", "--suite", suite) and scores(suite) == direct
    rows = [{"query": f"how to mend {n}", "document": f"with tool {n}"} for n in range(400)]
    (tmp_path / "x.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ("data", "import", str(tmp_path / "x.jsonl"), "--name", "pairs", "--scale", "smoke")
    assert says in run_command(*words, "--evaluate-on", str(tmp_path / name))
