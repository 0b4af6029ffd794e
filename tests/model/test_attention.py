"""Attention shares against an explicit softmax, pooling, and the linear kernel against torch."""

import pytest
import torch
from torch import nn

from repro.model.attention import compute_attention_shares
from repro.model.contextual import ContextualModel
from repro.model.modeling_cde import segment_pool
from repro.model.packed import STEP, linear
from tests.model import spelled_out
from tests.model.samples import KINDS, build_small_model, draw_texts


def build_contextual(kind: str) -> ContextualModel:
    model = build_small_model(backbone=kind, num_layers=2)
    assert isinstance(model, ContextualModel)
    model.context_CE = torch.randn(model.config.num_contexts, model.config.hidden_size)
    return model.eval()


def test_shares_match_explicit_softmax(monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = build_contextual("bert"), draw_texts(4)
    shares_KN3, expected = compute_attention_shares(model, texts), []
    num_contexts, num_prefix = 6, 6 + 3

    def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, num_heads: int) -> torch.Tensor:
        """Store the shares of contexts, prompts and text, averaged over heads."""
        size, shares = queries.shape[1] // num_heads, []
        for head in range(num_heads):
            columns = slice(head * size, (head + 1) * size)
            weights = (queries[num_prefix:, columns] @ keys[:, columns].T / size**0.5).softmax(1)
            parts = (weights[:, :num_contexts], weights[:, num_contexts:num_prefix], weights[:, num_prefix:])
            shares.append(torch.stack([part.sum(1).mean() for part in parts]))
        expected.append(torch.stack(shares).mean(0))
        return plain(queries, keys, values, num_heads)

    plain = spelled_out.attend
    monkeypatch.setattr(spelled_out, "attend", attend)
    for row in range(texts.num_texts):
        ids = texts.ids_NS[row][texts.mask_NS[row].bool()]
        spelled_out.compute_second_stage(model, ids, model.context_CE)
        torch.testing.assert_close(shares_KN3[:, row], torch.stack(expected[-2:]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_computing_shares_changes_nothing(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shares sum to one, and do not depend on the size of the pieces."""
    model, texts = build_contextual(kind), draw_texts(3)
    backbone, vectors = model.second_stage_model.backbone, model.embed_texts(texts)
    config = backbone.model.config
    before = (config._attn_implementation, config.output_attentions)
    shares_KN3 = compute_attention_shares(model, texts)
    torch.testing.assert_close(shares_KN3.sum(2), torch.ones(2, 3))
    assert (shares_KN3 > 0).all()
    assert torch.equal(model.embed_texts(texts), vectors)
    assert (config._attn_implementation, config.output_attentions) == before and not model.training
    monkeypatch.setattr("repro.model.attention.MAX_ATTENTION_WEIGHTS", 1)
    torch.testing.assert_close(compute_attention_shares(model, texts), shares_KN3, atol=1e-5, rtol=1e-4)


def test_segments_cut_texts_at_their_length() -> None:
    texts = draw_texts(20, seed=1)
    states = torch.randn(20, 9, 4)
    vectors = segment_pool(states, texts.mask_NS, 3)
    for row, mask, segments in zip(states, texts.mask_NS, vectors, strict=True):
        length = int(mask.sum())
        for index in range(3):
            tokens = [i for i in range(length) if i * 3 // length == index] or list(range(length))
            torch.testing.assert_close(segments[index], row[tokens].mean(0))


@pytest.mark.parametrize(("num_rows", "has_bias"), [(STEP - 1, True), (STEP, False), (STEP + 44, True)])
def test_linear_matches_torch(num_rows: int, has_bias: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # also on processors where torch's own layer is faster
    monkeypatch.setattr("repro.model.packed.has_onednn", torch.backends.mkldnn.is_available)
    torch.manual_seed(0)
    layer, rows_TI = nn.Linear(24, 40, bias=has_bias), torch.randn(num_rows, 24, requires_grad=True)
    gradient_TO, leaves = torch.randn(num_rows, 40), [rows_TI, *layer.parameters()]
    expected_TO, output_TO = layer(rows_TI), linear(rows_TI, layer)
    torch.testing.assert_close(output_TO, expected_TO, rtol=1e-5, atol=1e-5)
    expected_gradients, gradients = (
        torch.autograd.grad(outputs, leaves, gradient_TO) for outputs in (expected_TO, output_TO)
    )
    torch.testing.assert_close(gradients, expected_gradients, rtol=1e-4, atol=1e-4)
    # the gradient of a sum is an expanded tensor, whose rows share memory
    (gradient_TI,) = torch.autograd.grad(linear(rows_TI, layer).sum(), rows_TI)
    torch.testing.assert_close(gradient_TI, layer.weight.sum(0).expand(num_rows, -1), rtol=1e-4, atol=1e-4)
