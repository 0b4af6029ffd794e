"""Evaluation collections: every rule of `repro.data.suites` against hand-made rows and a brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.data.pairs import Row
from repro.data.suites import SuiteRules, build_collection, has_near_duplicate

WORDS = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]), min_size=1, max_size=8).map(
    " ".join
)


def row(number: int, query: str, document: str) -> Row:
    return Row(f"row-{number}", query, document, "domain", "source")


@given(st.lists(WORDS, min_size=1, max_size=12), st.sampled_from([0.5, 0.8, 1.0]))
def test_near_duplicates_match_brute_force(documents: list[str], threshold: float) -> None:
    sets = [set(document.split()) for document in documents]
    expected = [
        any(i != j and len(a & b) / len(a | b) >= threshold for j, b in enumerate(sets)) for i, a in enumerate(sets)
    ]
    assert has_near_duplicate(documents, threshold).tolist() == expected


def test_case_and_punctuation_make_no_document() -> None:
    rows = [
        row(1, "first", "The name, of a cluster."),
        row(2, "second", "the name of a CLUSTER"),
        row(3, "x", "a b c d"),
    ]
    collection = build_collection("c", rows, SuiteRules())
    assert set(collection.retrieval.document_ids) == {"row-1", "row-3"}
    assert collection.counts["num_merged"] == 1
    assert collection.retrieval.judgements["q:row-1"] == {"row-1": 1}


def test_ambiguous_queries_are_dropped() -> None:
    rows = [
        row(1, "Tag", "add a tag to it"),
        row(2, "tag", "list what was tagged"),
        row(3, "stop", "halt the machine now"),
    ]
    collection = build_collection("c", rows, SuiteRules())
    assert collection.retrieval.queries == ("stop",)
    assert len(collection.retrieval.documents) == 3
    assert collection.counts["num_ambiguous"] == 2


def test_ambiguous_queries_may_be_kept() -> None:
    texts = ["one two three", "four five six", "seven eight nine", "ten eleven twelve", "ten eleven twelve again once"]
    rows = [row(0, "same", texts[0]), row(1, "Same", texts[1]), row(2, "alone", texts[2])]
    rows += [row(3, "copies", texts[3]), row(4, "copies", texts[4])]
    rules = SuiteRules(several_answers=True, near_duplicate=0.6)
    collection = build_collection("c", rows, rules)
    assert sorted(map(sorted, collection.retrieval.judgements.values())) == [["row-0", "row-1"], ["row-2"]]
    assert collection.counts["num_near_duplicate"] == 1 and collection.counts["num_ambiguous"] == 0
    assert len(collection.retrieval.documents) == 5
    few = build_collection("c", rows[:2], SuiteRules(several_answers=True, max_documents=1))
    assert [len(right) for right in few.retrieval.judgements.values()] == [1], "what is not searched is not judged"


def test_gold_with_near_duplicate_is_dropped() -> None:
    rows = [
        row(1, "a", "one two three four"),
        row(2, "b", "one two three four five"),
        row(3, "c", "six seven eight nine"),
    ]
    collection = build_collection("c", rows, SuiteRules(near_duplicate=0.8))
    assert collection.retrieval.queries == ("c",)
    assert len(collection.retrieval.documents) == 3
    assert collection.counts["num_near_duplicate"] == 2


def test_caps_keep_every_gold() -> None:
    rng = np.random.default_rng(0)
    rows = [row(i, f"query {i}", " ".join(map(str, rng.integers(0, 10**6, 6)))) for i in range(50)]
    retrieval = build_collection("c", rows, SuiteRules(max_documents=20, max_queries=7)).retrieval
    assert (len(retrieval.documents), len(retrieval.queries)) == (20, 7)
    assert {key for gold in retrieval.judgements.values() for key in gold} <= set(retrieval.document_ids)


def test_choice_ignores_row_order() -> None:
    rows = [row(i, f"query {i}", f"document {i} number {i * i} end") for i in range(30)]
    rules = SuiteRules(max_documents=10, max_queries=5)
    assert build_collection("c", rows, rules) == build_collection("c", rows[::-1], rules)


def test_collection_without_query_is_refused() -> None:
    with pytest.raises(ValueError, match="has no query left of 2 rows: all 2 are asked of several"):
        build_collection("c", [row(1, "same", "one two three"), row(2, "same", "four five six")], SuiteRules())


def test_near_duplicates_are_counted() -> None:
    rows = [row(n, f"where is {n}", f"this very long text stands in every row number {n}") for n in range(26)]
    with pytest.raises(
        ValueError, match=r"no query left of 26 rows: all 26 have a near-duplicate \(80 % of their words"
    ):
        build_collection("c", rows, SuiteRules())
    with pytest.raises(ValueError, match=r": 2 are asked of several documents, 26 have a near-duplicate"):
        build_collection("c", [*rows, row(30, "x", "a b c"), row(31, "x", "d e f")], SuiteRules())
    rules = SuiteRules(keeps_near_duplicates=True, max_queries=20)
    collection = build_collection("c", rows, rules)
    assert len(collection.retrieval.queries) == collection.counts["num_near_duplicate"] == 20
