"""Promises of pooling by frequency in the context."""

import pytest
import torch

from repro.model.frequency import RATE, FrequencyWeights, make_no_words, mark_words
from repro.model.texts import Texts
from tests.model.samples import WORDS, random_texts, small_config, small_model

CLOSE = {"rtol": 1e-5, "atol": 1e-6}


def test_a_weight_goes_with_the_share_of_documents_that_hold_the_word() -> None:
    weights, texts, documents = FrequencyWeights(4).eval(), random_texts(3), random_texts(5, seed=1, longest=20)
    torch.nn.init.normal_(weights.logits_K, std=0.1)
    found = weights(texts, mark_words(documents, WORDS))
    held = [set(ids[mask.bool()].tolist()) for ids, mask in zip(documents.ids_NS, documents.mask_NS, strict=True)]
    for row, (ids, mask) in enumerate(zip(texts.ids_NS.tolist(), texts.mask_NS.tolist(), strict=True)):
        for column, (word, real) in enumerate(zip(ids, mask, strict=True)):
            place = 4 * sum(word in words for words in held) / 5
            below = min(int(place), 3)
            by_hand = torch.lerp(weights.logits_K[below], weights.logits_K[below + 1], place - below)
            torch.testing.assert_close(found[row, column], torch.exp(RATE * by_hand) * real, **CLOSE)


def test_null_vectors_are_no_documents() -> None:
    weights, texts = FrequencyWeights(4).eval(), random_texts(3)
    torch.nn.init.normal_(weights.logits_K, std=0.1)
    documents, nulls = mark_words(random_texts(2, seed=1), WORDS), make_no_words(2, WORDS, torch.device("cpu"))
    torch.testing.assert_close(weights(texts, torch.cat([documents, nulls])), weights(texts, documents))
    expected = torch.exp(RATE * weights.logits_K[-1]) * texts.mask_NS
    torch.testing.assert_close(weights(texts, nulls), expected)


def test_at_the_start_the_model_is_the_one_with_mean_pooling() -> None:
    plain, ours = small_model(), small_model(pooling="frequency")
    ours.load_state_dict(plain.state_dict(), strict=False)
    torch.nn.init.zeros_(ours.second_stage_model.frequency_weights.logits_K)
    texts, documents = random_texts(4), random_texts(6, seed=2)
    torch.testing.assert_close(ours.eval()(texts, documents), plain.eval()(texts, documents), **CLOSE)


def test_the_same_words_in_other_documents_move_no_vector_but_other_words_do() -> None:
    model = small_model(pooling="frequency").eval()
    texts, documents = random_texts(4), random_texts(6, seed=2)
    vectors = model.first_stage(documents)
    other = torch.cat([vectors[:, :16], model.first_stage(random_texts(6, seed=3))[:, 16:]], dim=1)
    shuffled = torch.cat([vectors[:, :16], vectors[:, 16:].flip(0)], dim=1)
    found = model.second_stage(texts, vectors)
    torch.testing.assert_close(model.second_stage(texts, shuffled), found, **CLOSE)
    assert (model.second_stage(texts, other) - found).abs().max() > 1e-3


def test_short_texts_of_light_words_are_averaged_like_long_ones() -> None:
    model = small_model(pooling="frequency", num_layers=1).eval()
    logits = model.second_stage_model.frequency_weights.logits_K
    texts, documents = random_texts(3, longest=2), random_texts(6, seed=2)
    found = []
    for logit in (0.0, -1.0):
        torch.nn.init.constant_(logits, logit)
        found.append(model(texts, documents))
    torch.testing.assert_close(found[0], found[1], **CLOSE)


def test_the_null_context_and_a_null_in_training_are_learned() -> None:
    model = small_model(pooling="frequency")
    assert model.second_stage_model.null_contexts().shape == (6, 16 + WORDS)
    texts = random_texts(1)
    twins = Texts(texts.ids_NS.expand(64, -1), texts.mask_NS.expand(64, -1))
    weights = model.second_stage_model.frequency_weights
    found = weights.train()(twins, mark_words(random_texts(6, seed=2), WORDS))
    assert len(torch.unique(found.round(decimals=4), dim=0)) == 2
    model.set_context(None)
    assert model.context_CE.shape == (6, 16 + WORDS)


def test_only_a_contextual_model_pools_by_frequency() -> None:
    with pytest.raises(ValueError, match="pooling='frequency': only for a contextual model"):
        small_config(architecture="biencoder", pooling="frequency")
    with pytest.raises(ValueError, match="pooling='median' is unknown"):
        small_config(pooling="median")
