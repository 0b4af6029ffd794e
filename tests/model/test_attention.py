"""Attention shares are those of a softmax written out by hand, and looking at them changes nothing."""

import pytest
import torch

from repro.model.attention import compute_attention_shares
from repro.model.contextual import ContextualModel
from repro.model.texts import Texts
from tests.model import spelled_out
from tests.model.samples import KINDS, random_texts, small_model


def contextual(kind: str, **changes: object) -> ContextualModel:
    model = small_model(backbone=kind, num_layers=2, **changes)
    assert isinstance(model, ContextualModel)
    model.context_CE = torch.randn(model.config.num_contexts, model.config.hidden_size)
    return model.eval()


@pytest.mark.parametrize("kind", ["nomic", "bert"])
def test_shares_are_those_of_a_softmax_written_out_for_each_head(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = contextual(kind), random_texts(4)
    assert model.context_CE is not None
    found_KN3, expected = compute_attention_shares(model, texts), []
    num_contexts, num_prefix = 6, 6 + 3

    def attend(queries: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, num_heads: int) -> torch.Tensor:
        size, paid = queries.shape[1] // num_heads, []
        for head in range(num_heads):
            columns = slice(head * size, (head + 1) * size)
            weights = (queries[num_prefix:, columns] @ keys[:, columns].T / size**0.5).softmax(1)
            parts = (weights[:, :num_contexts], weights[:, num_contexts:num_prefix], weights[:, num_prefix:])
            paid.append(torch.stack([part.sum(1).mean() for part in parts]))
        expected.append(torch.stack(paid).mean(0))
        return plain(queries, keys, values, num_heads)

    plain = spelled_out.attend
    monkeypatch.setattr(spelled_out, "attend", attend)
    for row in range(texts.num_texts):
        ids = texts.ids_NS[row][texts.mask_NS[row].bool()]
        spelled_out.spelled_out_second_stage(model, ids, model.context_CE)
        torch.testing.assert_close(found_KN3[:, row], torch.stack(expected[-2:]), atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_the_three_shares_sum_to_one_in_pieces_of_any_size(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, texts = contextual(kind), random_texts(5)
    shares_KN3 = compute_attention_shares(model, texts)
    torch.testing.assert_close(shares_KN3.sum(2), torch.ones(2, 5))
    assert (shares_KN3 > 0).all()
    monkeypatch.setattr("repro.model.attention.MOST_WEIGHTS", 1)
    torch.testing.assert_close(compute_attention_shares(model, texts), shares_KN3, atol=1e-5, rtol=1e-4)


def test_equal_attention_pays_each_part_by_its_size() -> None:
    model = contextual("nomic")
    with torch.no_grad():
        for layer in model.second_stage_model.backbone.model.layers:
            layer.self_attn.q_proj.weight.zero_()
    texts = Texts(torch.ones(2, 7, dtype=torch.long), torch.ones(2, 7, dtype=torch.long))
    expected = torch.tensor([6, 3, 7]) / 16
    torch.testing.assert_close(compute_attention_shares(model, texts), expected.expand(2, 2, 3))


@pytest.mark.parametrize("kind", KINDS)
def test_looking_leaves_the_vectors_and_the_fast_attention_as_they_were(kind: str) -> None:
    model, texts = contextual(kind), random_texts(3)
    config = model.second_stage_model.backbone.model.config
    before = (model.embed_texts(texts), config._attn_implementation, config.output_attentions)
    compute_attention_shares(model, texts)
    assert torch.equal(model.embed_texts(texts), before[0])
    assert (config._attn_implementation, config.output_attentions) == before[1:] and not model.training


def test_without_a_context_there_is_nothing_to_look_at_and_a_model_in_training_stays_so() -> None:
    model = contextual("nomic").train()
    compute_attention_shares(model, random_texts(2))
    model.context_CE = None
    with pytest.raises(ValueError, match="no context is set"):
        compute_attention_shares(model, random_texts(2))
    assert all(module.training for module in model.modules())


@pytest.mark.parametrize("kind", KINDS)
def test_shares_of_a_compiled_backbone_are_those_of_a_plain_one_and_it_stays_compiled(kind: str) -> None:
    model, texts = contextual(kind), random_texts(3)
    backbone, expected = model.second_stage_model.backbone, compute_attention_shares(model, texts)
    backbone.compile_forward("eager")
    compiled = backbone._compiled
    torch.testing.assert_close(compute_attention_shares(model, texts), expected)
    assert backbone._compiled is compiled is not None
