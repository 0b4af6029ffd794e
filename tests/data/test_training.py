"""Filters of training pairs: no evaluated text, no document twice. Views of a row use only its own words."""

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from repro.data.beir import Retrieval
from repro.data.filters import (
    EvaluatedTexts,
    SeenKeys,
    drop_evaluated_rows,
    drop_repeated_documents,
    drop_repeated_pairs,
)
from repro.data.mined.views import iter_views
from repro.data.pairs import Row

EVALUATED = EvaluatedTexts(
    [Retrieval("c", ("d",), ("Held out document.",), ("q",), ("held out query",), {"q": {"d": 1}})]
)
LONG = " ".join(f"word{i}" for i in range(40)) + ". Then a second sentence follows. And at last a third one."


def make_row(key: str, query: str, document: str, domain: str = "a") -> Row:
    return Row(key, query, document, domain, "source")


def test_evaluated_texts_are_dropped() -> None:
    texts = [("any", "HELD OUT, document"), ("Held-out query", "any"), ("held out document", "any"), ("fine", "fine")]
    rows, removed = [make_row(str(n), *pair) for n, pair in enumerate(texts, 1)], Counter[str]()
    assert [row.id for row in drop_evaluated_rows(rows, EVALUATED, removed)] == ["4"]
    assert removed == {"evaluated": 3}


def test_evaluated_cuts_are_dropped() -> None:
    """With `cut`, documents are compared in the form that is evaluated: cut to a length."""
    rows, removed = (
        [make_row("1", "any", "Held out document. And more of it."), make_row("2", "any", "fine")],
        Counter[str](),
    )
    assert [row.id for row in drop_evaluated_rows(rows, EVALUATED, removed)] == ["1", "2"] and not removed

    def cut(one: Row) -> Row:
        return one._replace(document=" ".join(one.document.split()[:3]))

    assert list(drop_evaluated_rows(rows, EVALUATED, removed, cut=cut)) == rows[1:] and removed == {"evaluated": 1}


def test_documents_are_trained_on_once() -> None:
    rows = [
        make_row("1", "tag it", "Adds a tag."),
        make_row("2", "label it", "adds a TAG", "b"),
        make_row("3", "Tag it!", "Puts on a label."),
        make_row("4", "tag it", "Sets a tag here.", "b"),
    ]
    removed = Counter[str]()
    assert [row.id for row in drop_repeated_documents(rows, removed)] == ["1", "4"]
    assert removed == {"repeated_document": 1, "repeated_query_in_domain": 1}


def test_repeated_pairs_are_kept_once() -> None:
    rows = [
        make_row("1", "a b", "c d"),
        make_row("2", "A b", "C, d"),
        make_row("3", "other", "c d"),
        make_row("4", "a b c", "d"),
    ]
    assert [row.id for row in drop_repeated_pairs(rows, Counter())] == ["1", "3", "4"]


def test_views_add_nothing_to_rows() -> None:
    source = make_row("r", "ask this", LONG, "my-domain")
    made = list(iter_views([source], max_document_words=30, seed=0))
    known = set(f"{LONG} ask this my domain".split())
    kinds = {view.id.partition("@")[2].rstrip("0123456789") for view in made}
    assert kinds == {"", "named", "first", "sentence", "crop"}
    assert all(set(f"{view.query} {view.document}".split()) <= known for view in made)
    assert all(len(view.document.split()) <= 30 for view in made)
    assert len({view.id for view in made}) == len(made)


def test_crop_leaves_surrounding_text() -> None:
    distinct = " ".join(f"word{i}" for i in range(60))
    made = iter_views([make_row("r", "ask this", distinct)], max_document_words=60, seed=0)
    crops = [view for view in made if "@crop" in view.id]
    assert len(crops) == 12
    for view in crops:
        assert view.query in distinct
        assert sorted(f"{view.query} {view.document}".split()) == sorted(distinct.split())


def test_sentence_leaves_surrounding_text() -> None:
    sentences = [f"{name} " + " ".join(f"{name.lower()}{i}" for i in range(8)) + "." for name in ("One", "Two", "Six")]
    made = list(iter_views([make_row("r", "ask this", " ".join(sentences))], max_document_words=60, seed=0))
    found = {view.id: (view.query, view.document) for view in made if "@sentence" in view.id or "@first" in view.id}
    others = {sentence: [other for other in sentences if other != sentence] for sentence in sentences}
    expected = {f"r@sentence{n}": (one, " ".join(others[one])) for n, one in enumerate(sentences)}
    assert found == {"r@first": ("ask this", sentences[0]), **expected}


def test_views_are_function_of_seed() -> None:
    rows = [make_row(str(i), "ask this", LONG) for i in range(5)]
    made = [list(iter_views(rows, max_document_words=30, seed=seed)) for seed in (0, 0, 1)]
    assert made[0] == made[1] != made[2]


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
