"""Oddities of known collections, malformed judgements and run files, and names that are paths.

An oddity is applied if the content shows it, changes the score, and is recorded with it.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval

from repro.analyses import mteb
from repro.analyses.contexts import measure_cross
from repro.data.beir import Retrieval, Suite, SuiteDataset, write_beir_folder
from repro.data.paper.collection_rules import CollectionRules, find_rules
from repro.evaluate import first_stage
from repro.evaluate.collections import Collection, read_collections
from repro.evaluate.retrieval import read_run, score, search_bm25
from repro.evaluate.suites import TOP_K, EvaluationOutputs, Setting, evaluate_bm25, evaluate_setting
from repro.report.scores import list_notes
from repro.spec import base
from tests.analyses.by_hand import make_inputs

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


def write_debates(
    tmp_path: Path, name: str, judgements: dict[str, dict[str, int]], split: str = "test", extra: tuple[str, ...] = ()
) -> Suite:
    queries = {i: t for i, t in zip(IDS, DOCUMENTS, strict=True) if i in judgements}
    ids = IDS + tuple(text.replace(" ", "-") for text in extra)
    data = Retrieval(name, ids, DOCUMENTS + extra, tuple(queries), tuple(queries.values()), judgements)
    write_beir_folder(tmp_path / name, data, split)
    return Suite("odd", (SuiteDataset(name, "family", tmp_path / name),))


COUNTERS = {f"pro{n}": {f"con{n}": 1} for n in range(4)}


def read_trec(folder: Path, name: str) -> dict[str, dict[str, float]]:
    """Read the run file of a collection of the suite "odd"."""
    return read_run(folder / "odd" / f"{name}.trec.gz")


@pytest.mark.parametrize("name", ["arguana", "quora"])
def test_self_hits_are_removed_at_full_depth(tmp_path: Path, name: str) -> None:
    """Each query finds its own document first, which is replaced by the next one."""
    texts = tuple(f"claim {n}" for n in range(TOP_K + 20))
    ids = tuple(f"d{n}" for n in range(TOP_K + 20))
    data = Retrieval(name, ids, texts, ids[:3], texts[:3], {i: {"d9": 1} for i in ids[:3]})
    write_beir_folder(tmp_path / name, data)
    suite = Suite("odd", (SuiteDataset(name, "family", tmp_path / name),))

    class Circle(Mirror):
        def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
            angles = np.array([float(text.split()[-1]) for text in texts]) / TOP_K
            return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)

    evaluate_setting(Circle(), suite, Setting(), EvaluationOutputs(runs=tmp_path / "vectors"))
    evaluate_bm25(suite, outputs=EvaluationOutputs(runs=tmp_path / "bm25"))
    for system in ("vectors", "bm25"):
        run = read_trec(tmp_path / system, name)
        assert run.keys() == set(ids[:3])
        assert all(query not in hits and len(hits) == TOP_K for query, hits in run.items())


@pytest.mark.parametrize("name", ["arguana", "quora"])
def test_crossed_contexts_score_like_retrieval(tmp_path: Path, name: str) -> None:
    # More than half of each corpus is its own. Otherwise neither is a wrong corpus for the other.
    extras = [tuple(f"{word} {n}" for n in range(10)) for word in ("against", "for")]
    odd = write_debates(tmp_path, name, COUNTERS, extra=extras[0])
    usual = write_debates(tmp_path, "debates", COUNTERS, extra=extras[1])
    suite, encoder = Suite("desk", odd.datasets + usual.datasets), Mirror()
    inputs = make_inputs(base("desk", architecture="contextual", num_contexts=2), suite=suite)
    measured = measure_cross(inputs, encoder, tmp_path)
    expected = evaluate_setting(Mirror(), suite, Setting(num_contexts=2))
    for test in (name, "debates"):
        assert measured.metrics[f"cross/{test}/{test}/ndcg_at_10"] == expected.metrics[f"desk/{test}/ndcg_at_10"]
    assert measured.provenance["datasets"] == expected.provenance["datasets"]
    role = "query" if name == "quora" else "document"
    assert encoder.roles == ["query", role, "query", "document"] * 2
    # Each context has the role of the searched collection, and is set again only if that role differs.
    assert encoder.context_roles == (["query", "document"] * 2 if name == "quora" else ["document"] * 2)


def test_self_hits_are_removed_in_mteb(tmp_path: Path) -> None:
    odd, usual = (write_debates(tmp_path, name, COUNTERS) for name in ("arguana", "debates"))
    suite = Suite("desk", odd.datasets + usual.datasets)
    inputs = make_inputs(base("desk", architecture="bm25", measure="mteb"), suite=suite)
    metrics = mteb.measure(inputs, None, tmp_path).metrics
    run = search_bm25(read_collections(suite)["arguana"].retrieval, len(IDS), tokenizer="english")[0]
    others = {query: {hit: value for hit, value in hits.items() if hit != query} for query, hits in run.items()}
    assert metrics["desk/tasks/arguana/score"] == pytest.approx(score(others, COUNTERS)["ndcg_at_10"].mean())
    assert metrics["desk/tasks/arguana/score"] > metrics["desk/tasks/debates/score"]
    is_removed = {task.metadata.name: task.ignore_identical_ids for task in mteb.list_tasks(inputs)[:2]}
    assert is_removed == {"arguana": True, "debates": False}


@pytest.mark.parametrize(("name", "role"), [("arguana", "document"), ("quora", "query")])
def test_documents_have_prompt_of_collection(
    name: str, role: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranking, its contexts and the first stage use the same prompt for documents."""
    suite, ranking, first = write_debates(tmp_path, name, COUNTERS), Mirror(), Mirror()
    evaluate_setting(ranking, suite, Setting(num_contexts=2))
    monkeypatch.setattr(first_stage, "get_surrogate", lambda run: first)
    monkeypatch.setattr(first_stage, "get_first_stage_name", lambda run: "mirror")
    run = base("smoke", architecture="surrogate", protocol="rerank", rerank_depth=2)
    first_stage.find_candidates(run, suite, tmp_path)
    assert ranking.roles == first.roles == ["query", role] and ranking.context_roles == [role]


def test_missing_judged_document_is_never_found(tmp_path: Path) -> None:
    judgements = {**COUNTERS, "pro0": {"con0": 1, "gone": 1}}
    evaluation = evaluate_setting(
        Mirror(), write_debates(tmp_path, "arguana", judgements), Setting(), EvaluationOutputs(runs=tmp_path / "out")
    )
    run = read_trec(tmp_path / "out", "arguana")
    in_order = {query: {hit: -float(rank) for rank, hit in enumerate(hits)} for query, hits in run.items()}
    reference = pytrec_eval.RelevanceEvaluator(judgements, {"ndcg_cut_10"}).evaluate(in_order)
    expected = [reference[query]["ndcg_cut_10"] for query in sorted(judgements)]
    np.testing.assert_allclose(evaluation.per_query["odd"], expected, atol=1e-6)
    assert "1 judged documents are not in the corpus" in list_notes(evaluation.provenance["datasets"])[1]
    with pytest.raises(ValueError, match="'gone' is not in corpus"):
        read_collections(write_debates(tmp_path, "debates", judgements))


def test_ms_marco_is_scored_on_dev(tmp_path: Path) -> None:
    suite = write_debates(tmp_path, "msmarco", COUNTERS, "dev")
    (tmp_path / "msmarco" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\npro0\tcon3\t1\n")
    (row,) = evaluate_setting(Mirror(), suite, Setting()).provenance["datasets"]
    assert (row["num_queries"], row["split"]) == (4, "dev")


@pytest.mark.parametrize("name", ["arguana", "quora", "QuoraRetrieval"])
def test_own_folder_keeps_its_right_answers(tmp_path: Path, name: str) -> None:
    """In a folder that is only named like a known collection, queries may be judged with the document of their id."""
    suite = write_debates(tmp_path, name, {i: {i: 1} for i in IDS})
    (collection,) = read_collections(suite).values()
    assert not collection.rules.removes_self_hits and collection.document_role == "document"
    assert sum("8 queries judge the document of their own id" in note for note in collection.notes) == 1
    assert evaluate_setting(Mirror(), suite, Setting()).metrics[f"odd/{name}/ndcg_at_10"] == 1


def test_collection_rules_keep_judged_documents(tmp_path: Path) -> None:
    """A requested oddity removes no judged document."""
    write_debates(tmp_path, "mine", {"pro0": {"pro0": 1, "con0": 1}, "pro1": {"con1": 1}})
    dataset = SuiteDataset("mine", "family", tmp_path / "mine", CollectionRules(removes_self_hits=True))
    evaluate_setting(Mirror(), Suite("odd", (dataset,)), Setting(), EvaluationOutputs(runs=tmp_path / "out"))
    run = read_trec(tmp_path / "out", "mine")
    assert "pro0" in run["pro0"] and "pro1" not in run["pro1"]


def test_queries_without_relevant_score_0() -> None:
    judgements = {"q1": {"d1": 1, "d2": -1}, "q2": {"d3": 0}}
    retrieval = Retrieval("x", ("d1", "d2", "d3"), ("a", "b", "c"), ("q1", "q2"), ("a", "b"), judgements)
    (note,) = Collection(retrieval, find_rules("x")).notes
    assert note.startswith("1 queries have no relevant document")
    run = {"q1": {"d2": 3.0, "d1": 2.0}, "q2": {"d3": 1.0}}
    reference = pytrec_eval.RelevanceEvaluator(judgements, {"ndcg_cut.10"}).evaluate(run)
    values = score(run, judgements)["ndcg_at_10"]
    assert values.tolist() == pytest.approx([reference[query]["ndcg_cut_10"] for query in ("q1", "q2")])
    assert values[1] == 0
