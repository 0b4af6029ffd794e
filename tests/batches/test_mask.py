"""The false-negative filter, against a plain double loop over queries and documents."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.batches.mask import batch_difficulty, content_keys, mask_false_negatives, masked_fraction

Batch = tuple[np.ndarray, np.ndarray, np.ndarray, float, int]


@st.composite
def batches(draw: st.DrawFn) -> Batch:
    """Scores (some equal, some negative), a slice of the batch's queries, repeated texts, hard negatives, a margin."""
    num_pairs, num_hard = draw(st.integers(1, 5)), draw(st.integers(0, 3))
    num_documents = num_pairs * (1 + num_hard)
    first = draw(st.integers(0, num_pairs - 1))
    positives = np.arange(first, draw(st.integers(first + 1, num_pairs)))
    values = st.sampled_from([-0.75, -0.5, -0.25, 0.0, 0.25, 0.5])
    num_scores = len(positives) * num_documents
    scores = np.array(draw(st.lists(values, min_size=num_scores, max_size=num_scores)))
    keys = np.array(draw(st.lists(st.integers(-2, 3), min_size=num_documents, max_size=num_documents)))
    margin = draw(st.sampled_from([-0.25, 0.0, 0.5]))
    return scores.reshape(len(positives), num_documents), positives, keys, margin, num_hard


def masked_by_loop(
    scores: np.ndarray | None, positives: np.ndarray, keys: np.ndarray, margin: float, num_hard: int
) -> np.ndarray:
    num_documents = len(keys)
    num_pairs = num_documents // (1 + num_hard)
    masked = np.zeros((len(positives), num_documents), dtype=bool)
    for query, positive in enumerate(positives):
        own = range(num_pairs + positive * num_hard, num_pairs + (positive + 1) * num_hard)
        for document in range(num_documents):
            if document == positive:
                continue
            same = keys[document] == keys[positive]
            near = scores is not None and scores[query, document] >= scores[query, positive] + margin
            masked[query, document] = same or (near and document not in own)
    return masked


@given(batches())
def test_the_mask_is_that_of_a_plain_loop(batch: Batch) -> None:
    scores, positives, keys, margin, num_hard = batch
    masked = mask_false_negatives(positives, keys, scores_QM=scores, margin=margin, num_hard_negatives=num_hard)
    np.testing.assert_array_equal(masked, masked_by_loop(scores, positives, keys, margin, num_hard))


@given(batches())
def test_the_positive_is_never_masked(batch: Batch) -> None:
    scores, positives, keys, margin, num_hard = batch
    masked = mask_false_negatives(positives, keys, scores_QM=scores, margin=margin, num_hard_negatives=num_hard)
    assert not masked[np.arange(len(positives)), positives].any()


@given(batches())
def test_a_document_with_the_text_of_the_positive_is_never_a_negative(batch: Batch) -> None:
    _, positives, keys, _, num_hard = batch
    masked = mask_false_negatives(positives, keys, scores_QM=None, num_hard_negatives=num_hard)
    np.testing.assert_array_equal(masked, masked_by_loop(None, positives, keys, 0.0, num_hard))


@given(batches(), st.floats(0, 1))
def test_a_larger_margin_masks_no_more(batch: Batch, more: float) -> None:
    scores, positives, keys, margin, num_hard = batch
    few = mask_false_negatives(positives, keys, scores_QM=scores, margin=margin + more, num_hard_negatives=num_hard)
    many = mask_false_negatives(positives, keys, scores_QM=scores, margin=margin, num_hard_negatives=num_hard)
    assert not (few & ~many).any()


@given(batches(), st.sampled_from([-4.0, 2.0]))
def test_a_shift_of_all_scores_changes_nothing(batch: Batch, shift: float) -> None:
    scores, positives, keys, margin, num_hard = batch
    masked = mask_false_negatives(positives, keys, scores_QM=scores, margin=margin, num_hard_negatives=num_hard)
    moved = mask_false_negatives(positives, keys, scores_QM=scores + shift, margin=margin, num_hard_negatives=num_hard)
    np.testing.assert_array_equal(masked, moved)


@settings(max_examples=30)
@given(batches())
def test_torch_and_numpy_agree(batch: Batch) -> None:
    scores, positives, keys, margin, num_hard = batch
    ours = mask_false_negatives(positives, keys, scores_QM=scores, margin=margin, num_hard_negatives=num_hard)
    tensors = [torch.from_numpy(array) for array in (positives, keys, scores)]
    theirs = mask_false_negatives(
        tensors[0], tensors[1], scores_QM=tensors[2], margin=margin, num_hard_negatives=num_hard
    )
    assert theirs.dtype == torch.bool
    np.testing.assert_array_equal(ours, theirs.numpy())
    assert masked_fraction(ours) == pytest.approx(masked_fraction(theirs))


def test_the_masked_fraction_counts_negatives_only() -> None:
    masked = mask_false_negatives(np.arange(3), np.array([5, 5, 6]), scores_QM=None)
    assert masked_fraction(masked) == pytest.approx(2 / 6)


def test_difficulty_is_the_mean_similarity_to_the_negatives() -> None:
    scores = np.array([[0.9, 0.1, 0.3], [0.2, 0.8, -0.4]])
    assert batch_difficulty(scores, np.array([0, 1])) == pytest.approx((0.1 + 0.3 + 0.2 - 0.4) / 4)
    assert batch_difficulty(torch.from_numpy(scores), torch.tensor([0, 1])) == pytest.approx(0.05)


def test_texts_that_differ_in_case_or_space_have_one_key() -> None:
    keys = content_keys(["Deletes a  bucket.", "deletes a\nbucket. ", "Deletes a table."])
    assert keys.dtype == np.int64
    assert keys[0] == keys[1] != keys[2]


def test_columns_that_are_no_pairs_with_their_negatives_are_refused() -> None:
    with pytest.raises(ValueError, match="5 documents are no pairs with 1 hard negatives"):
        mask_false_negatives(np.arange(2), np.arange(5), scores_QM=None, num_hard_negatives=1)
