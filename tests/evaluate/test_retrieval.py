"""Search, measures, BM25 and run files against full sorting, pytrec-eval and arithmetic."""

import math
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from scipy.sparse import csr_array

from repro.data.beir import Retrieval
from repro.evaluate.first_stage import compute_recall
from repro.evaluate.retrieval import (
    Hits,
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
    vectors = np.random.default_rng(seed).normal(size=(count, 6))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def search_drawn_vectors(k: int, candidates: dict[str, list[str]] | None = None) -> Hits:
    """Search 40 documents for 5 queries."""
    return search(draw_vectors(5, 0), draw_vectors(40, 1), QUERY_IDS, DOCUMENT_IDS, k, candidates)


@pytest.mark.parametrize("k", [1, 7, 100, 999, 1000])
@pytest.mark.parametrize("size", [3, 128, 10_000])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_blocks_rank_as_exact_scores(k: int, size: int, is_sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searching in blocks ranks as float64 does, even if scores hardly differ. Ties go to the smaller id."""
    monkeypatch.setattr("repro.evaluate.retrieval.DOCUMENTS_PER_BLOCK", size)
    rng = np.random.default_rng(k)
    documents = (0.25 + rng.integers(0, 40, (1000, 1)) * 2.0**-24).astype(np.float32)
    documents[rng.integers(0, 1000, 300)] = 0
    queries = np.array([[1.0], [-1.0], [30.0]], np.float32)
    ids = [f"d{n}" for n in rng.permutation(1000)]
    kind = csr_array if is_sparse else np.asarray
    run = search(kind(queries), kind(documents), ["a", "b", "c"], ids, k)
    for hits, query in zip(run.values(), queries, strict=True):
        scores = (documents[:, 0].astype(np.float64) * query[0]).astype(np.float32)
        expected = sorted(zip(-scores, ids, strict=True))[:k]
        assert [(-np.float32(score), document_id) for document_id, score in hits.items()] == expected


@pytest.mark.parametrize("factor", [2.0**-40, 1e-30, 1e-3, 1, 1e3, 2.0**60])
@pytest.mark.parametrize("way", ["full", "sparse", "rerank"])
def test_common_factor_changes_no_ranking(factor: float, way: str) -> None:
    """The ranking is that of a full sort in float64, for vectors of any length."""
    rng = np.random.default_rng(4)
    queries, documents = (rng.normal(size=(count, 12)).astype(np.float32) for count in (9, 300))
    queries[:, ::2], documents[:, ::3] = 0, 0
    query_ids, document_ids = [f"q{n}" for n in range(9)], [f"d{n}" for n in range(300)]
    num_searched = 50 if way == "rerank" else 300
    candidates = dict.fromkeys(query_ids, document_ids[:50]) if way == "rerank" else None
    kind = csr_array if way == "sparse" else np.asarray
    scaled = (kind(side * np.float32(factor)) for side in (queries, documents))
    run = search(*scaled, query_ids, document_ids, 20, candidates)
    scores = queries.astype(np.float64) @ documents[:num_searched].T
    expected = np.argsort(-scores, axis=1, kind="stable")[:, :20]
    assert [list(hits) for hits in run.values()] == [[document_ids[row] for row in rows] for rows in expected]


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
        assert find_ties(run, judged, is_exhaustive=True).num_without_ranking == 5


def test_ties_with_gold_are_counted() -> None:
    """Ties count where the smaller id is the relevant one (a) and where it is not (d)."""
    tied = {"d1": 2.0, "d2": 2.0, "d3": 1.0}
    run = {"a": tied, "b": {"d1": 2.0, "d2": 1.0}, "c": {"d1": 1.0, "d2": 1.0}, "d": tied}
    judged = {"a": {"d1": 1}, "b": {"d1": 1}, "c": {"d1": 1, "d2": 1}, "d": {"d2": 1}}
    values = score(run, judged)["ndcg_at_10"]
    ties = find_ties(run, judged, is_exhaustive=True)
    second = 1 / math.log2(3)
    assert values.tolist() == pytest.approx([1, 1, 1, second])
    assert ties.num_decided_by_ids == 2
    assert (ties.worst, ties.best) == pytest.approx(((2 * second + 2) / 4, 1))
    assert ties.note and not find_ties({"b": run["b"]}, {"b": judged["b"]}, is_exhaustive=True).note


def test_ties_beyond_the_run_are_counted() -> None:
    """All kept documents score the same, so the relevant one may tie with them."""
    tied = {f"d{n:03d}": 1.0 for n in range(100)}
    judged = {"missing": {"x": 1}, "kept": {"d000": 1}, "clear": {"x": 1}}
    run = {"missing": tied, "kept": tied, "clear": tied | {"d099": 0.5}}
    assert find_ties(run, judged, is_exhaustive=True, num_kept=100).num_cut == 1


def test_junk_grades_count_as_zero() -> None:
    """Negative grades count as 0, also if a query has no other grade."""
    run = {"q0": {"d0": 2.0, "d1": 1.0}, "q1": {"d1": 1.0}}
    scores = score(run, {"q0": {"d0": 1, "d1": -2}, "q1": {"d1": -2}})
    assert len(scores) == 3 and all(values.tolist() == [1, 0] for values in scores.values())


def test_reranking_searches_candidates_only() -> None:
    candidates = {query_id: DOCUMENT_IDS[n : n + 9] for n, query_id in enumerate(QUERY_IDS)}
    full, reranked = search_drawn_vectors(40), search_drawn_vectors(4, candidates)
    for query_id in QUERY_IDS:
        expected = [document_id for document_id in full[query_id] if document_id in candidates[query_id]]
        assert list(reranked[query_id]) == expected[:4]


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


def draw_judgements(num_judged: int, seed: int) -> dict[str, dict[str, int]]:
    """Return grades from 0 to 2 of random documents per query."""
    rng = np.random.default_rng(seed)
    return {q: {d: int(rng.integers(0, 3)) for d in rng.choice(DOCUMENT_IDS, num_judged, False)} for q in QUERY_IDS}


def test_measures_agree_with_pytrec_eval() -> None:
    run, judgements = search_drawn_vectors(40), draw_judgements(6, seed=2)
    scores = score(run, judgements)
    reference = pytrec_eval.RelevanceEvaluator(judgements, {"ndcg_cut.10", "recall.100"}).evaluate(run)
    for ours, theirs in (("ndcg_at_10", "ndcg_cut_10"), ("recall_at_100", "recall_100")):
        expected = [reference[query_id][theirs] for query_id in sorted(judgements)]
        np.testing.assert_allclose(scores[ours], expected, atol=1e-6)


def test_candidate_recall_matches_trec_eval() -> None:
    run, judgements = search_drawn_vectors(12), draw_judgements(9, seed=3)
    judgements |= {"nothing found": {DOCUMENT_IDS[0]: 1}, "nothing relevant": {DOCUMENT_IDS[0]: 0}}
    reference = pytrec_eval.RelevanceEvaluator(judgements, {"recall.100"}).evaluate(run)
    shares = [reference.get(query_id, {}).get("recall_100", 0.0) for query_id in judgements]
    assert 0 < compute_recall(run, judgements) == pytest.approx(np.mean(shares))


def test_measures_break_ties_alike() -> None:
    assert score({"q": {"a": 1.0, "b": 1.0}}, {"q": {"a": 1}})["ndcg_at_10"] == pytest.approx(1)
    assert score({"q": {"b": 1.0, "a": 1.0}}, {"q": {"a": 1}})["ndcg_at_10"] == pytest.approx(1)
    assert score({"q": {"a": 1.0, "b": 1.0}}, {"q": {"b": 1}})["mrr_at_10"] == pytest.approx(0.5)


def test_missing_queries_score_nothing() -> None:
    values = score({"b": {"x": 1.0}, "a": {"y": 1.0}}, {"c": {"x": 1}, "b": {"x": 1}, "a": {"x": 1}})
    assert values["ndcg_at_10"].tolist() == [0, 1, 0] and values["ndcg_at_10"].dtype == np.float32


def test_bm25_finds_rare_words() -> None:
    documents = ("the bucket is listed", "the table is deleted", "listing the listed lists")
    retrieval = Retrieval("x", ("c", "b", "a"), documents, ("q", "none"), ("list bucket", "zebra"), {})
    run, parameters = search_bm25(retrieval, 10)
    assert rank_by_score(run["q"])[0][0] == "c"
    assert "b" not in run["q"] and run["none"] == {}
    _, published = search_bm25(retrieval, 10, tokenizer="english")
    assert published.keys() == {"k1", "b", "method", "stemmer", "stop_words", "bm25s", "note"}
    assert parameters.keys() == {*published, "tokenizer"}


def test_bm25_scores_are_lucenes_formula() -> None:
    """Stemming changes no word, documents differ in length, and k1 = 0.9, b = 0.4 as in BEIR's baseline."""
    rng, vocabulary = np.random.default_rng(8), ("red", "blue", "green", "black", "pink", "gold")
    documents = [rng.choice(vocabulary, size, p=[0.4, 0.2, 0.15, 0.1, 0.1, 0.05]).tolist() for size in range(3, 33, 3)]
    texts, ids = tuple(map(" ".join, documents)), tuple(f"d{n}" for n in range(10))
    run, _ = search_bm25(Retrieval("x", ids, texts, ("q",), ("green gold pink",), {}), 10)
    mean, expected = np.mean([len(words) for words in documents]), dict.fromkeys(ids, 0.0)
    for word in ("green", "gold", "pink"):
        num_with_word = sum(word in words for words in documents)
        assert 0 < num_with_word < 10
        weight = math.log(1 + (10 - num_with_word + 0.5) / (num_with_word + 0.5))
        for document_id, words in zip(ids, documents, strict=True):
            norm = 0.9 * (1 - 0.4 + 0.4 * len(words) / mean)
            expected[document_id] += weight * words.count(word) / (words.count(word) + norm)
    assert run["q"] == pytest.approx({document_id: score for document_id, score in expected.items() if score}, abs=2e-6)


def test_published_bm25_drops_stop_words() -> None:
    data = Retrieval("x", ("a", "b"), ("the", "of"), ("q",), ("the bucket",), {})
    run, parameters = search_bm25(data, 10, tokenizer="english")
    assert run == {"q": {}} and re.findall(r"\d+", parameters["note"].removeprefix("BM25")) == ["1", "2"]


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
        ("ＡＢＣ１２", "the abc12 model", "the abd12 model"),
        ("ﾊﾟｿｺﾝ", "パソコン", "ばら"),
        ("STRASSE", "die Straße", "die Strase"),
        ("service", "ser\u00advice", "ser vice"),
        ("می\u200cخواهم", "میخواهم", "می خواهم"),
        ("velcro", "Velcro™", "velcrotm"),
    ],
)
def test_bm25_reads_every_script(query: str, right: str, wrong: str) -> None:
    run, parameters = search_bm25(Retrieval("x", ("d0", "d1"), (wrong, right), ("q",), (query,), {}), 10)
    assert next(iter(run["q"])) == "d1" and "note" not in parameters


@pytest.mark.parametrize(("language", "found"), [("german", {"a"}), ("english", set()), ("none", set())])
def test_bm25_stems_its_language(language: str, found: set[str]) -> None:
    data = Retrieval("x", ("a", "b"), ("zwei Häuser", "ein Boot"), ("q", "r"), ("Haus", "kein"), {})
    run, parameters = search_bm25(data, 10, language=language)
    assert set(run["q"]) == found
    assert parameters["stemmer"] == (None if language == "none" else f"{language} (Snowball)")
    assert re.findall(r"\d+", parameters["note"].removeprefix("BM25")) == [str(2 - len(found)), "0"]


def test_bm25_drops_stop_words_of_queries() -> None:
    """A query without other words keeps them."""
    texts = ("wie ist das denn mit dem und der", "ein altes Haus steht am See", "die Daten ist das")
    queries = ("wie ist das mit dem Haus", "wie ist das")
    data = Retrieval("x", ("a", "b", "c"), texts, ("q", "r"), queries, {})
    first = {language: [*search_bm25(data, 1, language=language)[0]["q"]] for language in ("german", "none")}
    assert first == {"german": ["b"], "none": ["a"]}
    assert set(search_bm25(data, 3, language="german")[0]["r"]) == {"a", "c"}


def test_unknown_languages_are_refused() -> None:
    for options in ({"language": "klingon"}, {"language": "german", "tokenizer": "english"}):
        with pytest.raises(ValueError, match="language"):
            search_bm25(Retrieval("x", ("a",), ("text",), ("q",), ("text",), {}), 10, **options)


def test_runs_survive_the_disk(tmp_path: Path) -> None:
    run, paths = search_drawn_vectors(7), (tmp_path / "one.trec.gz", tmp_path / "two.trec.gz")
    for path in paths:
        write_run(path, run, tag="test")
    assert read_run(paths[0]) == run
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert paths[0].read_bytes()[4:8] == bytes(4), "the header holds no time"


VECTORS = draw_vectors(2, 0)
NO_NUMBERS = np.full_like(VECTORS, np.nan)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: search(VECTORS, VECTORS[:0], ["a", "b"], [], 3), "no documents to search"),
        (lambda: search(VECTORS, VECTORS, ["a", "b"], ["x"], 3), "2 vectors, 1 ids"),
        (lambda: search(VECTORS, VECTORS, ["a", "b"], ["x", "x"], 3), "1 of them distinct"),
        (lambda: search(NO_NUMBERS, VECTORS, ["a", "b"], ["x", "y"], 3), "2 vectors hold NaN or infinity"),
        (lambda: search(VECTORS, VECTORS, ["a", "b"], ["x", "y"], 3, {"a": ["z"]}), "first 'z'"),
        (lambda: score({"a": {}}, {"a": {}}), "no judged document, first 'a'"),
        (lambda: score({"a": {}}, {}), "no judged document, first 'a'"),
    ],
)
def test_impossible_arguments_are_refused(call: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        call()
