"""Filters of training pairs: no evaluated text, no document twice. Views of a row use only its own words."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.data.beir import Retrieval, write_beir_folder, write_suite
from repro.data.filters import (
    EvaluatedTexts,
    SeenKeys,
    check_no_overlap,
    drop_evaluated_rows,
    drop_repeated_documents,
    drop_repeated_pairs,
    find_overlap,
)
from repro.data.mined.views import iter_views
from repro.data.pairs import Row, read_pairs, write_pairs

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
    removed = Counter[str]()
    assert [row.id for row in drop_evaluated_rows(rows, EVALUATED, removed)] == ["4", "5"]
    assert removed == {"evaluated": 3}

    def cut(row: Row) -> Row:
        return row._replace(document=" ".join(row.document.split()[:3]))

    assert list(drop_evaluated_rows(rows, EVALUATED, removed, cut=cut)) == rows[4:]
    assert removed == {"evaluated": 3 + 4}


def test_overlap_finds_planted_texts(tmp_path: Path) -> None:
    write_beir_folder(tmp_path / "c", COLLECTION)
    write_suite(tmp_path, "suite", [("c", "family")])
    rows = make_rows(("any", "HELD OUT document"), ("Held out query?", "any"), ("fine", "fine"))
    write_pairs(tmp_path / "train.arrow", rows)
    pairs = read_pairs(tmp_path / "train.arrow")
    assert find_overlap(pairs, [tmp_path]) == ["held out document", "held out query"]
    with pytest.raises(ValueError, match="2 evaluated texts"):
        check_no_overlap(pairs, [tmp_path])
    check_no_overlap(pairs.take([2]), [tmp_path])


def test_documents_are_trained_on_once() -> None:
    rows = make_rows(
        ("tag it", "Adds a tag."),
        ("label it", "adds a TAG", "b"),
        ("Tag it!", "Puts on a label."),
        ("tag it", "Sets a tag here.", "b"),
    )
    removed = Counter[str]()
    assert [row.id for row in drop_repeated_documents(rows, removed)] == ["1", "4"]
    assert removed == {"repeated_document": 1, "repeated_query_in_domain": 1}


def test_repeated_pairs_are_kept_once() -> None:
    rows = make_rows(("a b", "c d"), ("A b", "C, d"), ("other", "c d"), ("a b c", "d"))
    assert [row.id for row in drop_repeated_pairs(rows, Counter())] == ["1", "3", "4"]


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


def test_crop_leaves_surrounding_text() -> None:
    text = " ".join(f"word{i}" for i in range(60))
    views = iter_views(make_rows(("ask this", text)), max_document_words=60, seed=0)
    crops = [view for view in views if "@crop" in view.id]
    assert len(crops) == 12
    for view in crops:
        assert view.query in text
        assert sorted(f"{view.query} {view.document}".split()) == sorted(text.split())


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


def test_seen_keys_merge_their_runs() -> None:
    """The number of sorted runs grows with the logarithm of the number of blocks."""
    keys, rng = SeenKeys(), np.random.default_rng(0)
    for _ in range(300):
        keys.add(rng.integers(0, 2**63, 100).astype(np.uint64))
    assert len(keys._runs) <= 9 and sum(map(len, keys._runs)) == 30_000


def make_rows(*texts: tuple[str, ...]) -> list[Row]:
    """Return a row per query and document, and domain if it is given. Ids count from 1."""
    return [
        Row(str(n), query, document, *(domain or ["a"]), "s") for n, (query, document, *domain) in enumerate(texts, 1)
    ]
