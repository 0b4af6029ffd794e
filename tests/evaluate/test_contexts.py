"""Which context documents are drawn and recorded, and differences between contexts with their intervals."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import bootstrap

from repro.data.beir import Retrieval, SuiteDataset, group_datasets, write_beir_folder
from repro.evaluate.comparison import paired_gaps
from repro.evaluate.contexts import draw_context, have_wrong_corpora, wrong_corpora
from repro.evaluate.suites import Setting
from repro.statistics.bootstrap import paired_bootstrap, percentile_interval


def make_corpus(name: str = "a", count: int = 20) -> Retrieval:
    ids = tuple(f"{name}{n}" for n in range(count))
    return Retrieval(name, ids, tuple(f"text of {i}" for i in ids), ("q",), ("the query",), {"q": {ids[0]: 1}})


def make_datasets(families: Sequence[str]) -> list[SuiteDataset]:
    return [SuiteDataset(f"set{place}", family, Path()) for place, family in enumerate(families)]


def test_own_context_is_a_named_sample() -> None:
    corpus = make_corpus()
    context = draw_context("own", corpus, num_contexts=7, seed=3)
    ids = [text.removeprefix("text of ") for text in context.texts]
    assert len(set(ids)) == 7 and set(ids) <= set(corpus.document_ids)
    assert context.provenance["ids_sha256"] == hashlib.sha256("\n".join(ids).encode()).hexdigest()[:16]
    assert context.provenance["num_documents"] == 7
    assert context.texts == draw_context("wrong", corpus, num_contexts=7, seed=3).texts
    assert context.texts != draw_context("own", corpus, num_contexts=7, seed=4).texts


def test_small_corpus_gives_all() -> None:
    corpus = make_corpus(count=3)
    assert sorted(draw_context("own", corpus, num_contexts=8, seed=0).texts) == sorted(corpus.documents)
    null = draw_context("null", None, num_contexts=8, seed=0)
    assert null.texts is None and null.provenance == {"kind": "null"}


@given(st.lists(st.sampled_from("ABCD"), min_size=2, max_size=24))
def test_wrong_corpora_serve_once(families: Sequence[str]) -> None:
    sets = make_datasets(families)
    others = wrong_corpora(sets)
    assert set(others) == set(others.values()) == {dataset.name for dataset in sets}
    assert all(name != other for name, other in others.items())
    family = {dataset.name: dataset.family for dataset in sets}
    if max(families.count(f) for f in families) * 2 <= len(families):
        assert all(family[name] != family[other] for name, other in others.items())


def test_large_family_meets_itself_least() -> None:
    sets = make_datasets("AAAAAB")
    family = {dataset.name: dataset.family for dataset in sets}
    others = wrong_corpora(sets)
    assert sum(family[name] == family[other] for name, other in others.items()) == 4


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        (("one fish", "two fish", "red fish"), False),
        (("one fish", "red fish", "six fish"), True),
        (("two fish", "one fish"), False),
        (("one fish", "six fish"), True),
    ],
)
def test_copy_is_no_wrong_corpus(tmp_path: Path, documents: tuple[str, ...], expected: bool) -> None:
    """Collections that share most documents, in any order and with any ids, are no wrong corpora of each other."""
    for name, texts in (("first", ("one fish", "two fish")), ("second", documents)):
        ids = tuple(f"{name}{place}" for place in range(len(texts)))
        write_beir_folder(tmp_path / name, Retrieval(name, ids, texts, ("q",), ("fish",), {"q": {ids[0]: 1}}))
    datasets = [SuiteDataset(name, "family", tmp_path / name) for name in ("first", "second")]
    assert have_wrong_corpora(datasets) is expected
    assert not have_wrong_corpora(datasets[:1])


def test_unknown_context_is_refused() -> None:
    """It would be scored as the context "own"."""
    for options in ({"contexts": ("wrogn",), "num_contexts": 2}, {"whitened": ("wrogn",)}):
        with pytest.raises(ValueError, match="wrogn"):
            Setting(**options)
    with pytest.raises(ValueError, match="no wrong corpus"):
        wrong_corpora(make_datasets("A"))


ROWS = [
    {"name": "ants", "family": "insects", "num_queries": 120},
    {"name": "oaks", "family": "trees", "num_queries": 80},
    {"name": "bees", "family": "insects", "num_queries": 200},
]
RNG = np.random.default_rng(0)
FIRST_Q, SECOND_Q = RNG.random(400).astype(np.float32), RNG.random(400).astype(np.float32) * 0.9
PARTS = {"ants": slice(0, 120), "oaks": slice(120, 200), "bees": slice(200, 400)}


def test_family_difference_is_mean() -> None:
    gaps = paired_gaps(FIRST_Q, SECOND_Q, ROWS)
    differences = {name: float((FIRST_Q - SECOND_Q)[part].mean()) for name, part in PARTS.items()}
    expected = differences | {
        "insects": (differences["ants"] + differences["bees"]) / 2,
        "trees": differences["oaks"],
        "mean": sum(differences.values()) / 3,
    }
    assert {name: gap.difference for name, gap in gaps.items()} == pytest.approx(expected, abs=1e-6)
    groups = {"ants": [0], "oaks": [1], "bees": [2], "insects": [0, 2], "trees": [1], "mean": [0, 1, 2]}
    assert group_datasets(ROWS) == groups


def test_collection_interval_matches_scipy() -> None:
    gap = paired_gaps(FIRST_Q, SECOND_Q, ROWS)["bees"]
    pair = (FIRST_Q[PARTS["bees"]], SECOND_Q[PARTS["bees"]])
    expected = bootstrap(pair, lambda a, b, axis=-1: (a - b).mean(axis), paired=True, method="percentile", rng=1)
    low, high = map(float, expected.confidence_interval)
    assert gap.interval == pytest.approx((low, high), abs=0.1 * (high - low))


def test_mean_interval_resamples_within_collections() -> None:
    gap = paired_gaps(FIRST_Q, SECOND_Q, ROWS)["mean"]
    strata_Q = np.repeat(np.arange(3), [row["num_queries"] for row in ROWS])
    low, high = percentile_interval(paired_bootstrap(FIRST_Q, SECOND_Q, strata_Q))
    assert gap.interval == pytest.approx((low, high), abs=0.1 * (high - low))
    assert gap.as_metrics("x") == {"x/difference": gap.difference, "x/low": gap.interval[0], "x/high": gap.interval[1]}


def test_equal_collections_are_resampled_apart() -> None:
    """One draw for both would make the interval of a family as wide as that of a collection."""
    rows = [{"name": name, "family": "f", "num_queries": 100} for name in "ab"]
    gaps = paired_gaps(np.tile(FIRST_Q[:100], 2), np.tile(SECOND_Q[:100], 2), rows)
    assert abs(np.corrcoef(gaps["a"].samples_R, gaps["b"].samples_R)[0, 1]) < 0.1


def test_unpaired_queries_are_refused() -> None:
    with pytest.raises(ValueError, match="399 queries"):
        paired_gaps(FIRST_Q, SECOND_Q[:-1], ROWS)
