"""Selecting context documents against brute force, and scores under selected contexts."""

from pathlib import Path

import numpy as np
import pytest

from repro.analyses import contexts
from repro.evaluate.adaptation import normalize
from repro.evaluate.contexts import draw_context
from repro.evaluate.suites import Setting, evaluate_setting
from repro.spec import base
from tests.analyses.by_hand import RandomVectors, compute_ndcg, make_inputs, make_numbered_collection, write_collections

GENERATOR = np.random.default_rng(0)
COUNT = 5
DOCUMENTS_DH = normalize(GENERATOR.normal(size=(60, 8))).astype(np.float32)
QUERIES_QH = normalize(GENERATOR.normal(size=(7, 8))).astype(np.float32)


def test_each_selection_matches_definition() -> None:
    """Typical and relevant documents are nearest to a mean. Diverse ones maximise the smallest distance."""
    rows_by_way = {way: select(QUERIES_QH, DOCUMENTS_DH, COUNT, 0) for way, select in contexts.SELECTIONS.items()}
    assert all(len(set(rows)) == COUNT for rows in rows_by_way.values())
    for way, centre_H in (("typical", DOCUMENTS_DH.mean(axis=0)), ("relevant", QUERIES_QH.mean(axis=0))):
        others = np.delete(DOCUMENTS_DH, rows_by_way[way], axis=0)
        assert (DOCUMENTS_DH[rows_by_way[way]] @ centre_H).min() >= (others @ centre_H).max()
    rows = list(rows_by_way["diverse"])
    for place in range(1, COUNT):
        nearest_D = (DOCUMENTS_DH @ DOCUMENTS_DH[rows[:place]].T).max(axis=1)
        assert nearest_D[rows[place]] == np.delete(nearest_D, rows[:place]).min()


def test_centres_cover_separate_groups() -> None:
    """Five distant groups give one document each."""
    groups_CH = np.eye(8, dtype=np.float32)[:COUNT]
    noise = GENERATOR.normal(size=(COUNT, 12, 8)).astype(np.float32)
    documents = normalize((groups_CH[:, None] + 0.02 * noise).reshape(-1, 8)).astype(np.float32)
    assert sorted(contexts.select_centres(QUERIES_QH, documents, COUNT, 0) // 12) == list(range(COUNT))


def test_scores_are_those_of_evaluation(tmp_path: Path) -> None:
    """Random documents score like the in-corpus context, selected ones like a context of the same documents."""
    relevant = tuple(range(0, 40, 3))
    retrieval = make_numbered_collection("one", 40, relevant)
    suite = write_collections(tmp_path, retrieval)
    run = base("smoke", measure="selection", architecture="contextual", num_contexts=4)
    measured = contexts.measure_selection(make_inputs(run, suite=suite), RandomVectors(), tmp_path / "run")
    setting = Setting(num_contexts=4, seed=run.context_seed)
    expected = evaluate_setting(RandomVectors(), suite, setting).metrics[f"{suite.name}/mean/ndcg_at_10"]
    assert measured.metrics["selection/random/mean/ndcg_at_10"] == expected
    model = RandomVectors()
    model.set_context(draw_context("own", retrieval, num_contexts=4, seed=run.context_seed).texts)
    rows = contexts.select_diverse(QUERIES_QH, model.encode(list(retrieval.documents)), 4, 0)
    model.set_context([retrieval.documents[row] for row in rows])
    ndcg = compute_ndcg(model.encode(retrieval.queries, "query"), model.encode(list(retrieval.documents)), relevant)
    assert measured.metrics["selection/diverse/mean/ndcg_at_10"] == pytest.approx(ndcg, abs=1e-6)
    assert len(measured.arrays["selection/centres"]) == len(relevant)
