"""Oddities of known collections, malformed judgements and run files, and names that are paths.

An oddity is applied if the content shows it, changes the score, and is recorded with it.
"""

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from repro.analyses import cross, mteb
from repro.data.beir import Retrieval, Suite, SuiteDataset, load_beir, load_suite, write_beir_folder, write_suite
from repro.data.paper.quirks import Quirks, find_quirks
from repro.evaluate import first_stage
from repro.evaluate.collections import Collection, read_collections
from repro.evaluate.retrieval import read_run, score, search_bm25
from repro.evaluate.suites import TOP_K, evaluate_bm25
from repro.evaluate.trec import read_judgements
from repro.report.scores import list_notes
from repro.spec import base
from tests.analyses.by_hand import make_inputs
from tests.evaluate.scored import evaluate_suite

DOCUMENTS = tuple(f"the case for idea {n}" for n in range(4)) + tuple(f"the case against idea {n}" for n in range(4))
IDS = tuple(f"pro{n}" for n in range(4)) + tuple(f"con{n}" for n in range(4))


class Mirror:
    """An encoder of word counts, so that a query finds itself first. It stores the prompts it was given."""

    def __init__(self) -> None:
        self.roles, self.context_roles = [], []

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        self.context_roles.append(prompt)

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        self.roles.append(prompt)
        words = ["for", "against", *"0123"]
        vectors = np.array([[word in text.split() for word in words] for text in texts], dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def write_debates(tmp_path: Path, name: str, judgements: dict[str, dict[str, int]], split: str = "test") -> Suite:
    queries = {i: t for i, t in zip(IDS, DOCUMENTS, strict=True) if i in judgements}
    data = Retrieval(name, IDS, DOCUMENTS, tuple(queries), tuple(queries.values()), judgements)
    write_beir_folder(tmp_path / name, data, split)
    return Suite("odd", (SuiteDataset(name, "family", tmp_path / name),))


COUNTERS = {f"pro{n}": {f"con{n}": 1} for n in range(4)}


@pytest.mark.parametrize("name", ["arguana", "quora"])
def test_queries_do_not_find_themselves(tmp_path: Path, name: str) -> None:
    odd = evaluate_suite(Mirror(), write_debates(tmp_path, name, COUNTERS), folder=tmp_path / "out")
    run = read_trec(tmp_path / "out", name)
    assert all(query not in hits for query, hits in run.items())
    usual = evaluate_suite(Mirror(), write_debates(tmp_path, "debates", COUNTERS))
    assert odd.metrics[f"odd/{name}/mrr_at_10"] > usual.metrics["odd/debates/mrr_at_10"]


@pytest.mark.parametrize("name", ["arguana", "quora"])
def test_crossed_contexts_score_like_retrieval(tmp_path: Path, name: str) -> None:
    odd, usual = (write_debates(tmp_path, one, COUNTERS) for one in (name, "debates"))
    suite, encoder = Suite("desk", odd.datasets + usual.datasets), Mirror()
    inputs = make_inputs(base("desk", architecture="contextual", num_contexts=2), suite=suite)
    found, expected = cross.measure(inputs, encoder, tmp_path), evaluate_suite(Mirror(), suite, num_contexts=2)
    for one in (name, "debates"):
        assert found.metrics[f"cross/{one}/{one}/ndcg_at_10"] == expected.metrics[f"desk/{one}/ndcg_at_10"]
    assert found.provenance["datasets"] == expected.provenance["datasets"]
    role = "query" if name == "quora" else "document"
    assert encoder.roles == ["query", role, "query", "document"] * 2 and encoder.context_roles == [role, "document"]


def read_trec(folder: Path, name: str) -> dict[str, dict[str, float]]:
    """Read the run file of a collection of the suite "odd"."""
    return read_run(folder / "odd" / f"{name}.trec.gz")


def test_self_hits_are_removed_in_mteb(tmp_path: Path) -> None:
    odd, usual = (write_debates(tmp_path, one, COUNTERS) for one in ("arguana", "debates"))
    suite = Suite("desk", odd.datasets + usual.datasets)
    inputs = make_inputs(base("desk", architecture="bm25", measure="mteb"), suite=suite)
    metrics = mteb.measure(inputs, None, tmp_path).metrics
    whole = search_bm25(read_collections(suite)["arguana"].retrieval, len(IDS), tokenizer="english")[0]
    others = {query: {hit: value for hit, value in hits.items() if hit != query} for query, hits in whole.items()}
    assert metrics["desk/tasks/arguana/score"] == pytest.approx(score(others, COUNTERS)["ndcg_at_10"].mean())
    assert metrics["desk/tasks/arguana/score"] > metrics["desk/tasks/debates/score"]
    is_removed = {task.metadata.name: task.ignore_identical_ids for task in mteb.list_tasks(inputs)[:2]}
    assert is_removed == {"arguana": True, "debates": False}


def test_quirks_keep_the_depth(tmp_path: Path) -> None:
    texts = tuple(f"claim {n}" for n in range(TOP_K + 20))
    ids = tuple(f"d{n}" for n in range(TOP_K + 20))
    data = Retrieval("arguana", ids, texts, ids[:3], texts[:3], {i: {"d9": 1} for i in ids[:3]})
    write_beir_folder(tmp_path / "arguana", data)
    suite = Suite("odd", (SuiteDataset("arguana", "family", tmp_path / "arguana"),))

    class Even(Mirror):
        def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
            numbers = np.array([float(text.split()[-1]) for text in texts], dtype=np.float32)
            return np.stack([np.ones(len(texts), dtype=np.float32), numbers], axis=1)

    evaluate_suite(Even(), suite, folder=tmp_path / "out")
    evaluate_bm25(suite, folder=tmp_path / "bm25")
    run = read_trec(tmp_path / "out", "arguana")
    assert {len(hits) for hits in run.values()} == {TOP_K}
    found = read_trec(tmp_path / "bm25", "arguana")
    assert all(query not in hits and len(hits) == TOP_K for query, hits in found.items())


def test_quora_prompts_both_sides_alike(tmp_path: Path) -> None:
    encoder = Mirror()
    evaluate_suite(encoder, write_debates(tmp_path, "quora", COUNTERS), num_contexts=2)
    assert encoder.roles == ["query", "query"] and encoder.context_roles == ["query"]
    usual = Mirror()
    evaluate_suite(usual, write_debates(tmp_path, "arguana", COUNTERS), num_contexts=2)
    assert usual.roles == ["query", "document"] and usual.context_roles == ["document"]


def test_first_stage_prompts_like_ranking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = base("smoke", architecture="surrogate", protocol="rerank", rerank_depth=2)
    for name, role in (("quora", "query"), ("arguana", "document")):
        encoder = Mirror()
        monkeypatch.setattr(first_stage, "get_surrogate", lambda _run, one=encoder: one)
        monkeypatch.setattr(first_stage, "get_first_stage_name", lambda _run: "mirror")
        (tmp_path / "found" / name).mkdir(parents=True)
        first_stage.find_candidates(run, write_debates(tmp_path, name, COUNTERS), tmp_path / "found" / name)
        assert encoder.roles == ["query", role]


def test_missing_judged_document_is_never_found(tmp_path: Path) -> None:
    lacking = {**COUNTERS, "pro0": {"con0": 1, "gone": 1}}
    suite = write_debates(tmp_path, "arguana", lacking)
    found = evaluate_suite(Mirror(), suite, folder=tmp_path / "out")
    run = read_trec(tmp_path / "out", "arguana")
    in_order = {query: {hit: -float(place) for place, hit in enumerate(hits)} for query, hits in run.items()}
    reference = pytrec_eval.RelevanceEvaluator(lacking, {"ndcg_cut_10"}).evaluate(in_order)
    expected = [reference[query]["ndcg_cut_10"] for query in sorted(lacking)]
    np.testing.assert_allclose(found.per_query["odd"], expected, atol=1e-6)
    assert "1 judged documents are not in the corpus" in list_notes(found.provenance)[1]
    with pytest.raises(ValueError, match="'gone' is not in corpus"):
        read_collections(write_debates(tmp_path, "debates", lacking))


def test_ms_marco_is_scored_on_dev(tmp_path: Path) -> None:
    suite = write_debates(tmp_path, "msmarco", COUNTERS, "dev")
    (tmp_path / "msmarco" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\npro0\tcon3\t1\n")
    found = evaluate_suite(Mirror(), suite)
    assert found.provenance["datasets"][0]["num_queries"] == 4 and found.provenance["datasets"][0]["split"] == "dev"
    (tmp_path / "msmarco" / "qrels" / "dev.tsv").unlink()
    with pytest.raises(ValueError, match=r"dev\.tsv is missing: available splits are \['test'\]"):
        evaluate_suite(Mirror(), suite)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("arguana", "removed from its own ranking"),
        ("quora", "both sides"),
        ("msmarco", "scored on dev"),
        ("webis-touche2020", "version 2"),
    ],
)
def test_quirks_are_recorded_with_scores(tmp_path: Path, name: str, words: str) -> None:
    split = "dev" if name == "msmarco" else "test"
    found = evaluate_suite(Mirror(), write_debates(tmp_path, name, COUNTERS, split))
    (row,) = found.provenance["datasets"]
    assert any(words in note for note in row["quirks"])
    assert any(note.startswith(f"{name}: ") and words in note for note in list_notes(found.provenance))
    others = list_notes(evaluate_suite(Mirror(), write_debates(tmp_path, "debates", COUNTERS)).provenance)
    assert ["have the id of a document" in note for note in others] == [True], "an unknown name has no oddity"


@pytest.mark.parametrize("name", ["arguana", "quora", "QuoraRetrieval"])
def test_own_folder_keeps_its_right_answers(tmp_path: Path, name: str) -> None:
    """In a folder that is only named like a known collection, queries may be judged with the document of their id."""
    suite = write_debates(tmp_path, name, {i: {i: 1} for i in IDS})
    (read,) = read_collections(suite).values()
    assert not read.quirks.removes_self_hits and read.document_role == "document"
    assert sum("8 queries judge the document of their own id" in note for note in read.notes) == 1
    assert evaluate_suite(Mirror(), suite).metrics[f"odd/{name}/ndcg_at_10"] == 1


def test_equal_ids_do_not_show_quora(tmp_path: Path) -> None:
    """Queries and documents share ids, but a query is not the text of the document with its id."""
    data = Retrieval("quora", IDS, DOCUMENTS, IDS, DOCUMENTS[::-1], {i: {IDS[n - 1]: 1} for n, i in enumerate(IDS)})
    write_beir_folder(tmp_path / "quora", data)
    (read,) = read_collections(Suite("odd", (SuiteDataset("quora", "family", tmp_path / "quora"),))).values()
    assert read.num_extra_hits == 0 and read.document_role == "document"


def test_quirks_keep_judged_documents(tmp_path: Path) -> None:
    """A requested oddity removes no judged document."""
    suite = write_debates(tmp_path, "mine", {"pro0": {"pro0": 1, "con0": 1}, "pro1": {"con1": 1}})
    dataset = SuiteDataset("mine", "family", tmp_path / "mine", Quirks(removes_self_hits=True))
    evaluate_suite(Mirror(), Suite(suite.name, (dataset,)), folder=tmp_path / "out")
    run = read_trec(tmp_path / "out", "mine")
    assert "pro0" in run["pro0"] and "pro1" not in run["pro1"]


HEAD = "query-id\tcorpus-id\tscore\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    texts = ("a", "b", "c")
    judged = {"q1": {"d1": 1, "d2": -1}, "q2": {"d3": 0}}
    write_beir_folder(tmp_path / "x", Retrieval("x", ("d1", "d2", "d3"), texts, ("q1", "q2"), ("a", "b"), judged))
    return tmp_path / "x"


@pytest.mark.parametrize(
    ("rows", "message", "flat_message"),
    [
        ("q1\td1\t999999999\nq2\td1\t1\n", "line 2.*999999999 is not from -100 to 1000", "is not from -100 to 1000"),
        (f"q1\td1\t{'9' * 5000}\n", "line 2.*is not a whole number", "is not a whole number"),
        ("q1\td1\t1.5\n", "line 2.*'1.5' is not a whole number", "'1.5' is not a whole number"),
        ("q1\td1\t1\nq1\td1\t0\nq2\td1\t1\n", "line 3.*were judged 1 before, 0 here", "were judged 1 before, 0 here"),
        ("q1\td1\t-1\nq2\td1\t0\n", "no grade above 0", "judges nothing above 0"),
    ],
)
def test_impossible_split_is_refused(folder: Path, rows: str, message: str, flat_message: str) -> None:
    (folder / "qrels/test.tsv").write_text(HEAD + rows)
    with pytest.raises(ValueError, match=message):
        load_beir(folder)
    (folder / "flat.qrels").write_text(rows)
    with pytest.raises(ValueError, match=flat_message):
        read_judgements(folder / "flat.qrels")


def test_remaining_self_hits_are_counted(folder: Path) -> None:
    (folder / "qrels/test.tsv").write_text(HEAD + "q1\td1\t1\nq2\td2\t1\n")
    retrieval = load_beir(folder)
    assert Collection(retrieval, find_quirks("x")).notes == []
    alike = replace(retrieval, document_ids=("q1", "d1", "d2"))
    (note,) = Collection(alike, find_quirks("x")).notes
    assert note.startswith("1 of 2 queries have the id of a document, which counts here")
    assert len(Collection(alike, find_quirks("arguana")).notes) == 1


@pytest.mark.parametrize(
    "head", ["query-id\tcorpus-id\tscore", "Query_ID\tcorpus_id\tscore", "query_id corpus_id score"]
)
def test_run_scoring_skips_a_header(folder: Path, head: str) -> None:
    path = folder / "qrels/test.tsv"
    path.write_text(f"{head}\nq1\td1\t1\nq2\td2\t0\n")
    assert read_judgements(path) == {"q1": {"d1": 1}, "q2": {"d2": 0}}
    if "\t" in head:
        assert load_beir(folder).judgements == read_judgements(path)


def test_repeated_judgements_count_once(folder: Path) -> None:
    (folder / "qrels/test.tsv").write_text(HEAD + "q1\td1\t1\nq1\td1\t1\nq2\td2\t1\n")
    assert load_beir(folder).judgements == {"q1": {"d1": 1}, "q2": {"d2": 1}}


def test_queries_without_relevant_score_0(folder: Path) -> None:
    retrieval = load_beir(folder)
    assert Collection(retrieval, find_quirks("x")).notes == [
        "1 queries have no relevant document and score 0, as in trec_eval"
    ]
    run = {"q1": {"d2": 3.0, "d1": 2.0}, "q2": {"d3": 1.0}}
    reference = pytrec_eval.RelevanceEvaluator(dict(retrieval.judgements), {"ndcg_cut.10"}).evaluate(run)
    found = score(run, retrieval.judgements)["ndcg_at_10"]
    assert found.tolist() == pytest.approx([reference[query]["ndcg_cut_10"] for query in ("q1", "q2")])
    assert found[1] == 0


@pytest.mark.parametrize(
    ("data", "message"),
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
def test_malformed_run_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "x.run").write_bytes(data)
    with pytest.raises(ValueError, match=message) as caught:
        read_run(tmp_path / "x.run")
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("name", ["/tmp/x", "../../x", "..", "", "a\nb", "x" * 200, 3, None, ["a"]])
@pytest.mark.parametrize("place", ["suite", "dataset", "family"])
def test_names_that_are_paths_are_refused(folder: Path, name: object, place: str) -> None:
    names = {"suite": "zoo", "dataset": "x", "family": "f"} | {place: name}
    write_suite(folder.parent, names["suite"], [(names["dataset"], names["family"])])
    with pytest.raises(ValueError, match=r"suite\.json.*is not a name"):
        load_suite(folder.parent)


def test_impossible_ids_are_refused_first(folder: Path) -> None:
    (folder / "corpus.jsonl").write_text('{"_id": "d 1", "text": "a"}\n')
    with pytest.raises(ValueError, match=r"corpus\.jsonl, line 1: the id 'd 1' is empty or has a space"):
        load_beir(folder)


def test_whole_grades_may_have_a_point(folder: Path) -> None:
    (folder / "qrels/test.tsv").write_text(HEAD + "q1\td1\t2.0\nq1\td2\t-1.00\nq2\td3\t0.0\n")
    assert load_beir(folder).judgements == {"q1": {"d1": 2, "d2": -1}, "q2": {"d3": 0}}
