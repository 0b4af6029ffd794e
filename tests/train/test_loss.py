"""Promises of the loss."""

from collections.abc import Sequence

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.train.loss import info_nce


def spelled_out(
    queries: torch.Tensor,
    documents: torch.Tensor,
    temperature: float,
    targets: Sequence[int],
    masked: torch.Tensor | None,
) -> tuple[torch.Tensor, float]:
    """Cross entropy with a loop per query; accuracy likewise."""
    losses, hits = [], []
    for row, (query, target) in enumerate(zip(queries, targets, strict=True)):
        kept = [m for m in range(len(documents)) if m == target or not (masked is not None and masked[row][m])]
        scores = {m: torch.cosine_similarity(query, documents[m], dim=0) / temperature for m in kept}
        losses.append(torch.logsumexp(torch.stack(list(scores.values())), 0) - scores[target])
        hits.append(max(scores, key=lambda m: float(scores[m])) == target)
    return torch.stack(losses).mean(), sum(hits) / len(hits)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 3), st.integers(0, 10_000), st.booleans(), st.sampled_from([0.02, 0.5]))
def test_the_loss_equals_explicit_cross_entropy(
    num_pairs: int, num_hard: int, seed: int, with_mask: bool, temperature: float
) -> None:
    generator = torch.Generator().manual_seed(seed)
    queries = torch.randn(num_pairs, 5, generator=generator, dtype=torch.float64).float()
    documents = torch.randn(num_pairs * (1 + num_hard), 5, generator=generator)
    masked = torch.rand(num_pairs, len(documents), generator=generator) < 0.4 if with_mask else None
    found = info_nce(queries, documents, temperature=temperature, masked_QM=masked)
    expected, accuracy = spelled_out(queries, documents, temperature, range(num_pairs), masked)
    torch.testing.assert_close(found.loss, expected, rtol=1e-4, atol=1e-4)
    assert float(found.accuracy) == pytest.approx(accuracy)


def test_the_positive_is_never_masked() -> None:
    queries, documents = torch.randn(3, 4), torch.randn(3, 4)
    found = info_nce(queries, documents, masked_QM=torch.ones(3, 3, dtype=torch.bool))
    assert float(found.loss) == 0 and float(found.accuracy) == 1 and float(found.masked_fraction) == 1


def test_the_masked_fraction_is_of_the_negatives() -> None:
    masked = torch.tensor([[True, True, False], [False, False, False]])
    assert float(info_nce(torch.randn(2, 4), torch.randn(3, 4), masked_QM=masked).masked_fraction) == 0.25


def test_a_masked_document_gets_no_gradient() -> None:
    queries, documents = torch.randn(2, 4), torch.randn(2, 4, requires_grad=True)
    info_nce(queries, documents, masked_QM=torch.tensor([[False, True], [False, False]])).loss.backward()
    only_second = documents.detach().flip(0).requires_grad_()
    info_nce(queries[1:], only_second).loss.backward()
    torch.testing.assert_close(documents.grad, only_second.grad.flip(0) / 2)


def test_the_scale_of_the_vectors_does_not_matter() -> None:
    queries, documents = torch.randn(4, 3), torch.randn(4, 3)
    torch.testing.assert_close(info_nce(queries * 7, documents * 0.1).loss, info_nce(queries, documents).loss)


def test_shapes_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="3 queries but 2 documents"):
        info_nce(torch.randn(3, 4), torch.randn(2, 4))
    with pytest.raises(ValueError, match=r"\(2, 2\), not \(2, 3\)"):
        info_nce(torch.randn(2, 4), torch.randn(3, 4), masked_QM=torch.ones(2, 2, dtype=torch.bool))
