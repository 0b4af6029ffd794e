"""Runs with `protocol=rerank` rank only the candidates of a first stage, whose recall is recorded."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import ir_measures
import numpy as np
import pytest

from repro.batches.surrogate import load_surrogate
from repro.data.beir import Retrieval, load_beir
from repro.evaluate.retrieval import read_run, search_bm25
from repro.execute import execute
from repro.pipeline.corpora import load_run_suite
from repro.pipeline.needs import list_evaluation_kinds
from repro.spec import MEASURES, Run, base
from repro.storage.paths import SOURCES, run_folder
from tests.commands import ignore

DEPTH = 5
RERANKED = base("smoke", architecture="bm25", protocol="rerank", rerank_depth=DEPTH)


def find_by_brute_force(retrieval: Retrieval, run: Run, depth: int = DEPTH) -> dict[str, set[str]]:
    """Return the documents of largest inner product under the surrogate. In a tie the smaller id is first."""
    surrogate = load_surrogate(run.surrogate)
    queries = surrogate.embed(list(retrieval.queries), run.max_tokens)
    documents = surrogate.embed(list(retrieval.documents), run.max_tokens)
    found = {}
    for query, vector in zip(retrieval.query_ids, queries, strict=True):
        scored = [
            (-round(float(np.dot(vector, other)), 6), one)
            for one, other in zip(retrieval.document_ids, documents, strict=True)
        ]
        found[query] = {one for _, one in sorted(scored)[:depth]}
    return found


def load_collections(run: Run) -> list[Retrieval]:
    return [load_beir(dataset.path) for dataset in load_run_suite(run).datasets]


def score_candidates(measure: Any, candidates: Mapping[str, set[str]], judgements: Any) -> float:
    run = {query: dict.fromkeys(documents, 1.0) for query, documents in candidates.items()}
    return float(ir_measures.calc_aggregate([measure], judgements, run)[measure])


@pytest.mark.parametrize("architecture", ["contextual", "surrogate", "bm25"])
def test_reranking_ranks_candidates_only(architecture: str) -> None:
    run = replace(RERANKED, architecture=architecture, num_steps=3)
    record = execute(run, progress=ignore)
    first_stage = record.provenance["suite"]["first_stage"]
    assert record.provenance["suite"]["protocol"] == "reranking of a first stage"
    assert (first_stage["system"], first_stage["depth"]) == ("minilm-words", DEPTH)
    for retrieval in load_collections(run):
        expected = find_by_brute_force(retrieval, run)
        found = read_run(run_folder(record.id) / "trec" / run.suite / f"{retrieval.name}.trec.gz")
        if architecture == "bm25":  # it does not rank documents without a word of the query
            assert all(set(hits) <= expected[query] for query, hits in found.items())
        else:
            assert {query: set(hits) for query, hits in found.items()} == expected
        recall = score_candidates(ir_measures.R @ DEPTH, expected, retrieval.judgements)
        assert first_stage["recall"][retrieval.name] == pytest.approx(recall, abs=1e-6)
    assert first_stage["mean_recall"] == pytest.approx(np.mean(list(first_stage["recall"].values())))


def test_bm25_can_be_the_first_stage() -> None:
    record = execute(replace(RERANKED, architecture="surrogate", protocol="rerank-bm25"), progress=ignore)
    assert record.provenance["suite"]["first_stage"]["system"] == "bm25"
    for retrieval in load_collections(RERANKED):
        found = read_run(run_folder(record.id) / "trec" / "planted" / f"{retrieval.name}.trec.gz")
        expected = search_bm25(retrieval, DEPTH)[0]
        assert {query: set(hits) for query, hits in found.items()} == {q: set(hits) for q, hits in expected.items()}


def test_equal_runs_share_a_first_stage(own_home: Any) -> None:
    for architecture in ("surrogate", "bm25"):
        execute(replace(RERANKED, architecture=architecture), progress=ignore)
    assert len(list((own_home / "stages" / "candidates").glob("*/stage.json"))) == 1


def test_full_search_has_no_first_stage() -> None:
    record = execute(base("smoke", architecture="surrogate"), progress=ignore)
    assert record.provenance["suite"]["protocol"] == "full search"
    assert "first_stage" not in record.provenance["suite"]


def test_crossed_contexts_are_reranked_too() -> None:
    """With one candidate per query, the score is that of the first stage under every context."""
    run = base("smoke", architecture="contextual", measure="cross", protocol="rerank", rerank_depth=1, num_steps=3)
    record = execute(run, progress=ignore)
    for retrieval in load_collections(run):
        candidates = find_by_brute_force(retrieval, run, depth=1)
        expected = score_candidates(ir_measures.nDCG @ 10, candidates, retrieval.judgements)
        found = record.metrics[f"cross/{retrieval.name}/{retrieval.name}/ndcg_at_10"]
        assert found == pytest.approx(expected, abs=1e-6)


def test_candidates_are_built_if_read() -> None:
    sources = {name: (SOURCES / f"repro/analyses/{name}.py").read_text() for name in MEASURES}
    read = {name for name, source in sources.items() if re.search(r"first_stage\(inputs|\bevaluate\(inputs", source)}
    assert read == {"retrieval", "steps", "cross"}
    for name, analysis in MEASURES.items():
        if analysis.searches_in_full:
            continue
        run = replace(RERANKED, measure=name, architecture=(analysis.architectures or ("bm25",))[0])
        assert ("candidates" in list_evaluation_kinds(run)) == (name in read), name


@pytest.mark.parametrize(
    "changes",
    [
        *({"protocol": "rerank"}, {"rerank_depth": 9}, {"protocol": "rerank", "rerank_depth": 0}),
        *({"protocol": "rerank-bm25", "rerank_depth": 9, "measure": name} for name in ("widths", "adaptive", "mteb")),
    ],
)
def test_impossible_protocols_are_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"protocol|rerank_depth"):
        base("smoke", **changes)
