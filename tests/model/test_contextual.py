"""The two-stage model against its specification: positions, padding, dropped contexts and frequency pooling."""

from typing import Any

import pytest
import torch

from repro.model.contextual import ContextualModel
from repro.model.modeling_cde import FREQUENCY_RATE, FrequencyWeights, make_no_words, mark_words
from repro.model.texts import Texts
from tests.model.samples import WORDS, build_small_model, draw_texts
from tests.model.spelled_out import compute_second_stage

CLOSE = {"rtol": 1e-4, "atol": 1e-5}


def compute_contexts(model: ContextualModel, num_documents: int = 6) -> torch.Tensor:
    with torch.no_grad():
        return model.eval().first_stage(draw_texts(num_documents, seed=5))


@pytest.mark.parametrize(("num_documents", "residual"), [(1, False), (6, True)])
def test_second_stage_equals_specification(num_documents: int, residual: bool) -> None:
    """tests/interop/test_official.py has the other backbones."""
    model = build_small_model(backbone="bert", residual=residual).eval()
    contexts, texts = compute_contexts(model, num_documents), draw_texts(5, seed=2)
    vectors = model.second_stage(texts, contexts)
    for row in range(5):
        ids = texts.ids_NS[row, : texts.mask_NS[row].sum()]
        torch.testing.assert_close(vectors[row], compute_second_stage(model, ids, contexts), **CLOSE)


@pytest.mark.parametrize("num_vectors", [1, 2, 3])
def test_further_contexts_are_cut(num_vectors: int) -> None:
    """Each of six documents gives `num_vectors` vectors."""
    model = build_small_model(tokens_per_document=num_vectors)
    contexts, texts = compute_contexts(model, 9), draw_texts(3)
    assert contexts.shape == (9 * num_vectors, 16)
    expected = model.second_stage(texts, contexts[: 6 * num_vectors])
    torch.testing.assert_close(model.second_stage(texts, contexts), expected)


def test_slots_are_dropped_at_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each slot of each text is replaced by the null vector independently."""
    model, batches = build_small_model(sequence_dropout=0.2), list[torch.Tensor]()
    second, contexts = model.second_stage_model, compute_contexts(model)
    read_after = second.backbone.read_after

    def store_contexts(contexts_NCD: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        batches.append(contexts_NCD)
        return read_after(contexts_NCD, *args, **kwargs)

    monkeypatch.setattr(second.backbone, "read_after", store_contexts)
    model.train().second_stage(Texts(torch.ones(1000, 1).long(), torch.ones(1000, 1).long()), contexts)
    (contexts_NCD,) = batches
    is_null_NC = (contexts_NCD == second.sequence_dropout_null_embedding).all(2)
    torch.testing.assert_close(contexts_NCD[~is_null_NC], contexts.expand(1000, -1, -1)[~is_null_NC])
    assert (is_null_NC.float().mean(0) - 0.2).abs().max() < 4 * (0.2 * 0.8 / 1000) ** 0.5
    assert torch.corrcoef(is_null_NC.T.float()).fill_diagonal_(0).abs().max() < 4 / 1000**0.5


FREQUENCY_CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def test_word_weight_follows_document_share() -> None:
    weights, texts, documents = FrequencyWeights(4).eval(), draw_texts(3), draw_texts(5, seed=1, longest=20)
    torch.nn.init.normal_(weights.logits_K, std=0.1)
    token_weights = weights(*texts, mark_words(*documents, WORDS))
    document_words = [
        set(ids[mask.bool()].tolist()) for ids, mask in zip(documents.ids_NS, documents.mask_NS, strict=True)
    ]
    for row, (ids, mask) in enumerate(zip(texts.ids_NS.tolist(), texts.mask_NS.tolist(), strict=True)):
        for column, (word, is_token) in enumerate(zip(ids, mask, strict=True)):
            position = 4 * sum(word in words for words in document_words) / 5
            below = min(int(position), 3)
            expected = torch.lerp(weights.logits_K[below], weights.logits_K[below + 1], position - below)
            weight = torch.exp(FREQUENCY_RATE * expected) * is_token
            torch.testing.assert_close(token_weights[row, column], weight, **FREQUENCY_CLOSE)


def test_null_vectors_are_no_documents() -> None:
    weights, texts = FrequencyWeights(4).eval(), draw_texts(3)
    torch.nn.init.normal_(weights.logits_K, std=0.1)
    documents, nulls = mark_words(*draw_texts(2, seed=1), WORDS), make_no_words(2, WORDS, torch.device("cpu"))
    torch.testing.assert_close(weights(*texts, torch.cat([documents, nulls])), weights(*texts, documents))
    expected = torch.exp(FREQUENCY_RATE * weights.logits_K[-1]) * texts.mask_NS
    torch.testing.assert_close(weights(*texts, nulls), expected)


def test_moved_words_move_no_vector() -> None:
    model = build_small_model(pooling="frequency").eval()
    texts, documents = draw_texts(4), draw_texts(6, seed=2)
    vectors = model.first_stage(documents)
    moved = torch.cat([vectors[:, :16], model.first_stage(draw_texts(6, seed=3))[:, 16:]], dim=1)
    shuffled = torch.cat([vectors[:, :16], vectors[:, 16:].flip(0)], dim=1)
    expected = model.second_stage(texts, vectors)
    torch.testing.assert_close(model.second_stage(texts, shuffled), expected, **FREQUENCY_CLOSE)
    assert (model.second_stage(texts, moved) - expected).abs().max() > 1e-3


@pytest.mark.parametrize("logit", [0.0, -1.0])
def test_equal_word_weights_give_the_mean(logit: float) -> None:
    """Weights start at one. Small weights of all words are normalised, too."""
    mean, frequency = build_small_model().eval(), build_small_model(pooling="frequency").eval()
    frequency.load_state_dict(mean.state_dict(), strict=False)
    torch.nn.init.constant_(frequency.second_stage_model.frequency_weights.logits_K, logit)
    texts, documents = draw_texts(4), draw_texts(6, seed=2)
    torch.testing.assert_close(frequency(texts, documents), mean(texts, documents), **FREQUENCY_CLOSE)


def test_some_texts_train_the_null_weight() -> None:
    """In training, a text is sometimes weighted as under the null context."""
    texts = draw_texts(1)
    twins = Texts(texts.ids_NS.expand(64, -1), texts.mask_NS.expand(64, -1))
    weights = build_small_model(pooling="frequency").second_stage_model.frequency_weights
    token_weights = weights.train()(*twins, mark_words(*draw_texts(6, seed=2), WORDS))
    assert len(torch.unique(token_weights.round(decimals=4), dim=0)) == 2
