"""Search, measures, BM25 and run files against full sorting, pytrec-eval and arithmetic."""

import math
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from scipy.sparse import csr_array

from repro.data.beir import Retrieval
from repro.evaluate.first_stage import compute_recall
from repro.evaluate.retrieval import (
    find_ties,
    rank_by_score,
    read_run,
    remove_self_hits,
    score,
    search,
    search_bm25,
    write_run,
)

QUERY_IDS = [f"q{n}" for n in range(5)]
DOCUMENT_IDS = [f"d{n}" for n in np.random.default_rng(9).permutation(40)]


def draw_vectors(count: int, seed: int) -> np.ndarray:
    found = np.random.default_rng(seed).normal(size=(count, 6))
    return (found / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("k", [1, 37, 150, 299, 400])
def test_ties_go_to_smaller_id(k: int) -> None:
    """300 documents have four different vectors, so every cut is inside a tie."""
    rng = np.random.default_rng(5)
    documents = draw_vectors(4, 6)[rng.integers(0, 4, 300)]
    ids = [f"d{n:03d}" for n in rng.permutation(300)]
    run = search(draw_vectors(1, 7), documents, ["q"], ids, k)
    scores = (documents.astype(np.float64) * draw_vectors(1, 7)[0]).sum(1).astype(np.float32)
    assert list(run["q"]) == [i for _, i in sorted(zip(-scores, ids, strict=True))][:k]


@pytest.mark.parametrize("k", [1, 7, 100, 999, 1000])
@pytest.mark.parametrize("size", [3, 128, 10_000])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_blocks_rank_as_exact_scores(k: int, size: int, is_sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searching in blocks ranks as float64 does, even if scores hardly differ."""
    monkeypatch.setattr("repro.evaluate.retrieval.DOCUMENTS_PER_BLOCK", size)
    rng = np.random.default_rng(k)
    documents = (0.25 + rng.integers(0, 40, (1000, 1)) * 2.0**-24).astype(np.float32)
    documents[rng.integers(0, 1000, 300)] = 0
    queries = np.array([[1.0], [-1.0], [30.0]], np.float32)
    ids = [f"d{n}" for n in rng.permutation(1000)]
    given = (csr_array(queries), csr_array(documents)) if is_sparse else (queries, documents)
    run = search(*given, ["a", "b", "c"], ids, k)
    for query_id, query in zip(run, queries, strict=True):
        exact = (documents[:, 0].astype(np.float64) * query[0]).astype(np.float32)
        expected = sorted(zip(-exact, ids, strict=True))[:k]
        assert [(one, -np.float32(score)) for one, score in run[query_id].items()] == [(i, s) for s, i in expected]


@pytest.mark.parametrize("factor", [2.0**-40, 1e-30, 1e-3, 1e3, 2.0**60])
@pytest.mark.parametrize("way", ["full", "sparse", "rerank"])
def test_common_factor_changes_no_ranking(factor: float, way: str) -> None:
    """The ranking is that of a full sort in float64, for vectors of any length."""
    rng = np.random.default_rng(4)
    queries, documents = (rng.normal(size=(count, 12)).astype(np.float32) for count in (9, 300))
    queries[:, ::2], documents[:, ::3] = 0, 0
    names = ([f"q{n}" for n in range(9)], [f"d{n}" for n in range(300)])
    candidates = dict.fromkeys(names[0], names[1][:50]) if way == "rerank" else None
    kind = csr_array if way == "sparse" else np.asarray

    def found(scale: float) -> list[list[str]]:
        given = (kind((each * np.float32(scale)).astype(np.float32)) for each in (queries, documents))
        return [list(hits) for hits in search(*given, *names, 20, candidates).values()]

    assert found(factor) == found(1)
    exact = documents[: 50 if way == "rerank" else None].astype(np.float64) @ queries.T
    assert found(factor) == [[names[1][n] for n in np.argsort(-each, kind="stable")[:20]] for each in exact.T]


def test_one_long_document_hides_no_difference() -> None:
    """A document with a vector a million times longer does not make the others tie."""
    documents = np.array([[1.0, 0.1], [1.0, 0.2], [0.0, -1e6], [1.0, 0.3]], np.float32)
    run = search(np.array([[1.0, 1e-4]], np.float32), documents, ["q"], ["a", "b", "c", "d"], 4)
    assert list(run["q"]) == ["d", "b", "a", "c"]


@pytest.mark.parametrize("noise", [0, 1e-8])
@pytest.mark.parametrize("length", [1, 1e-3, 1e3])
def test_equal_vectors_score_nothing(noise: float, length: float) -> None:
    """If all documents score the same, a query counts 0, because ids would decide its ranking."""
    rng = np.random.default_rng(0)
    documents = (length * (draw_vectors(1, 3) + noise * rng.normal(size=(30, 6)))).astype(np.float32)
    ids = [f"d{n:02d}" for n in range(30)]
    judged = {query_id: {"d00": 1} for query_id in QUERY_IDS}
    for candidates in (None, dict.fromkeys(QUERY_IDS, ids)):
        run = search(length * draw_vectors(5, 0), documents, QUERY_IDS, ids, 10, candidates)
        values = score(run, judged)["ndcg_at_10"]
        assert values.tolist() == [0] * 5
        assert find_ties(run, judged, values, is_exhaustive=True).num_without_ranking == 5


def test_ties_with_gold_are_counted() -> None:
    run = {"a": {"d1": 2.0, "d2": 2.0, "d3": 1.0}, "b": {"d1": 2.0, "d2": 1.0}, "c": {"d1": 1.0, "d2": 1.0}}
    judged = {"a": {"d1": 1}, "b": {"d1": 1}, "c": {"d1": 1, "d2": 1}}
    values = score(run, judged)["ndcg_at_10"]
    ties = find_ties(run, judged, values, is_exhaustive=True)
    assert values.tolist() == [1, 1, 1]
    assert ties.num_decided_by_ids == 1 and ties.worst == pytest.approx((1 / math.log2(3) + 2) / 3)
    assert ties.note and not find_ties({"b": run["b"]}, {"b": judged["b"]}, values[:1], is_exhaustive=True).note


def test_junk_grades_count_as_zero() -> None:
    """Negative grades count as 0, also if a query has no other grade."""
    run = {"q0": {"d0": 2.0, "d1": 1.0}, "q1": {"d1": 1.0}}
    found = score(run, {"q0": {"d0": 1, "d1": -2}, "q1": {"d1": -2}})
    assert {name: values.tolist() for name, values in found.items()} == {name: [1, 0] for name in found}


def test_reranking_searches_candidates_only() -> None:
    queries, documents = draw_vectors(5, 0), draw_vectors(40, 1)
    candidates = {query_id: DOCUMENT_IDS[n : n + 9] for n, query_id in enumerate(QUERY_IDS)}
    full = search(queries, documents, QUERY_IDS, DOCUMENT_IDS, 40)
    run = search(queries, documents, QUERY_IDS, DOCUMENT_IDS, 4, candidates)
    for query_id in QUERY_IDS:
        assert list(run[query_id]) == [d for d in full[query_id] if d in candidates[query_id]][:4]


def test_unjudged_self_hits_are_removed() -> None:
    run = {"a": {"a": 1.0, "b": 0.5, "c": 0.4}, "x": {"a": 0.1, "b": 0.5}}
    assert remove_self_hits(run, 1, {}) == {"a": {"b": 0.5}, "x": {"b": 0.5}}
    assert remove_self_hits(run, 1, {"a": {"a": 1}}) == {"a": {"a": 1.0}, "x": {"b": 0.5}}


def test_measures_match_arithmetic() -> None:
    run = {"q": {"x": 3.0, "y": 2.0, "z": 1.0}}
    values = score(run, {"q": {"y": 2, "z": 1, "w": 1}})
    gained = 2 / math.log2(3) + 1 / math.log2(4)
    best = 2 / math.log2(2) + 1 / math.log2(3) + 1 / math.log2(4)
    assert values["ndcg_at_10"] == pytest.approx(gained / best)
    assert values["recall_at_100"] == pytest.approx(2 / 3)
    assert values["mrr_at_10"] == pytest.approx(1 / 2)


def test_measures_agree_with_pytrec_eval() -> None:
    run = search(draw_vectors(5, 0), draw_vectors(40, 1), QUERY_IDS, DOCUMENT_IDS, 40)
    rng = np.random.default_rng(2)
    judgements = {q: {d: int(rng.integers(0, 3)) for d in rng.choice(DOCUMENT_IDS, 6, False)} for q in QUERY_IDS}
    found = score(run, judgements)
    reference = pytrec_eval.RelevanceEvaluator(judgements, {"ndcg_cut.10", "recall.100"}).evaluate(run)
    for ours, theirs in (("ndcg_at_10", "ndcg_cut_10"), ("recall_at_100", "recall_100")):
        np.testing.assert_allclose(found[ours], [reference[q][theirs] for q in sorted(judgements)], atol=1e-6)


def test_candidate_recall_matches_trec_eval() -> None:
    run = search(draw_vectors(5, 0), draw_vectors(40, 1), QUERY_IDS, DOCUMENT_IDS, 12)
    rng = np.random.default_rng(3)
    judgements = {q: {d: int(rng.integers(0, 3)) for d in rng.choice(DOCUMENT_IDS, 9, False)} for q in QUERY_IDS}
    judgements["nothing found"], judgements["nothing relevant"] = {DOCUMENT_IDS[0]: 1}, {DOCUMENT_IDS[0]: 0}
    reference = pytrec_eval.RelevanceEvaluator(judgements, {"recall.100"}).evaluate(run)
    shares = [reference.get(query, {}).get("recall_100", 0.0) for query in judgements]
    assert 0 < compute_recall(run, judgements) == pytest.approx(np.mean(shares))


def test_measures_break_ties_alike() -> None:
    assert score({"q": {"a": 1.0, "b": 1.0}}, {"q": {"a": 1}})["ndcg_at_10"] == pytest.approx(1)
    assert score({"q": {"b": 1.0, "a": 1.0}}, {"q": {"a": 1}})["ndcg_at_10"] == pytest.approx(1)
    assert score({"q": {"a": 1.0, "b": 1.0}}, {"q": {"b": 1}})["mrr_at_10"] == pytest.approx(0.5)


def test_missing_queries_score_nothing() -> None:
    values = score({"b": {"x": 1.0}, "a": {"y": 1.0}}, {"c": {"x": 1}, "b": {"x": 1}, "a": {"x": 1}})
    assert values["ndcg_at_10"].tolist() == [0, 1, 0]
    assert values["ndcg_at_10"].dtype == np.float32


def test_bm25_finds_rare_words() -> None:
    documents = ("the bucket is listed", "the table is deleted", "listing the listed lists")
    retrieval = Retrieval("x", ("c", "b", "a"), documents, ("q", "none"), ("list bucket", "zebra"), {})
    run, parameters = search_bm25(retrieval, 10)
    assert rank_by_score(run["q"])[0][0] == "c"
    assert "b" not in run["q"]
    assert run["none"] == {}
    assert {"k1", "b", "method", "stemmer", "stop_words", "bm25s", "tokenizer"} == set(parameters)
    _, published = search_bm25(retrieval, 10, tokenizer="english")
    assert {"k1", "b", "method", "stemmer", "stop_words", "bm25s"} == set(published)


def test_bm25_scores_are_lucenes_formula() -> None:
    """Stemming changes no word, documents differ in length, and k1 = 0.9, b = 0.4 as in BEIR's baseline."""
    rng, words = np.random.default_rng(8), ("red", "blue", "green", "black", "pink", "gold")
    documents = [rng.choice(words, size, p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05]).tolist() for size in range(3, 33, 3)]
    texts, ids = tuple(map(" ".join, documents)), tuple(f"d{n}" for n in range(10))
    run, _ = search_bm25(Retrieval("x", ids, texts, ("q",), ("green gold pink",), {}), 10)
    mean, expected = np.mean([len(one) for one in documents]), dict.fromkeys(ids, 0.0)
    for word in ("green", "gold", "pink"):
        num_with_word = sum(word in one for one in documents)
        assert 0 < num_with_word < 10
        for identifier, one in zip(ids, documents, strict=True):
            norm = 0.9 * (1 - 0.4 + 0.4 * len(one) / mean)
            weight = math.log(1 + (10 - num_with_word + 0.5) / (num_with_word + 0.5))
            expected[identifier] += weight * one.count(word) / (one.count(word) + norm)
    assert run["q"] == pytest.approx({one: value for one, value in expected.items() if value}, abs=2e-6)


def test_published_bm25_drops_stop_words() -> None:
    data = Retrieval("x", ("a", "b"), ("the", "of"), ("q",), ("the bucket",), {})
    run, parameters = search_bm25(data, 10, tokenizer="english")
    assert run == {"q": {}} and parameters["note"].startswith("BM25 reads no term in 0 queries and 2 documents")
    assert list(search_bm25(data, 10)[0]["q"]) == ["a"]


@pytest.mark.parametrize(
    ("query", "right", "wrong"),
    [
        ("किताबें", "हिन्दी में किताबें", "हिन्दी में कलम"),
        ("学习", "机器学习", "天气预报"),
        ("cafe\u0301", "the caf\u00e9 opens", "the cafe opens"),
        ("caf\u00e9", "the cafe\u0301 opens", "the cafe opens"),
        ("7", "chapter 7", "chapter 8"),
        ("c++", "a guide to C++", "a guide to C#"),
        ("c#", "a guide to C#", "a guide to C++"),
        ("x + y", "x + y", "x - y"),
        ("&&", "a && b", "a || b"),
        ("to be or not to be", "to be or not to be", "all is well"),
        ("a", "vitamin a", "vitamin e"),
        ("ราคา", "ราคาเท่าไร", "ฝนตก"),
        ("\N{MINUS SIGN}757", "temperature \N{MINUS SIGN}757", "temperature 757"),
    ],
)
def test_bm25_reads_every_script(query: str, right: str, wrong: str) -> None:
    run, parameters = search_bm25(Retrieval("x", ("d0", "d1"), (wrong, right), ("q",), (query,), {}), 10)
    assert next(iter(run["q"])) == "d1" and "note" not in parameters


def test_runs_survive_the_disk(tmp_path: Path) -> None:
    run = search(draw_vectors(5, 0), draw_vectors(40, 1), QUERY_IDS, DOCUMENT_IDS, 7)
    for name in ("one", "two"):
        write_run(tmp_path / f"{name}.trec.gz", run, tag="test")
    assert read_run(tmp_path / "one.trec.gz") == run
    assert (tmp_path / "one.trec.gz").read_bytes() == (tmp_path / "two.trec.gz").read_bytes()
    assert (tmp_path / "one.trec.gz").read_bytes()[4:8] == bytes(4), "the header holds no time"


def test_bad_input_is_one_clear_line(tmp_path: Path) -> None:
    documents = draw_vectors(2, 0)
    bad = documents.copy()
    bad[0, 0] = np.nan
    cases = [
        (lambda: search(documents, documents[:0], ["a", "b"], [], 3), "no documents to search"),
        (lambda: search(documents, documents, ["a", "b"], ["x"], 3), "2 vectors, 1 ids"),
        (lambda: search(documents, documents, ["a", "b"], ["x", "x"], 3), "1 of them distinct"),
        (lambda: search(bad, documents, ["a", "b"], ["x", "y"], 3), "1 vectors hold NaN or infinity, first that of a"),
        (lambda: search(documents, documents, ["a", "b"], ["x", "y"], 3, {"a": ["z"]}), "first 'z'"),
        (lambda: score({"a": {}}, {"a": {}}), "no judged document, first 'a'"),
        (lambda: score({"a": {}}, {}), "no judged document, first 'a'"),
        (lambda: score({}, {"a": {"x": 1}}, ["map"]), r"unknown measure \['map'\]"),
        (lambda: write_run(tmp_path / "r.gz", {"a": {"x y": 1.0}}, tag="t"), "one with a space"),
    ]
    for call, message in cases:
        with pytest.raises(ValueError, match=message):
            call()
    assert not list(tmp_path.iterdir())
