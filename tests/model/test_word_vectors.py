"""Word vectors have torch's values and torch's gradient, whatever the pieces they are looked up in."""

import pytest
import torch
from torch import Tensor, nn

from repro.model.word_vectors import look_up_words

NUM_WORDS, WIDTH = 50, 7
IDS = [
    torch.randint(0, 9, shape, generator=torch.Generator().manual_seed(1)) for shape in ((4, 6), (3,), (2, 1), (0, 5))
]


def weights() -> nn.Parameter:
    return nn.Parameter(torch.randn(NUM_WORDS, WIDTH, generator=torch.Generator().manual_seed(2), dtype=torch.double))


def gradient_of(weight_VD: nn.Parameter, *, by_torch: bool, at_once: bool) -> Tensor:
    """The gradient of a sum over all pieces, in one backward or in one for each of them."""
    look_up = nn.functional.embedding if by_torch else look_up_words
    parts = [(look_up(ids, weight_VD).tanh() * (number + 1)).sum() for number, ids in enumerate(IDS)]
    for loss in [torch.stack(parts).sum()] if at_once else parts:
        loss.backward()
    assert weight_VD.grad is not None
    return weight_VD.grad


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize("has_gradient", [True, False])
def test_values_and_gradient_are_those_of_torch(at_once: bool, has_gradient: bool) -> None:
    ours, torchs = weights(), weights()
    for weight_VD in (ours, torchs) if has_gradient else ():
        weight_VD.grad = torch.ones_like(weight_VD)
    for ids in IDS:
        torch.testing.assert_close(look_up_words(ids, ours), nn.functional.embedding(ids, torchs), rtol=0, atol=0)
    expected = gradient_of(torchs, by_torch=True, at_once=at_once)
    found = gradient_of(ours, by_torch=False, at_once=at_once)
    assert not found.is_sparse and expected[:9].abs().min() > 0
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_the_gradient_reaches_the_weight_through_hooks_on_what_is_saved() -> None:
    """Such hooks, of checkpointing or of offloading, may give backward a copy of what was saved."""
    weight_VD = weights()
    with torch.autograd.graph.saved_tensors_hooks(torch.clone, torch.clone):
        found = gradient_of(weight_VD, by_torch=False, at_once=True)
    torch.testing.assert_close(found, gradient_of(weights(), by_torch=True, at_once=True), rtol=1e-12, atol=1e-12)


def test_weights_that_are_computed_are_left_to_torch() -> None:
    ours, torchs = weights(), weights()
    look_up_words(IDS[0], ours * 2).sum().backward()
    nn.functional.embedding(IDS[0], torchs * 2).sum().backward()
    torch.testing.assert_close(ours.grad, torchs.grad)


def test_frozen_weights_have_no_gradient() -> None:
    weight_VD = weights().requires_grad_(False)
    assert not look_up_words(IDS[0], weight_VD).requires_grad


def test_a_gradient_that_is_asked_for_in_another_way_is_not_zero_in_silence() -> None:
    weight_VD = weights()
    with pytest.raises(RuntimeError, match="not have been used"):
        torch.autograd.grad(look_up_words(IDS[0], weight_VD).sum(), weight_VD)
