"""Evaluation collections: every rule of `repro.data.suites`, compared with manual rows and brute force."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.data.pairs import Row
from repro.data.suites import build_collection, has_near_duplicate

WORDS = st.lists(st.sampled_from(["alpha", "beta", "gamma", "delta", "epsilon", "zeta"]), min_size=1, max_size=8).map(
    " ".join
)


@given(st.lists(WORDS, min_size=1, max_size=12), st.sampled_from([0.5, 0.8, 1.0]))
def test_near_duplicates_match_brute_force(documents: list[str], threshold: float) -> None:
    sets = [set(document.split()) for document in documents]
    expected = [
        any(i != j and len(a & b) / len(a | b) >= threshold for j, b in enumerate(sets)) for i, a in enumerate(sets)
    ]
    assert has_near_duplicate(documents, threshold).tolist() == expected


def test_documents_ignore_case_and_punctuation() -> None:
    rows = make_rows(("first", "The name, of a cluster."), ("second", "the name of a CLUSTER"), ("x", "a b c d"))
    collection = build_collection("c", rows)
    assert set(collection.document_ids) == {"row-0", "row-2"}
    assert collection.judgements["q:row-0"] == {"row-0": 1}


AMBIGUOUS = [("Tag", "add a tag to it"), ("tag", "list what was tagged"), ("clear", "halt the machine now")]
NEAR_DUPLICATE = [("a", "one two three four"), ("b", "one two three four five"), ("clear", "six seven eight nine")]


@pytest.mark.parametrize("texts", [AMBIGUOUS, NEAR_DUPLICATE], ids=["query", "gold"])
def test_unclear_queries_are_dropped(texts: list[tuple[str, str]]) -> None:
    """A query is dropped if it has several answers, or if its answer has a near-duplicate. Documents are kept."""
    collection = build_collection("c", make_rows(*texts))
    assert collection.queries == ("clear",) and len(collection.documents) == 3


def test_caps_keep_every_gold() -> None:
    """The choice does not depend on the order of rows."""
    rng = np.random.default_rng(0)
    rows = make_rows(*((f"query {i}", " ".join(map(str, rng.integers(0, 10**6, 6)))) for i in range(50)))
    collection = build_collection("c", rows, max_documents=20, max_queries=7)
    assert (len(collection.documents), len(collection.queries)) == (20, 7)
    assert {document for grades in collection.judgements.values() for document in grades} <= {*collection.document_ids}
    assert build_collection("c", rows[::-1], max_documents=20, max_queries=7) == collection


def make_rows(*texts: tuple[str, str]) -> list[Row]:
    """Return a row per query and document. Ids count from 0."""
    return [Row(f"row-{number}", *pair, "domain", "source") for number, pair in enumerate(texts)]
