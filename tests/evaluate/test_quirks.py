"""Promises of oddities: each is applied unasked, changes the score it is about, and is told beside it."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from repro.analyses import cross, mteb
from repro.data.beir import Retrieval, Suite, SuiteDataset, write_beir_folder
from repro.data.paper.quirks import Quirks
from repro.evaluate import first_stage
from repro.evaluate.collections import read_collections
from repro.evaluate.retrieval import bm25_search, read_run, score
from repro.evaluate.suites import TOP_K, evaluate_bm25
from repro.report.scores import list_notes
from repro.spec import base
from tests.analyses.by_hand import inputs_of
from tests.evaluate.scored import evaluate_suite

DOCUMENTS = tuple(f"the case for idea {n}" for n in range(4)) + tuple(f"the case against idea {n}" for n in range(4))
IDS = tuple(f"pro{n}" for n in range(4)) + tuple(f"con{n}" for n in range(4))


class Mirror:
    """A text's vector is its own words, so that a query finds itself first."""

    def __init__(self) -> None:
        self.roles, self.context_roles = [], []

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        self.context_roles.append(prompt)

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        self.roles.append(prompt)
        words = ["for", "against", *"0123"]
        vectors = np.array([[word in text.split() for word in words] for text in texts], dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def suite_of(tmp_path: Path, name: str, judgements: dict[str, dict[str, int]], split: str = "test") -> Suite:
    queries = {i: t for i, t in zip(IDS, DOCUMENTS, strict=True) if i in judgements}
    data = Retrieval(name, IDS, DOCUMENTS, tuple(queries), tuple(queries.values()), judgements)
    write_beir_folder(tmp_path / name, data, split)
    return Suite("odd", (SuiteDataset(name, "family", tmp_path / name),))


COUNTERS = {f"pro{n}": {f"con{n}": 1} for n in range(4)}


@pytest.mark.parametrize("name", ["arguana", "quora"])
def test_a_query_that_is_a_document_does_not_find_itself(tmp_path: Path, name: str) -> None:
    odd = evaluate_suite(Mirror(), suite_of(tmp_path, name, COUNTERS), folder=tmp_path / "out")
    run = read_run(tmp_path / "out" / "odd" / f"{name}.trec.gz")
    assert all(query not in hits for query, hits in run.items())
    usual = evaluate_suite(Mirror(), suite_of(tmp_path, "debates", COUNTERS))
    assert odd.metrics[f"odd/{name}/mrr_at_10"] > usual.metrics["odd/debates/mrr_at_10"]


@pytest.mark.parametrize("name", ["arguana", "quora"])
def test_crossed_contexts_score_a_collection_as_retrieval_does(tmp_path: Path, name: str) -> None:
    odd, usual = (suite_of(tmp_path, one, COUNTERS) for one in (name, "debates"))
    suite, encoder = Suite("desk", odd.datasets + usual.datasets), Mirror()
    inputs = inputs_of(base("desk", architecture="contextual", num_contexts=2), suite=suite)
    found, expected = cross.measure(inputs, encoder, tmp_path), evaluate_suite(Mirror(), suite, num_contexts=2)
    for one in (name, "debates"):
        assert found.metrics[f"cross/{one}/{one}/ndcg_at_10"] == expected.metrics[f"desk/{one}/ndcg_at_10"]
    assert found.provenance["datasets"] == expected.provenance["datasets"], "the oddity is told with these, too"
    role = "query" if name == "quora" else "document"
    assert encoder.roles == ["query", role, "query", "document"] * 2 and encoder.context_roles == [role, "document"]


def test_bm25_does_not_find_the_query_itself_among_the_tasks_of_mteb_and_neither_do_models(tmp_path: Path) -> None:
    odd, usual = (suite_of(tmp_path, one, COUNTERS) for one in ("arguana", "debates"))
    suite = Suite("desk", odd.datasets + usual.datasets)
    inputs = inputs_of(base("desk", architecture="bm25", measure="mteb"), suite=suite)
    found = mteb.measure(inputs, None, tmp_path).metrics
    whole = bm25_search(read_collections(suite)["arguana"].retrieval, len(IDS), tokenizer="english")[0]
    others = {query: {hit: value for hit, value in hits.items() if hit != query} for query, hits in whole.items()}
    assert found["desk/tasks/arguana/score"] == pytest.approx(score(others, COUNTERS)["ndcg_at_10"].mean())
    assert found["desk/tasks/arguana/score"] > found["desk/tasks/debates/score"]
    itself_first = {task.metadata.name: not task.ignore_identical_ids for task in mteb.list_tasks(inputs)[:2]}
    assert itself_first == {"arguana": False, "debates": True}


def test_as_many_documents_are_kept_as_without_the_oddity(tmp_path: Path) -> None:
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
    run = read_run(tmp_path / "out" / "odd" / "arguana.trec.gz")
    assert {len(hits) for hits in run.values()} == {TOP_K}
    found = read_run(tmp_path / "bm25" / "odd" / "arguana.trec.gz")
    assert all(query not in hits and len(hits) == TOP_K for query, hits in found.items())


def test_quora_asks_on_both_sides_and_so_does_its_context(tmp_path: Path) -> None:
    encoder = Mirror()
    evaluate_suite(encoder, suite_of(tmp_path, "quora", COUNTERS), num_contexts=2)
    assert encoder.roles == ["query", "query"] and encoder.context_roles == ["query"]
    usual = Mirror()
    evaluate_suite(usual, suite_of(tmp_path, "arguana", COUNTERS), num_contexts=2)
    assert usual.roles == ["query", "document"] and usual.context_roles == ["document"]


def test_a_first_stage_asks_as_the_ranking_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = base("smoke", architecture="surrogate", protocol="rerank", rerank_depth=2)
    for name, role in (("quora", "query"), ("arguana", "document")):
        encoder = Mirror()
        monkeypatch.setattr(first_stage, "get_surrogate", lambda _run, one=encoder: one)
        monkeypatch.setattr(first_stage, "get_first_stage_name", lambda _run: "mirror")
        (tmp_path / "found" / name).mkdir(parents=True)
        first_stage.find_candidates(run, suite_of(tmp_path, name, COUNTERS), tmp_path / "found" / name)
        assert encoder.roles == ["query", role]


def test_a_judged_document_that_is_missing_counts_as_never_found(tmp_path: Path) -> None:
    import pytrec_eval

    lacking = {**COUNTERS, "pro0": {"con0": 1, "gone": 1}}
    suite = suite_of(tmp_path, "arguana", lacking)
    found = evaluate_suite(Mirror(), suite, folder=tmp_path / "out")
    run = read_run(tmp_path / "out" / "odd" / "arguana.trec.gz")
    in_order = {query: {hit: -float(place) for place, hit in enumerate(hits)} for query, hits in run.items()}
    theirs = pytrec_eval.RelevanceEvaluator(lacking, {"ndcg_cut_10"}).evaluate(in_order)
    expected = [theirs[query]["ndcg_cut_10"] for query in sorted(lacking)]
    np.testing.assert_allclose(found.per_query["odd"], expected, atol=1e-6)
    assert "1 judged documents are not in the corpus" in list_notes(found.provenance)[1]
    with pytest.raises(ValueError, match="'gone' is not in corpus"):
        read_collections(suite_of(tmp_path, "debates", lacking))


def test_ms_marco_is_scored_on_dev(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, "msmarco", COUNTERS, "dev")
    (tmp_path / "msmarco" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\npro0\tcon3\t1\n")
    found = evaluate_suite(Mirror(), suite)
    assert found.provenance["datasets"][0]["num_queries"] == 4 and found.provenance["datasets"][0]["split"] == "dev"
    (tmp_path / "msmarco" / "qrels" / "dev.tsv").unlink()
    with pytest.raises(ValueError, match=r"dev\.tsv is missing: available splits are \['test'\]"):
        evaluate_suite(Mirror(), suite)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("arguana", "its own is taken out"),
        ("quora", "both sides"),
        ("msmarco", "scored on dev"),
        ("webis-touche2020", "version 2"),
    ],
)
def test_an_oddity_is_told_with_the_scores_and_kept_in_their_provenance(tmp_path: Path, name: str, words: str) -> None:
    split = "dev" if name == "msmarco" else "test"
    found = evaluate_suite(Mirror(), suite_of(tmp_path, name, COUNTERS, split))
    (row,) = found.provenance["datasets"]
    assert any(words in note for note in row["quirks"])
    assert any(note.startswith(f"{name}: ") and words in note for note in list_notes(found.provenance))
    others = list_notes(evaluate_suite(Mirror(), suite_of(tmp_path, "debates", COUNTERS)).provenance)
    assert ["have the id of a document" in note for note in others] == [True], "that, and no oddity"


@pytest.mark.parametrize("name", ["arguana", "quora", "QuoraRetrieval"])
def test_own_folder_keeps_its_right_answers(tmp_path: Path, name: str) -> None:
    """A folder that is only called like a known collection: each query's right document has its own id."""
    suite = suite_of(tmp_path, name, {i: {i: 1} for i in IDS})
    (read,) = read_collections(suite).values()
    assert not read.quirks.removes_self_hits and read.document_role == "document"
    assert sum("8 queries judge the document of their own id" in note for note in read.notes) == 1
    assert evaluate_suite(Mirror(), suite).metrics[f"odd/{name}/ndcg_at_10"] == 1


def test_numbered_ids_are_no_sign_of_quora(tmp_path: Path) -> None:
    """Queries and documents are numbered alike, but a query is not the text of its number's document."""
    data = Retrieval("quora", IDS, DOCUMENTS, IDS, DOCUMENTS[::-1], {i: {IDS[n - 1]: 1} for n, i in enumerate(IDS)})
    write_beir_folder(tmp_path / "quora", data)
    (read,) = read_collections(Suite("odd", (SuiteDataset("quora", "family", tmp_path / "quora"),))).values()
    assert read.num_extra_hits == 0 and read.document_role == "document"


def test_asked_quirks_never_remove_judged_documents(tmp_path: Path) -> None:
    suite = suite_of(tmp_path, "mine", {"pro0": {"pro0": 1, "con0": 1}, "pro1": {"con1": 1}})
    asked = SuiteDataset("mine", "family", tmp_path / "mine", Quirks(removes_self_hits=True))
    evaluate_suite(Mirror(), Suite(suite.name, (asked,)), folder=tmp_path / "out")
    run = read_run(tmp_path / "out" / "odd" / "mine.trec.gz")
    assert "pro0" in run["pro0"] and "pro1" not in run["pro1"]
