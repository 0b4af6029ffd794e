"""Which context documents are drawn, and what is kept of them."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.data.beir import Retrieval, SuiteDataset
from repro.evaluate.contexts import draw_context, wrong_corpora


def corpus(name: str = "a", count: int = 20) -> Retrieval:
    ids = tuple(f"{name}{n}" for n in range(count))
    return Retrieval(name, ids, tuple(f"text of {i}" for i in ids), ("q",), ("the query",), {"q": {ids[0]: 1}})


def datasets(families: Sequence[str]) -> list[SuiteDataset]:
    return [SuiteDataset(f"set{place}", family, Path()) for place, family in enumerate(families)]


def test_own_context_is_a_sample_of_documents_and_the_record_can_name_them() -> None:
    context = draw_context("own", corpus(), num_contexts=7, seed=3)
    ids = [text.removeprefix("text of ") for text in context.texts]
    assert len(set(ids)) == 7 and set(ids) <= set(corpus().document_ids)
    assert context.provenance["ids_sha256"] == hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]
    assert context.provenance["num_documents"] == 7


def test_the_draw_depends_on_the_seed_and_the_corpus_alone() -> None:
    first = draw_context("own", corpus(), num_contexts=7, seed=3)
    assert first.texts == draw_context("wrong", corpus(), num_contexts=7, seed=3).texts
    assert first.texts != draw_context("own", corpus(), num_contexts=7, seed=4).texts


def test_a_small_corpus_gives_all_it_has_and_null_gives_nothing() -> None:
    assert sorted(draw_context("own", corpus(count=3), num_contexts=8, seed=0).texts) == sorted(
        corpus(count=3).documents
    )
    null = draw_context("null", None, num_contexts=8, seed=0)
    assert null.texts is None and null.provenance == {"kind": "null"}


@given(st.lists(st.sampled_from("ABCD"), min_size=2, max_size=24))
def test_every_wrong_corpus_is_another_one_and_serves_once(families: Sequence[str]) -> None:
    sets = datasets(families)
    others = wrong_corpora(sets)
    assert set(others) == set(others.values()) == {dataset.name for dataset in sets}
    assert all(name != other for name, other in others.items())
    family = {dataset.name: dataset.family for dataset in sets}
    if max(families.count(f) for f in families) * 2 <= len(families):
        assert all(family[name] != family[other] for name, other in others.items())


def test_a_large_family_keeps_as_few_of_its_own_as_it_must() -> None:
    family = {dataset.name: dataset.family for dataset in datasets("AAAAAB")}
    others = wrong_corpora(datasets("AAAAAB"))
    assert sum(family[name] == family[other] for name, other in others.items()) == 4


def test_bad_input_is_one_clear_line() -> None:
    with pytest.raises(ValueError, match=r"unknown context 'topk'.*'random'"):
        draw_context("topk", corpus(), num_contexts=2, seed=0)
    with pytest.raises(ValueError, match="no wrong corpus"):
        wrong_corpora(datasets("A"))
