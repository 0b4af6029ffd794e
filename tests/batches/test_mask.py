"""The filter of false negatives and known positives, against loops over queries and documents."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.batches.mask import (
    KnownPositives,
    compute_batch_difficulty,
    compute_content_keys,
    compute_masked_fraction,
    find_links,
    make_batch_rng,
    mask_at_random,
    mask_directions,
    mask_false_negatives,
)
from repro.batches.negatives import mine_negatives
from repro.data.pairs import Row, write_pairs
from repro.pipeline.inputs import Inputs
from repro.seeds import make_rng
from repro.spec import base
from repro.train.batch_view import BatchViewer

Batch = tuple[np.ndarray, np.ndarray, float, int]


@st.composite
def draw_batches(draw: st.DrawFn) -> Batch:
    """Draw scores with ties, repeated texts and a margin. Texts without a known token have only scores of 0."""
    num_pairs, num_hard = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    num_documents = num_pairs * (1 + num_hard)
    values = st.sampled_from([-0.75, -0.5, -0.25, 0.125, 0.25, 0.5])
    num_scores = num_pairs * num_documents
    scores = np.array(draw(st.lists(values, min_size=num_scores, max_size=num_scores)))
    scores = scores.reshape(num_pairs, num_documents)
    scores[draw(st.lists(st.integers(0, num_pairs - 1), max_size=1))] = 0
    scores[:, draw(st.lists(st.integers(0, num_documents - 1), max_size=1))] = 0
    keys = np.array(draw(st.lists(st.integers(-2, 3), min_size=num_documents, max_size=num_documents)))
    margin = draw(st.sampled_from([-0.25, 0.0, 0.5]))
    return scores, keys, margin, num_hard


def mask_by_loop(scores: np.ndarray, keys: np.ndarray, margin: float, num_hard: int) -> np.ndarray:
    num_pairs, num_documents = scores.shape
    masked = np.zeros((num_pairs, num_documents), dtype=bool)
    for query in range(num_pairs):
        own_negatives = range(num_pairs + query * num_hard, num_pairs + (query + 1) * num_hard)
        for document in range(num_documents):
            is_copy = keys[document] == keys[query]
            is_near = scores[query, document] >= scores[query, query] + margin
            # a text without a known token is neither near nor has near documents
            is_known = scores[query].any() and scores[:, query].any() and scores[:, document].any()
            is_masked = is_copy or (is_near and is_known and document not in own_negatives)
            masked[query, document] = is_masked and document != query
    return masked


@settings(max_examples=200)
@given(draw_batches())
def test_mask_matches_plain_loop(batch: Batch) -> None:
    scores, keys, margin, num_hard = batch
    masked = mask_false_negatives(keys, scores, margin=margin, num_hard_negatives=num_hard)
    np.testing.assert_array_equal(masked, mask_by_loop(scores, keys, margin, num_hard))
    num_negatives = len(masked) * (len(keys) - 1)
    assert compute_masked_fraction(masked) == pytest.approx(masked.sum() / max(1, num_negatives))
    copies = mask_false_negatives(keys, None, num_hard_negatives=num_hard)
    np.testing.assert_array_equal(copies, mask_by_loop(np.zeros_like(scores), keys, 0.0, num_hard))


@settings(max_examples=200)
@given(draw_batches(), st.integers(0, 5))
def test_random_mask_has_same_counts(batch: Batch, seed: int) -> None:
    """The control keeps what the rules without a surrogate mask, and masks as many negatives per query as the filter."""
    scores, keys, margin, num_hard = batch
    masked = mask_false_negatives(keys, scores, margin=margin, num_hard_negatives=num_hard)
    unfiltered = mask_false_negatives(keys, None, num_hard_negatives=num_hard)
    rng = make_batch_rng(seed, np.arange(len(masked)))
    drawn = mask_at_random(masked, unfiltered, rng, num_hard_negatives=num_hard)
    assert (drawn >= unfiltered).all() and not np.diagonal(drawn).any()
    for pair in range(len(masked)):
        own = slice(len(masked) + pair * num_hard, len(masked) + (pair + 1) * num_hard)
        np.testing.assert_array_equal(drawn[pair, own], unfiltered[pair, own])
    np.testing.assert_array_equal(drawn.sum(1), masked.sum(1))


def test_random_mask_is_uniform() -> None:
    masked = np.zeros((6, 6), bool)
    masked[0, 1:3] = True
    unfiltered = np.zeros((6, 6), bool)
    draws = [mask_at_random(masked, unfiltered, make_batch_rng(0, np.array([n]))) for n in range(4000)]
    np.testing.assert_allclose(np.mean(draws, axis=0)[0], [0, 0.4, 0.4, 0.4, 0.4, 0.4], atol=0.03)
    again = mask_at_random(masked, unfiltered, make_batch_rng(0, np.array([7])))
    np.testing.assert_array_equal(again, draws[7])


def test_equal_scores_are_masked_despite_rounding() -> None:
    """The products of two equal vectors may differ in their last bit, by processor and number of threads."""
    own = np.float32(0.9)
    scores = np.array([[own, np.nextafter(own, np.float32(0)), own - np.float32(1e-4)]], np.float32)
    masked = mask_false_negatives(np.arange(3), scores, num_hard_negatives=2)
    assert not masked.any(), "its own hard negatives"
    scores = np.concatenate([scores, [[0.1, own, 0.1]], [[0.1, 0.1, own]]]).astype(np.float32)
    assert mask_false_negatives(np.arange(3), scores)[0].tolist() == [False, True, False]


def test_difficulty_is_mean_negative_similarity() -> None:
    scores = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, -0.4]])
    assert compute_batch_difficulty(scores) == pytest.approx((0.1 + 0.3 + 0.2 - 0.4) / 4)


def test_equal_texts_have_one_key() -> None:
    keys = compute_content_keys(["Deletes a  bucket.", "deletes a\nbucket. ", "Deletes a table."])
    assert keys[0] == keys[1] != keys[2]
    # the last letter decomposes when its case is folded
    for first, second in (("caf\u00e9", "cafe\u0301"), ("\u03b0", "\u03b0".upper())):
        composed, decomposed = compute_content_keys([first, second])
        assert composed == decomposed


QUERIES = ["how to mend a pump", "How to mend  a pump", "open a valve", "close a valve", "open a valve", "a fan"]
DOCUMENTS = ["replace its seal", "check the pump", "turn left", "turn right", "Turn  left", "check the pump"]


def find_known(queries: list[str], documents: list[str]) -> KnownPositives:
    keys = compute_content_keys(queries), compute_content_keys(documents)
    return KnownPositives(keys[0], *find_links(*keys))


def test_equal_documents_count_once() -> None:
    """Both pairs of the valve have the same document, so only the pump has several."""
    known = find_known(QUERIES, DOCUMENTS)
    assert (known.links_2L.shape, known.num_pairs_with_several) == ((2, 2), 2)
    assert "1 queries have several documents (2 of 6 pairs)" in known.describe()


def test_batches_mask_known_positives() -> None:
    """Known positives are masked as documents of other pairs and as hard negatives of their own pair.

    One query has more documents than the batch.
    """
    rng = make_rng(0, "test known positives")
    queries = [*(f"q{n}" for n in rng.integers(0, 12, 40)), *["common"] * 60]
    documents = [f"d{n}" for n in rng.integers(0, 60, 100)]
    known = find_known(queries, documents)
    pairs, negatives = np.arange(0, 100, 7), rng.integers(0, 100, 15)
    rows = np.concatenate([pairs, negatives])
    keys_M = compute_content_keys([documents[row] for row in rows])
    known_BM = known.find_in_batch(pairs, keys_M)
    masked = mask_false_negatives(keys_M, None, known_BM=known_BM, num_hard_negatives=1)
    positives = set(zip(queries, documents, strict=True))
    for position, pair in enumerate(pairs):
        for column, row in enumerate(rows):
            is_positive = (queries[pair], documents[row]) in positives
            assert masked[position, column] == (is_positive and column != position)


def test_known_positives_mask_queries_in_both_directions() -> None:
    """The queries a and b share no text, but a also has the document of b."""
    queries, documents, rows = ["a", "a", "b"], ["x", "y", "y"], np.array([0, 2])
    query_keys, document_keys = (compute_content_keys(texts)[rows] for texts in (queries, documents))
    known_BM = find_known(queries, documents).find_in_batch(rows, document_keys)
    masked_BM = mask_false_negatives(document_keys, None, known_BM=known_BM)
    masked = mask_directions(query_keys, document_keys, masked_BM, None, known_BM=known_BM)
    assert masked[:, 2:6].tolist() == [[False, True, False, True], [True, False, True, False]]


def test_own_text_is_no_negative() -> None:
    """A document with the text of a query, from a pair in which roles are swapped, is masked and never mined."""
    queries, documents = ["open a valve", "turn left", "a fan"], ["turn left", "Open a  valve", "a fan is a fan"]
    known = find_known(queries, documents)
    keys_M = compute_content_keys(documents)
    masked = mask_false_negatives(keys_M, None, known_BM=known.find_in_batch(np.arange(3), keys_M))
    assert masked.tolist() == [[False, True, False], [True, False, False], [False, False, False]]


@pytest.mark.parametrize("with_near", [True, False])
def test_mining_takes_no_known_positive(with_near: bool) -> None:
    rng = make_rng(1, "test known positives")
    vectors = rng.normal(size=(2, 60, 4)).astype(np.float32)
    queries, documents = [f"q{n // 3}" for n in range(60)], [f"d{n}" for n in range(60)]
    keys = compute_content_keys(documents)
    options: dict[str, Any] = {"num_hard_negatives": 5, "with_near": with_near, "seed": 0}
    domains = np.repeat([0, 1], 30)
    unfiltered = mine_negatives(*vectors, domains, keys, **options)
    filtered = mine_negatives(*vectors, domains, keys, known=find_known(queries, documents), **options)
    assert any(queries[row] == queries[pair] for pair in range(60) for row in unfiltered[pair])
    assert not any(queries[row] == queries[pair] for pair in range(60) for row in filtered[pair])
    scores = vectors[0] @ vectors[1].T
    for pair in range(60):
        others = [row for row in range(60) if domains[row] == domains[pair] and queries[row] != queries[pair]]
        nearest = sorted(others, key=lambda row: -scores[pair, row])
        below = [row for row in nearest if with_near or scores[pair, row] < scores[pair, pair] - 1e-6][:5]
        assert filtered[pair].tolist()[: len(below)] == below


def test_too_few_other_documents_are_refused() -> None:
    vectors, documents = np.eye(4, dtype=np.float32), ["a", "b", "c", "d"]
    known, keys = find_known(["q", "q", "q", "r"], documents), compute_content_keys(documents)
    with pytest.raises(ValueError, match="num_hard_negatives=2: a query has 1 documents"):
        mine_negatives(vectors, vectors, np.zeros(4), keys, num_hard_negatives=2, known=known, seed=0)


def list_rows_with_twins() -> list[Row]:
    """Return forty queries with two documents each, in one domain."""
    rows = []
    for device in ("pump", "valve", "motor", "cable", "fan", "lamp", "tank", "heater"):
        for fault in ("noise", "leak", "rust", "smell", "heat"):
            documents = (f"{fault} of the {device} needs a seal", f"check a {device} for {fault} first")
            rows += [Row(document, f"mend the {fault} of a {device}", document, "one", "one") for document in documents]
    return rows


@pytest.mark.parametrize("loss", ["infonce", "icl"])
def test_masked_run_has_no_conflict(loss: str) -> None:
    """With `mask`, no known positive is mined or kept as a negative. With `ignore`, the same pairs have both faults."""
    twins, conflicts, mined = list_rows_with_twins(), {}, {}
    for value in ("ignore", "mask"):
        run = base("smoke", loss=loss, known_positives=value, num_hard_negatives=1, filter="surrogate")
        inputs = Inputs(run)
        corpus = inputs.graph.corpus
        if not corpus.is_built:
            corpus.path.mkdir(parents=True)
            write_pairs(corpus.path / "train.arrow", twins)
            (corpus.path / "stage.json").write_text('{"files": {}}')
        inputs.build(lambda line: None)
        queries, documents = (inputs.pairs.texts(side, range(len(twins))) for side in ("query", "document"))
        assert inputs.negatives is not None
        mined[value] = sum(queries[row] == queries[pair] for pair, (row,) in enumerate(inputs.negatives))
        view = BatchViewer(inputs)(np.arange(24))
        is_twin = [
            [queries[row] == queries[other] and documents[row] != documents[other] for other in view.rows_M]
            for row in view.pairs_B
        ]
        related = np.argwhere(is_twin)
        conflicts[value] = sum(not view.masked_BM[b, m] for b, m in related)
        assert len(related) >= 24
        if loss == "icl" and value == "mask":
            assert all(view.masked[b, view.masked_BM.shape[1] + m] for b, m in related if m < 24)
    assert mined["ignore"] > 0 and conflicts["ignore"] > 0
    assert (mined["mask"], conflicts["mask"]) == (0, 0)
