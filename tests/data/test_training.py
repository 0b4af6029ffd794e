"""Filters of training pairs: no evaluated text, no document twice. Views of a row use only its own words."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from repro.data.beir import Retrieval
from repro.data.filters import EvaluatedTexts, SeenKeys, drop_evaluated_rows, drop_repeated_pairs
from repro.data.mined.views import iter_views
from repro.data.pairs import Row

COLLECTION = Retrieval("c", ("d",), ("Held out document.",), ("q",), ("held out query",), {"q": {"d": 1}})
EVALUATED = EvaluatedTexts([COLLECTION])
LONG = " ".join(f"word{i}" for i in range(40)) + ". Then a second sentence follows. And at last a third one."
KINDS = {"", "named", "first", "sentence", "crop"}


def test_evaluated_texts_are_dropped() -> None:
    """With `cut`, documents are also compared in the form that is evaluated: cut to a length."""
    rows = make_rows(
        ("any", "HELD OUT, document"),
        ("Held-out query", "any"),
        ("held out document", "any"),
        ("any", "Held out document. And more of it."),
        ("fine", "fine"),
    )
    assert [row.id for row in drop_evaluated_rows(rows, EVALUATED)] == ["4", "5"]

    def cut(row: Row) -> Row:
        return row._replace(document=" ".join(row.document.split()[:3]))

    assert list(drop_evaluated_rows(rows, EVALUATED, cut)) == rows[4:]


def test_repeated_pairs_are_kept_once() -> None:
    rows = make_rows(("a b", "c d"), ("A b", "C, d"), ("other", "c d"), ("a b c", "d"))
    assert [row.id for row in drop_repeated_pairs(rows)] == ["1", "3", "4"]


def test_views_add_nothing_to_rows() -> None:
    """They have only words of their row, and depend on the seed."""
    rows = make_rows(("ask this", LONG, "my-domain"))
    views = list(iter_views(rows, max_document_words=30, seed=0))
    words = set(f"{LONG} ask this my domain".split())
    assert {view.id.partition("@")[2].rstrip("0123456789") for view in views} == KINDS
    assert all(set(f"{view.query} {view.document}".split()) <= words for view in views)
    assert all(len(view.document.split()) <= 30 for view in views)
    assert len({view.id for view in views}) == len(views)
    assert views == list(iter_views(rows, max_document_words=30, seed=0))
    assert views != list(iter_views(rows, max_document_words=30, seed=1))


def test_sentence_leaves_surrounding_text() -> None:
    sentences = [f"{name} " + " ".join(f"{name.lower()}{i}" for i in range(8)) + "." for name in ("One", "Two", "Six")]
    views = iter_views(make_rows(("ask this", " ".join(sentences))), max_document_words=60, seed=0)
    assert {
        view.id: (view.query, view.document) for view in views if "@sentence" in view.id or "@first" in view.id
    } == {
        "1@first": ("ask this", sentences[0]),
        "1@sentence0": (sentences[0], f"{sentences[1]} {sentences[2]}"),
        "1@sentence1": (sentences[1], f"{sentences[0]} {sentences[2]}"),
        "1@sentence2": (sentences[2], f"{sentences[0]} {sentences[1]}"),
    }


@given(st.lists(st.lists(st.integers(0, 30).map(lambda n: n * 2**58), max_size=12), max_size=30))
def test_seen_keys_match_set(blocks: list[list[int]]) -> None:
    seen, keys = set[int](), SeenKeys()
    for block in blocks:
        expected = []
        for key in block:
            expected.append(key not in seen)
            seen.add(key)
        assert keys.add(np.array(block, np.uint64)).tolist() == expected


def make_rows(*texts: tuple[str, ...]) -> list[Row]:
    """Return a row per query and document, and domain if it is given. Ids count from 1."""
    return [
        Row(str(n), query, document, *(domain or ["a"]), "s") for n, (query, document, *domain) in enumerate(texts, 1)
    ]
