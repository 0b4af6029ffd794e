"""Runs with `protocol=rerank` rank only the candidates of a first stage, whose recall is recorded."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest

from repro.analyses.contexts import measure_cross
from repro.batches.surrogate import load_surrogate
from repro.data.beir import Retrieval, load_beir
from repro.evaluate.retrieval import read_run, search_bm25
from repro.execute import execute
from repro.pipeline.corpora import load_run_suite
from repro.pipeline.inputs import Inputs
from repro.pipeline.needs import list_evaluation_kinds
from repro.spec import MEASURES, Run, base
from repro.storage.paths import run_folder
from tests.analyses.by_hand import ContextBlindRanker
from tests.commands import ignore

pytestmark = pytest.mark.usefixtures("shared_home")
DEPTH = 5
RERANKED = base("smoke", architecture="bm25", protocol="rerank", rerank_depth=DEPTH)


def find_by_brute_force(retrieval: Retrieval, run: Run) -> dict[str, set[str]]:
    """Return the documents of largest inner product under the surrogate. In a tie the smaller id is first."""
    surrogate = load_surrogate(run.surrogate)
    queries = surrogate.embed(list(retrieval.queries), run.max_tokens)
    documents = surrogate.embed(list(retrieval.documents), run.max_tokens)
    candidates = {}
    for query_id, scores_D in zip(retrieval.query_ids, np.round(queries @ documents.T, 6), strict=True):
        ranked = sorted(zip(-scores_D, retrieval.document_ids, strict=True))
        candidates[query_id] = {document_id for _, document_id in ranked[: run.rerank_depth]}
    return candidates


def load_collections(run: Run) -> list[Retrieval]:
    return [load_beir(dataset.path) for dataset in load_run_suite(run).datasets]


def score_candidates(measure: Any, candidates: Mapping[str, set[str]], judgements: Any) -> float:
    run = {query: dict.fromkeys(documents, 1.0) for query, documents in candidates.items()}
    return float(ir_measures.calc_aggregate([measure], judgements, run)[measure])


@pytest.mark.parametrize(
    ("architecture", "protocol", "system"),
    [("contextual", "rerank", "minilm-words"), ("surrogate", "rerank-bm25", "bm25")],
)
def test_reranking_ranks_candidates_only(architecture: str, protocol: str, system: str) -> None:
    run = replace(RERANKED, architecture=architecture, protocol=protocol, num_steps=3)
    record = execute(run, progress=ignore)
    first_stage = record.provenance["suite"]["first_stage"]
    assert record.provenance["suite"]["protocol"] == "reranking of a first stage"
    assert (first_stage["system"], first_stage["depth"]) == (system, DEPTH)
    for retrieval in load_collections(run):
        hits = read_run(run_folder(record.id) / "trec" / run.suite / f"{retrieval.name}.trec.gz")
        ranked = {query: set(documents) for query, documents in hits.items()}
        expected = find_by_brute_force(retrieval, run)
        if system == "bm25":
            expected = {query: set(documents) for query, documents in search_bm25(retrieval, DEPTH)[0].items()}
        assert ranked == expected
        recall = score_candidates(ir_measures.R @ DEPTH, expected, retrieval.judgements)
        assert first_stage["recall"][retrieval.name] == pytest.approx(recall, abs=1e-6)


def test_equal_runs_share_a_first_stage() -> None:
    runs = (replace(RERANKED, architecture=architecture) for architecture in ("surrogate", "bm25", "contextual"))
    assert len({Inputs(run).graph.candidates.path for run in runs}) == 1
    assert Inputs(replace(RERANKED, rerank_depth=6)).graph.candidates.path != Inputs(RERANKED).graph.candidates.path


def test_crossed_contexts_are_reranked_too(tmp_path: Path) -> None:
    """With one candidate per query, the score is that of the first stage under every context."""
    run = base("smoke", architecture="contextual", measure="cross", protocol="rerank", rerank_depth=1)
    metrics = measure_cross(Inputs(run), ContextBlindRanker(), tmp_path).metrics
    for retrieval in load_collections(run):
        candidates = find_by_brute_force(retrieval, run)
        expected = score_candidates(ir_measures.nDCG @ 10, candidates, retrieval.judgements)
        path = f"cross/{retrieval.name}/{retrieval.name}/ndcg_at_10"
        assert metrics[path] == pytest.approx(expected, abs=1e-6)


def test_candidates_are_built_if_read() -> None:
    readers = {"retrieval", "steps", "cross"}
    for name, analysis in MEASURES.items():
        if analysis.searches_in_full:
            continue
        run = replace(RERANKED, measure=name, architecture=(analysis.architectures or ("bm25",))[0])
        assert ("candidates" in list_evaluation_kinds(run)) == (name in readers), name
