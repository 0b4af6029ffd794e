"""A query stands with its right document and with a wrong one, or not at all."""

from dataclasses import replace

import pytest

from repro.evaluate.mteb.suite import _make_pair_task
from tests.analyses.by_hand import collection

DOCUMENTS = ("rain falls", "snow falls", "iron bars", "copper pots")


def pairs_of(grades: list[dict[int, int]], documents: tuple[str, ...] = DOCUMENTS) -> list[tuple[str, str, int]]:
    """Return the pairs of a collection whose query n grades documents by their places."""
    bare = collection("things", documents, relevant=[0] * len(grades))
    judgements = {
        query: {f"things-d{place}": grade for place, grade in of.items()}
        for query, of in zip(bare.query_ids, grades, strict=True)
    }
    task = _make_pair_task("things-pairs", replace(bare, judgements=judgements))
    task.load_data()
    rows = task.dataset["test"]
    asked = {query: f"q{number}" for number, query in enumerate(bare.queries)}
    return [
        (asked[query], text, label)
        for query, text, label in zip(rows["sentence1"], rows["sentence2"], rows["labels"], strict=True)
    ]


def test_the_wrong_document_is_the_right_one_of_the_query_before() -> None:
    rain, snow, iron, _ = DOCUMENTS
    assert pairs_of([{0: 1}, {1: 2, 3: 1}, {3: 0, 2: 1}]) == [
        *(("q0", rain, 1), ("q1", snow, 1), ("q2", iron, 1)),
        *(("q0", iron, 0), ("q1", rain, 0), ("q2", snow, 0)),
    ]


def test_a_query_without_a_right_document_of_the_collection_is_left_out() -> None:
    rain, snow, *_ = DOCUMENTS
    expected = [("q1", rain, 1), ("q3", snow, 1), ("q1", snow, 0), ("q3", rain, 0)]
    assert pairs_of([{2: 0}, {0: 1}, {3: -1}, {1: 1}, {7: 1}]) == expected, "of 7 there is judgement and no text"


@pytest.mark.parametrize(
    ("grades", "wrong"),
    [
        ([{0: 1}, {0: 1}, {1: 1}], {"q0": "snow falls", "q1": "snow falls", "q2": "rain falls"}),
        ([{0: 1}, {1: 1, 0: 1}, {2: 1}], {"q0": "iron bars", "q1": "iron bars", "q2": "snow falls"}),
        ([{0: 1}, {0: 1, 1: 1}], {"q0": "snow falls", "q1": "iron bars"}),
        ([{0: 1, 1: 1, 2: 1, 3: 1}, {1: 1}], {"q1": "rain falls"}),
    ],
    ids=["one right document", "right as well", "no other right document", "all are right"],
)
def test_a_document_that_is_right_is_no_wrong_one(grades: list[dict[int, int]], wrong: dict[str, str]) -> None:
    assert {query: text for query, text, label in pairs_of(grades) if not label} == wrong
