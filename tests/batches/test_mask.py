"""The false-negative filter, against a plain double loop over queries and documents."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.batches.mask import (
    compute_batch_difficulty,
    compute_content_keys,
    compute_masked_fraction,
    mask_false_negatives,
)

Batch = tuple[np.ndarray, np.ndarray, float, int]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Scores (some equal, some negative; none 0, which a text of unknown tokens has), repeated texts, a margin."""
    num_pairs, num_hard = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    num_documents = num_pairs * (1 + num_hard)
    values = st.sampled_from([-0.75, -0.5, -0.25, 0.125, 0.25, 0.5])
    num_scores = num_pairs * num_documents
    scores = np.array(draw(st.lists(values, min_size=num_scores, max_size=num_scores)))
    keys = np.array(draw(st.lists(st.integers(-2, 3), min_size=num_documents, max_size=num_documents)))
    margin = draw(st.sampled_from([-0.25, 0.0, 0.5]))
    return scores.reshape(num_pairs, num_documents), keys, margin, num_hard


def masked_by_loop(scores: np.ndarray | None, keys: np.ndarray, margin: float, num_hard: int) -> np.ndarray:
    num_documents = len(keys)
    num_pairs = num_documents // (1 + num_hard)
    masked = np.zeros((num_pairs, num_documents), dtype=bool)
    for query in range(num_pairs):
        own = range(num_pairs + query * num_hard, num_pairs + (query + 1) * num_hard)
        for document in range(num_documents):
            if document == query:
                continue
            same = keys[document] == keys[query]
            near = scores is not None and scores[query, document] >= scores[query, query] + margin
            if near and not (scores[query].any() and scores[:, query].any() and scores[:, document].any()):
                near = False  # a text without a known token: all its scores are 0
            masked[query, document] = same or (near and document not in own)
    return masked


@given(batches())
def test_the_mask_is_that_of_a_plain_loop(batch: Batch) -> None:
    scores, keys, margin, num_hard = batch
    masked = mask_false_negatives(keys, scores, margin=margin, num_hard_negatives=num_hard)
    np.testing.assert_array_equal(masked, masked_by_loop(scores, keys, margin, num_hard))


@given(batches())
def test_the_positive_is_never_masked(batch: Batch) -> None:
    scores, keys, margin, num_hard = batch
    masked = mask_false_negatives(keys, scores, margin=margin, num_hard_negatives=num_hard)
    assert not np.diagonal(masked).any()


@given(batches())
def test_a_document_with_the_text_of_the_positive_is_never_a_negative(batch: Batch) -> None:
    _, keys, _, num_hard = batch
    masked = mask_false_negatives(keys, None, num_hard_negatives=num_hard)
    np.testing.assert_array_equal(masked, masked_by_loop(None, keys, 0.0, num_hard))


@given(batches(), st.floats(0, 1))
def test_a_larger_margin_masks_no_more(batch: Batch, more: float) -> None:
    scores, keys, margin, num_hard = batch
    few = mask_false_negatives(keys, scores, margin=margin + more, num_hard_negatives=num_hard)
    many = mask_false_negatives(keys, scores, margin=margin, num_hard_negatives=num_hard)
    assert not (few & ~many).any()


@given(batches(), st.sampled_from([-4.0, 2.0]))
def test_a_shift_of_all_scores_changes_nothing(batch: Batch, shift: float) -> None:
    scores, keys, margin, num_hard = batch
    masked = mask_false_negatives(keys, scores, margin=margin, num_hard_negatives=num_hard)
    moved = mask_false_negatives(keys, scores + shift, margin=margin, num_hard_negatives=num_hard)
    np.testing.assert_array_equal(masked, moved)


@settings(max_examples=30)
@given(batches())
def test_torch_and_numpy_say_the_same_share(batch: Batch) -> None:
    scores, keys, margin, num_hard = batch
    masked = mask_false_negatives(keys, scores, margin=margin, num_hard_negatives=num_hard)
    assert float(compute_masked_fraction(torch.from_numpy(masked))) == pytest.approx(
        float(compute_masked_fraction(masked))
    )


def test_the_masked_fraction_counts_negatives_only() -> None:
    masked = mask_false_negatives(np.array([5, 5, 6]), None)
    assert compute_masked_fraction(masked) == pytest.approx(2 / 6)


def test_difficulty_is_the_mean_similarity_to_the_negatives() -> None:
    scores = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, -0.4]])
    assert compute_batch_difficulty(scores) == pytest.approx((0.1 + 0.3 + 0.2 - 0.4) / 4)


def test_texts_that_differ_in_case_or_space_have_one_key() -> None:
    keys = compute_content_keys(["Deletes a  bucket.", "deletes a\nbucket. ", "Deletes a table."])
    assert keys.dtype == np.int64
    assert keys[0] == keys[1] != keys[2]


def test_columns_that_are_no_pairs_with_their_negatives_are_refused() -> None:
    with pytest.raises(ValueError, match="5 documents are no pairs with 1 hard negatives"):
        mask_false_negatives(np.arange(5), None, num_hard_negatives=1)
