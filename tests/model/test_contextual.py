"""The two-stage model against its specification: positions, padding, dropped contexts and frequency pooling."""

from typing import Any

import numpy as np
import pytest
import torch

from repro.model.contextual import ContextualModel
from repro.model.frequency import LOGIT_SCALE, FrequencyWeights, make_no_words, mark_words
from repro.model.texts import Texts, cut_by_length
from tests.model.samples import KINDS, WORDS, build_small_model, draw_texts, make_small_config
from tests.model.spelled_out import compute_second_stage

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def compute_contexts(model: ContextualModel, num_documents: int = 6, seed: int = 5) -> torch.Tensor:
    with torch.no_grad():
        return model.eval().first_stage(draw_texts(num_documents, seed=seed))


@pytest.mark.parametrize("kind", ["nomic", "bert"])
@pytest.mark.parametrize("num_documents", [1, 6])
@pytest.mark.parametrize("residual", [False, True])
def test_second_stage_equals_specification(kind: str, num_documents: int, residual: bool) -> None:
    model = build_small_model(backbone=kind, residual=residual).eval()
    contexts, texts = compute_contexts(model, num_documents), draw_texts(5, seed=2)
    vectors = model.second_stage(texts, contexts)
    for row in range(5):
        ids = texts.ids_NS[row, : texts.mask_NS[row].sum()]
        torch.testing.assert_close(vectors[row], compute_second_stage(model, ids, contexts), **CLOSE)


@pytest.mark.parametrize("kind", ["nomic", "bert"])
def test_contexts_may_come_in_any_order(kind: str) -> None:
    model = build_small_model(backbone=kind)
    contexts, texts = compute_contexts(model), draw_texts(4)
    shuffled = contexts[torch.tensor([3, 1, 5, 0, 2, 4])]
    torch.testing.assert_close(model.second_stage(texts, shuffled), model.second_stage(texts, contexts), **CLOSE)


def test_modernbert_contexts_have_positions() -> None:
    model = build_small_model(backbone="modernbert")
    contexts, texts = compute_contexts(model), draw_texts(4)
    difference = model.second_stage(texts, contexts.flip(0)) - model.second_stage(texts, contexts)
    assert difference.abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_token_order_matters_in_both_stages(kind: str) -> None:
    model = build_small_model(backbone=kind)
    contexts, texts = compute_contexts(model), draw_texts(1)
    turned = Texts(texts.ids_NS.flip(1), texts.mask_NS)
    assert (model.second_stage(turned, contexts) - model.second_stage(texts, contexts)).abs().max() > 1e-3
    assert (model.first_stage(turned) - model.first_stage(texts)).abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_context_changes_the_vectors(kind: str) -> None:
    model = build_small_model(backbone=kind)
    texts = draw_texts(4)
    difference = model.second_stage(texts, compute_contexts(model, seed=6)) - model.second_stage(
        texts, compute_contexts(model)
    )
    assert difference.abs().max() > 1e-3


@pytest.mark.parametrize("kind", KINDS)
def test_padding_changes_nothing(kind: str) -> None:
    model = build_small_model(backbone=kind)
    contexts, texts = compute_contexts(model), draw_texts(6)
    expected = model.second_stage(texts, contexts)
    pieces = cut_by_length(texts, 2)
    torch.testing.assert_close(pieces.join([model.second_stage(p, contexts) for p in pieces.pieces]), expected, **CLOSE)


def test_pooling_skips_context_positions() -> None:
    model = build_small_model().eval()
    texts, contexts = draw_texts(3), compute_contexts(model)
    real = model.second_stage_model.backbone.model.forward

    def spoil(*args: Any, **kwargs: Any) -> Any:
        output = real(*args, **kwargs)
        output.last_hidden_state[:, : len(contexts) + 3] = 1e6
        return output

    expected = model.second_stage(texts, contexts)
    model.second_stage_model.backbone.packs = False  # packing does not call this forward
    model.second_stage_model.backbone.model.forward = spoil
    torch.testing.assert_close(model.second_stage(texts, contexts), expected)


def test_further_contexts_are_cut() -> None:
    model = build_small_model()
    contexts, texts = compute_contexts(model, 9), draw_texts(3)
    torch.testing.assert_close(model.second_stage(texts, contexts), model.second_stage(texts, contexts[:6]))


@pytest.mark.parametrize("num_vectors", [1, 2])
def test_null_context_equals_every_slot_dropped(num_vectors: int) -> None:
    model = build_small_model(tokens_per_document=num_vectors)
    contexts, texts = compute_contexts(model), draw_texts(3)
    model.train()
    object.__setattr__(model.second_stage_model.config, "sequence_dropout", 1.0)
    dropped = model.second_stage(texts, contexts)
    model.eval()
    null = model.second_stage(texts, model.second_stage_model.null_contexts())
    torch.testing.assert_close(dropped, null)


def test_dropout_draws_per_text_and_slot() -> None:
    model = build_small_model(sequence_dropout=0.5)
    texts = draw_texts(1)
    twins = Texts(texts.ids_NS.expand(64, -1), texts.mask_NS.expand(64, -1))
    contexts = compute_contexts(model)
    assert torch.unique(model.eval().second_stage(twins, contexts).round(decimals=3), dim=0).shape[0] == 1
    assert torch.unique(model.train().second_stage(twins, contexts).round(decimals=3), dim=0).shape[0] > 30


def test_slots_are_dropped_at_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    model, dropped_contexts = build_small_model(sequence_dropout=0.2).train(), list[torch.Tensor]()
    second, contexts = model.second_stage_model, compute_contexts(model)
    real = second.backbone.encode_after
    monkeypatch.setattr(
        second.backbone,
        "encode_after",
        lambda contexts_NCD, *args: (dropped_contexts.append(contexts_NCD), real(contexts_NCD, *args))[1],
    )
    model.train().second_stage(Texts(torch.ones(1000, 1).long(), torch.ones(1000, 1).long()), contexts)
    is_null_NC = (dropped_contexts[0] == second.sequence_dropout_null_embedding).all(2)
    torch.testing.assert_close(dropped_contexts[0][~is_null_NC], contexts.expand(1000, -1, -1)[~is_null_NC])
    assert (is_null_NC.float().mean(0) - 0.2).abs().max() < 4 * (0.2 * 0.8 / 1000) ** 0.5


def test_null_context_needs_dropout() -> None:
    model = build_small_model(sequence_dropout=0.0)
    assert "second_stage_model.sequence_dropout_null_embedding" not in model.state_dict()
    with pytest.raises(ValueError, match="no null context"):
        model.set_context(None)


@pytest.mark.parametrize("num_vectors", [2, 3])
def test_context_may_give_several_vectors(num_vectors: int) -> None:
    model = build_small_model(tokens_per_document=num_vectors)
    contexts = compute_contexts(model)
    assert contexts.shape == (6 * num_vectors, 16)
    assert model.second_stage(draw_texts(2), contexts).shape == (2, 16)


def test_bert_refuses_too_long_input() -> None:
    model = build_small_model(backbone="bert", backbone_settings={"max_position_embeddings": 12})
    with pytest.raises(ValueError, match="exceed the 12"):
        model.second_stage(draw_texts(2), compute_contexts(model))
    with pytest.raises(ValueError, match=r"13 positions \(a single text\) exceed the 12"):
        model.first_stage(draw_texts(2, longest=13))


def test_first_stage_has_own_weights() -> None:
    model = build_small_model(num_layers=2, num_first_stage_layers=1)
    assert len(model.first_stage_model.embedder.model.layers) == 1
    assert len(model.second_stage_model.backbone.model.layers) == 2
    first = {id(weight) for weight in model.first_stage_model.parameters()}
    assert not first & {id(weight) for weight in model.second_stage_model.parameters()}


def test_gradient_reaches_first_stage() -> None:
    model = build_small_model().train()
    model(draw_texts(3), draw_texts(6, seed=4)).sum().backward()
    assert 0 < float(model.first_stage_model.mlp[0].weight.grad.abs().sum()) < np.inf


FREQUENCY_CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def test_word_weight_follows_document_share() -> None:
    weights, texts, documents = FrequencyWeights(4).eval(), draw_texts(3), draw_texts(5, seed=1, longest=20)
    torch.nn.init.normal_(weights.logits_K, std=0.1)
    token_weights = weights(texts, mark_words(documents, WORDS))
    words_of = [set(ids[mask.bool()].tolist()) for ids, mask in zip(documents.ids_NS, documents.mask_NS, strict=True)]
    for row, (ids, mask) in enumerate(zip(texts.ids_NS.tolist(), texts.mask_NS.tolist(), strict=True)):
        for column, (word, real) in enumerate(zip(ids, mask, strict=True)):
            position = 4 * sum(word in words for words in words_of) / 5
            below = min(int(position), 3)
            expected = torch.lerp(weights.logits_K[below], weights.logits_K[below + 1], position - below)
            torch.testing.assert_close(
                token_weights[row, column], torch.exp(LOGIT_SCALE * expected) * real, **FREQUENCY_CLOSE
            )


def test_null_vectors_are_no_documents() -> None:
    weights, texts = FrequencyWeights(4).eval(), draw_texts(3)
    torch.nn.init.normal_(weights.logits_K, std=0.1)
    documents, nulls = mark_words(draw_texts(2, seed=1), WORDS), make_no_words(2, WORDS, torch.device("cpu"))
    torch.testing.assert_close(weights(texts, torch.cat([documents, nulls])), weights(texts, documents))
    expected = torch.exp(LOGIT_SCALE * weights.logits_K[-1]) * texts.mask_NS
    torch.testing.assert_close(weights(texts, nulls), expected)


def test_frequency_pooling_starts_as_mean() -> None:
    mean, frequency = build_small_model(), build_small_model(pooling="frequency")
    frequency.load_state_dict(mean.state_dict(), strict=False)
    torch.nn.init.zeros_(frequency.second_stage_model.frequency_weights.logits_K)
    texts, documents = draw_texts(4), draw_texts(6, seed=2)
    torch.testing.assert_close(frequency.eval()(texts, documents), mean.eval()(texts, documents), **FREQUENCY_CLOSE)


def test_moved_words_move_no_vector() -> None:
    model = build_small_model(pooling="frequency").eval()
    texts, documents = draw_texts(4), draw_texts(6, seed=2)
    vectors = model.first_stage(documents)
    moved = torch.cat([vectors[:, :16], model.first_stage(draw_texts(6, seed=3))[:, 16:]], dim=1)
    shuffled = torch.cat([vectors[:, :16], vectors[:, 16:].flip(0)], dim=1)
    expected = model.second_stage(texts, vectors)
    torch.testing.assert_close(model.second_stage(texts, shuffled), expected, **FREQUENCY_CLOSE)
    assert (model.second_stage(texts, moved) - expected).abs().max() > 1e-3


def test_light_words_are_averaged() -> None:
    model = build_small_model(pooling="frequency", num_layers=1).eval()
    logits = model.second_stage_model.frequency_weights.logits_K
    texts, documents = draw_texts(3, longest=2), draw_texts(6, seed=2)
    results = []
    for logit in (0.0, -1.0):
        torch.nn.init.constant_(logits, logit)
        results.append(model(texts, documents))
    torch.testing.assert_close(results[0], results[1], **FREQUENCY_CLOSE)


def test_null_context_is_learned() -> None:
    model = build_small_model(pooling="frequency")
    assert model.second_stage_model.null_contexts().shape == (6, 16 + WORDS)
    texts = draw_texts(1)
    twins = Texts(texts.ids_NS.expand(64, -1), texts.mask_NS.expand(64, -1))
    weights = model.second_stage_model.frequency_weights
    token_weights = weights.train()(twins, mark_words(draw_texts(6, seed=2), WORDS))
    assert len(torch.unique(token_weights.round(decimals=4), dim=0)) == 2
    model.set_context(None)
    assert model.context_CE.shape == (6, 16 + WORDS)


def test_frequency_pooling_needs_contexts() -> None:
    with pytest.raises(ValueError, match="pooling='frequency': only for a contextual model"):
        make_small_config(architecture="biencoder", pooling="frequency")
    with pytest.raises(ValueError, match="pooling='median' is unknown"):
        make_small_config(pooling="median")
