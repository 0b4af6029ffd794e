"""Evaluation collections: every rule of `repro.data.suites`, compared with manual rows and brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.data.pairs import Row
from repro.data.suites import SuiteRules, build_collection, has_near_duplicate

WORDS = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]), min_size=1, max_size=8).map(
    " ".join
)


def make_row(number: int, query: str, document: str) -> Row:
    return Row(f"row-{number}", query, document, "domain", "source")


@given(st.lists(WORDS, min_size=1, max_size=12), st.sampled_from([0.5, 0.8, 1.0]))
def test_near_duplicates_match_brute_force(documents: list[str], threshold: float) -> None:
    sets = [set(document.split()) for document in documents]
    expected = [
        any(i != j and len(a & b) / len(a | b) >= threshold for j, b in enumerate(sets)) for i, a in enumerate(sets)
    ]
    assert has_near_duplicate(documents, threshold).tolist() == expected


def test_documents_ignore_case_and_punctuation() -> None:
    rows = [make_row(1, "first", "The name, of a cluster."), make_row(2, "second", "the name of a CLUSTER")]
    rows.append(make_row(3, "x", "a b c d"))
    collection = build_collection("c", rows, SuiteRules())
    assert set(collection.retrieval.document_ids) == {"row-1", "row-3"}
    assert collection.counts["num_merged"] == 1
    assert collection.retrieval.judgements["q:row-1"] == {"row-1": 1}


AMBIGUOUS = [("Tag", "add a tag to it"), ("tag", "list what was tagged"), ("kept", "halt the machine now")]
NEAR_DUPLICATE = [("a", "one two three four"), ("b", "one two three four five"), ("kept", "six seven eight nine")]


@pytest.mark.parametrize(
    ("texts", "count"), [(AMBIGUOUS, "num_ambiguous"), (NEAR_DUPLICATE, "num_near_duplicate")], ids=["query", "gold"]
)
def test_unclear_queries_are_dropped(texts: list[tuple[str, str]], count: str) -> None:
    """A query is dropped if it has several answers, or if its answer has a near-duplicate. Documents are kept."""
    rows = [make_row(number, *pair) for number, pair in enumerate(texts)]
    collection = build_collection("c", rows, SuiteRules(near_duplicate=0.8))
    assert collection.retrieval.queries == ("kept",) and len(collection.retrieval.documents) == 3
    assert collection.counts[count] == 2


def test_ambiguous_queries_may_be_kept() -> None:
    texts = ["one two three", "four five six", "seven eight nine", "ten eleven twelve", "ten eleven twelve again once"]
    rows = [make_row(0, "same", texts[0]), make_row(1, "Same", texts[1]), make_row(2, "alone", texts[2])]
    rows += [make_row(3, "copies", texts[3]), make_row(4, "copies", texts[4])]
    rules = SuiteRules(several_answers=True, near_duplicate=0.6)
    collection = build_collection("c", rows, rules)
    assert sorted(map(sorted, collection.retrieval.judgements.values())) == [["row-0", "row-1"], ["row-2"]]
    assert collection.counts["num_near_duplicate"] == 1 and collection.counts["num_ambiguous"] == 0
    assert len(collection.retrieval.documents) == 5
    few = build_collection("c", rows[:2], SuiteRules(several_answers=True, max_documents=1))
    assert [len(right) for right in few.retrieval.judgements.values()] == [1], "only searched documents are judged"


def test_caps_keep_every_gold() -> None:
    rng = np.random.default_rng(0)
    rows = [make_row(i, f"query {i}", " ".join(map(str, rng.integers(0, 10**6, 6)))) for i in range(50)]
    retrieval = build_collection("c", rows, SuiteRules(max_documents=20, max_queries=7)).retrieval
    assert (len(retrieval.documents), len(retrieval.queries)) == (20, 7)
    assert {key for gold in retrieval.judgements.values() for key in gold} <= set(retrieval.document_ids)


def test_choice_ignores_row_order() -> None:
    rows = [make_row(i, f"query {i}", f"document {i} number {i * i} end") for i in range(30)]
    rules = SuiteRules(max_documents=10, max_queries=5)
    assert build_collection("c", rows, rules) == build_collection("c", rows[::-1], rules)


def test_collection_without_query_is_refused() -> None:
    with pytest.raises(ValueError, match="has no query left of 2 rows: all 2 are asked of several"):
        build_collection(
            "c", [make_row(1, "same", "one two three"), make_row(2, "same", "four five six")], SuiteRules()
        )


def test_near_duplicates_are_counted() -> None:
    rows = [make_row(n, f"where is {n}", f"this very long text stands in every row number {n}") for n in range(26)]
    with pytest.raises(ValueError, match=r"no query left of 26 rows: all 26 have a near-duplicate \(80 % of their"):
        build_collection("c", rows, SuiteRules())
    with pytest.raises(ValueError, match=r": 2 are asked of several documents, 26 have a near-duplicate"):
        build_collection("c", [*rows, make_row(30, "x", "a b c"), make_row(31, "x", "d e f")], SuiteRules())
    rules = SuiteRules(keeps_near_duplicates=True, max_queries=20)
    collection = build_collection("c", rows, rules)
    assert len(collection.retrieval.queries) == collection.counts["num_near_duplicate"] == 20
