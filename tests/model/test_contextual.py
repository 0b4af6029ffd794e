"""Promises of the two-stage model."""

from typing import Any

import numpy as np
import pytest
import torch

from repro.model.contextual import ContextualModel
from repro.model.texts import Texts, cut_by_length
from tests.model.samples import KINDS, random_texts, small_model
from tests.model.spelled_out import spelled_out_second_stage

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def contexts_of(model: ContextualModel, num_documents: int = 6, seed: int = 5) -> torch.Tensor:
    with torch.no_grad():
        return model.eval().first_stage(random_texts(num_documents, seed=seed))


@pytest.mark.parametrize("kind", ["nomic", "bert"])
@pytest.mark.parametrize("num_documents", [1, 6])
@pytest.mark.parametrize("residual", [False, True])
def test_the_second_stage_equals_its_specification_spelled_out(kind: str, num_documents: int, residual: bool) -> None:
    model = small_model(backbone=kind, residual=residual).eval()
    contexts, texts = contexts_of(model, num_documents), random_texts(5, seed=2)
    found = model.second_stage(texts, contexts)
    for row in range(5):
        ids = texts.ids_NS[row, : texts.mask_NS[row].sum()]
        torch.testing.assert_close(found[row], spelled_out_second_stage(model, ids, contexts), **CLOSE)


@pytest.mark.parametrize("kind", ["nomic", "bert"])
def test_contexts_may_come_in_any_order(kind: str) -> None:
    model = small_model(backbone=kind)
    contexts, texts = contexts_of(model), random_texts(4)
    shuffled = contexts[torch.tensor([3, 1, 5, 0, 2, 4])]
    torch.testing.assert_close(model.second_stage(texts, shuffled), model.second_stage(texts, contexts), **CLOSE)


def test_modernbert_keeps_the_positions_of_contexts() -> None:
    model = small_model(backbone="modernbert")
    contexts, texts = contexts_of(model), random_texts(4)
    difference = model.second_stage(texts, contexts.flip(0)) - model.second_stage(texts, contexts)
    assert difference.abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_the_text_matters_in_both_stages(kind: str) -> None:
    model = small_model(backbone=kind)
    contexts, texts = contexts_of(model), random_texts(1)
    turned = Texts(texts.ids_NS.flip(1), texts.mask_NS)
    assert (model.second_stage(turned, contexts) - model.second_stage(texts, contexts)).abs().max() > 1e-3
    assert (model.first_stage(turned) - model.first_stage(texts)).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_context_changes_the_vectors(kind: str) -> None:
    model = small_model(backbone=kind)
    texts = random_texts(4)
    difference = model.second_stage(texts, contexts_of(model, seed=6)) - model.second_stage(texts, contexts_of(model))
    assert difference.abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind: str) -> None:
    model = small_model(backbone=kind)
    contexts, texts = contexts_of(model), random_texts(6)
    whole = model.second_stage(texts, contexts)
    pieces = cut_by_length(texts, 2)
    torch.testing.assert_close(pieces.join([model.second_stage(p, contexts) for p in pieces.pieces]), whole, **CLOSE)


def test_pooling_ignores_what_comes_back_at_the_contexts() -> None:
    model = small_model().eval()
    texts, contexts = random_texts(3), contexts_of(model)
    real = model.second_stage_model.backbone.model.forward

    def spoil(*args: Any, **kwargs: Any) -> Any:
        output = real(*args, **kwargs)
        output.last_hidden_state[:, : len(contexts) + 3] = 1e6
        return output

    expected = model.second_stage(texts, contexts)
    model.second_stage_model.backbone.packs = False  # packed texts have nothing that comes back there
    model.second_stage_model.backbone.model.forward = spoil
    torch.testing.assert_close(model.second_stage(texts, contexts), expected)


def test_contexts_beyond_the_configured_number_are_cut() -> None:
    model = small_model()
    contexts, texts = contexts_of(model, 9), random_texts(3)
    torch.testing.assert_close(model.second_stage(texts, contexts), model.second_stage(texts, contexts[:6]))


@pytest.mark.parametrize("num_vectors", [1, 2])
def test_null_context_equals_every_slot_dropped(num_vectors: int) -> None:
    model = small_model(tokens_per_document=num_vectors)
    contexts, texts = contexts_of(model), random_texts(3)
    model.train()
    object.__setattr__(model.second_stage_model.config, "sequence_dropout", 1.0)
    dropped = model.second_stage(texts, contexts)
    model.eval()
    null = model.second_stage(texts, model.second_stage_model.null_contexts())
    torch.testing.assert_close(dropped, null)


def test_sequence_dropout_draws_for_each_text_and_slot_and_only_in_training() -> None:
    model = small_model(sequence_dropout=0.5)
    texts = random_texts(1)
    twins = Texts(texts.ids_NS.expand(64, -1), texts.mask_NS.expand(64, -1))
    contexts = contexts_of(model)
    assert torch.unique(model.eval().second_stage(twins, contexts).round(decimals=3), dim=0).shape[0] == 1
    assert torch.unique(model.train().second_stage(twins, contexts).round(decimals=3), dim=0).shape[0] > 30


def test_each_slot_is_null_as_often_as_the_model_says(monkeypatch: pytest.MonkeyPatch) -> None:
    model, seen = small_model(sequence_dropout=0.2).train(), list[torch.Tensor]()
    second, contexts = model.second_stage_model, contexts_of(model)
    real = second.backbone.encode_after
    monkeypatch.setattr(
        second.backbone, "encode_after", lambda given, *more: (seen.append(given), real(given, *more))[1]
    )
    model.train().second_stage(Texts(torch.ones(1000, 1).long(), torch.ones(1000, 1).long()), contexts)
    is_null_NC = (seen[0] == second.sequence_dropout_null_embedding).all(2)
    torch.testing.assert_close(seen[0][~is_null_NC], contexts.expand(1000, -1, -1)[~is_null_NC])
    assert (is_null_NC.float().mean(0) - 0.2).abs().max() < 4 * (0.2 * 0.8 / 1000) ** 0.5


def test_without_sequence_dropout_there_is_no_null_context() -> None:
    model = small_model(sequence_dropout=0.0)
    assert "second_stage_model.sequence_dropout_null_embedding" not in model.state_dict()
    with pytest.raises(ValueError, match="no null context"):
        model.set_context(None)


@pytest.mark.parametrize("num_vectors", [2, 3])
def test_a_context_document_may_give_several_vectors(num_vectors: int) -> None:
    model = small_model(tokens_per_document=num_vectors)
    contexts = contexts_of(model)
    assert contexts.shape == (6 * num_vectors, 16)
    assert model.second_stage(random_texts(2), contexts).shape == (2, 16)


def test_bert_says_when_contexts_and_text_are_too_long() -> None:
    model = small_model(backbone="bert", backbone_settings={"max_position_embeddings": 12})
    with pytest.raises(ValueError, match="exceed the 12"):
        model.second_stage(random_texts(2), contexts_of(model))
    with pytest.raises(ValueError, match=r"13 positions \(a single text\) exceed the 12"):
        model.first_stage(random_texts(2, longest=13))


def test_the_first_stage_has_weights_and_depth_of_its_own() -> None:
    model = small_model(num_layers=2, num_first_stage_layers=1)
    assert len(model.first_stage_model.embedder.model.layers) == 1
    assert len(model.second_stage_model.backbone.model.layers) == 2
    first = {id(weight) for weight in model.first_stage_model.parameters()}
    assert not first & {id(weight) for weight in model.second_stage_model.parameters()}


def test_the_gradient_reaches_the_first_stage() -> None:
    model = small_model().train()
    model(random_texts(3), random_texts(6, seed=4)).sum().backward()
    assert np.isfinite(float(model.first_stage_model.mlp[0].weight.grad.abs().sum()))
    assert float(model.first_stage_model.mlp[0].weight.grad.abs().sum()) > 0
