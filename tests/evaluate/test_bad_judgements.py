"""Judgements and runs that cannot be meant are refused with file and line; what is odd but meant is said."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest
import pytrec_eval

from repro.data.beir import Retrieval, load_beir, load_suite, write_beir_folder, write_suite
from repro.data.paper.quirks import find_quirks
from repro.evaluate.collections import Collection
from repro.evaluate.retrieval import read_run, score
from repro.evaluate.trec import read_judgements

HEAD = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = ("a", "b", "c")
    judged = {"q1": {"d1": 1, "d2": -1}, "q2": {"d3": 0}}
    write_beir_folder(tmp_path / "x", Retrieval("x", ("d1", "d2", "d3"), texts, ("q1", "q2"), ("a", "b"), judged))
    return tmp_path / "x"


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ("q1\td1\t999999999\nq2\td1\t1\n", "line 2.*999999999 is not from -100 to 1000"),
        (f"q1\td1\t{'9' * 5000}\n", "line 2.*is no whole number"),
        ("q1\td1\t1.5\n", "line 2.*'1.5' is no whole number"),
        ("q1\td1\t1\nq1\td1\t0\nq2\td1\t1\n", "line 3.*were judged 1 before, 0 here"),
        ("q1\td1\t-1\nq2\td1\t0\n", "no grade above 0"),
    ],
)
def test_a_split_that_cannot_be_meant_is_refused(folder: Path, rows: str, says: str) -> None:
    (folder / "qrels/test.tsv").write_text(HEAD + rows)
    with pytest.raises(ValueError, match=says):
        load_beir(folder)
    (folder / "flat.qrels").write_text(rows)
    with pytest.raises(ValueError, match=says.replace("line 2", "line 1").replace("line 3", "line 2").split(".*")[-1]
                       if "no grade" not in says else "judges nothing above 0"):  # fmt: skip
        read_judgements(folder / "flat.qrels")


def test_queries_with_the_id_of_a_document_are_counted_where_their_documents_stay(folder: Path) -> None:
    (folder / "qrels/test.tsv").write_text(HEAD + "q1\td1\t1\nq2\td2\t1\n")
    retrieval = load_beir(folder)
    assert Collection(retrieval, find_quirks("x")).notes == []
    alike = replace(retrieval, document_ids=("q1", "d1", "d2"))
    (note,) = Collection(alike, find_quirks("x")).notes
    assert note.startswith("1 of 2 queries have the id of a document, which counts here")
    assert len(Collection(alike, find_quirks("arguana")).notes) == 1, "there it is taken out, and said"


@pytest.mark.parametrize(
    "head", ["query-id\tcorpus-id\tscore", "Query_ID\tcorpus_id\tscore", "query_id corpus_id score"]
)
def test_a_header_that_an_evaluation_reads_over_is_read_over_in_scoring_a_run(folder: Path, head: str) -> None:
    path = folder / "qrels/test.tsv"
    path.write_text(f"{head}\nq1\td1\t1\nq2\td2\t0\n")
    assert read_judgements(path) == {"q1": {"d1": 1}, "q2": {"d2": 0}}
    if "\t" in head:
        assert load_beir(folder).judgements == read_judgements(path)


def test_a_judgement_that_is_there_twice_counts_once(folder: Path) -> None:
    (folder / "qrels/test.tsv").write_text(HEAD + "q1\td1\t1\nq1\td1\t1\nq2\td2\t1\n")
    assert load_beir(folder).judgements == {"q1": {"d1": 1}, "q2": {"d2": 1}}


def test_a_query_without_a_relevant_document_scores_0_as_in_trec_eval_and_is_told(folder: Path) -> None:
    retrieval = load_beir(folder)
    assert Collection(retrieval, find_quirks("x")).notes == [
        "1 queries have no relevant document and score 0, as in trec_eval"
    ]
    run = {"q1": {"d2": 3.0, "d1": 2.0}, "q2": {"d3": 1.0}}
    theirs = pytrec_eval.RelevanceEvaluator(dict(retrieval.judgements), {"ndcg_cut.10"}).evaluate(run)
    ours = score(run, retrieval.judgements)["ndcg_at_10"]
    assert ours.tolist() == pytest.approx([theirs[query]["ndcg_cut_10"] for query in ("q1", "q2")])
    assert ours[1] == 0


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"q Q0 d 1 0.5 t\nq Q0 d 2 0.4 t\n", "line 2.*ranked for q before"),
        (b"q Q0 d 1 nan t\n", "line 1.*its score is nan"),
        (b"q Q0 d 1 1e999 t\n", "line 1.*its score is inf"),
        (b"q Q0 d 1 x t\n", "line 1.*its score is 'x'"),
        (b"q Q0 d\n", "line 1.*3 columns"),
        (b"a" * 10**6, "line 1.*1 columns"),
        ("q Q0 d 1 0.5 t\n".encode("utf-16"), "not UTF-8 after line 0; it is UTF-16: iconv"),
        ("q Q0 d 1 0.5 t\nq Q0 \xe9 1 0.4 t\n".encode("latin-1"), "not UTF-8.*iconv -f LATIN1"),
        (gzip.compress(b"q Q0 d 1 0.5 t\n" * 1, mtime=0)[:-6], "is damaged"),
        (b"\x1f\x8bxx", "is damaged"),
    ],
)
def test_a_run_that_is_none_is_refused(tmp_path: Path, data: bytes, says: str) -> None:
    (tmp_path / "x.run").write_bytes(data)
    with pytest.raises(ValueError, match=says) as caught:
        read_run(tmp_path / "x.run")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["/tmp/x", "../../x", "..", "", "a\nb", "x" * 200, 3, None, ["a"]])
@pytest.mark.parametrize("place", ["suite", "dataset", "family"])
def test_names_that_would_be_paths_are_refused_where_they_enter(folder: Path, name: object, place: str) -> None:
    names = {"suite": "zoo", "dataset": "x", "family": "f"} | {place: name}
    write_suite(folder.parent, names["suite"], [(names["dataset"], names["family"])])
    with pytest.raises(ValueError, match=r"suite\.json.*is no name"):
        load_suite(folder.parent)


def test_ids_that_no_run_can_hold_are_refused_before_anything_is_scored(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text('{"_id": "d 1", "text": "a"}\n')
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 1: the id 'd 1' is empty or has a space"):
        load_beir(folder)


def test_a_whole_grade_may_be_written_with_a_point(folder: Path) -> None:
    (folder / "qrels/test.tsv").write_text(HEAD + "q1\td1\t2.0\nq1\td2\t-1.00\nq2\td3\t0.0\n")
    assert load_beir(folder).judgements == {"q1": {"d1": 2, "d2": -1}, "q2": {"d3": 0}}
