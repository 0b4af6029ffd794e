"""Words weighted by IDF: the vectors of each system equal a plain computation."""

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from repro.analyses.headroom import Repooled, build_word_vectors, compute_corpus_weights
from repro.data.beir import Retrieval
from repro.data.tokens import get_minilm_folder, load_tokenizer
from repro.evaluate.headroom import compute_training_prior
from repro.model.biencoder import Biencoder
from repro.model.config import ModelConfig
from repro.model.texts import make_texts
from tests.analyses.by_hand import HandMadePairs

DOCUMENTS = ("restart the server now", "stop the server", "the the list of servers", "delete a bucket")
QUERIES = ("restart server", "the bucket")
RETRIEVAL = Retrieval("tiny", tuple("abcd"), DOCUMENTS, ("1", "2"), QUERIES, {"1": {"a": 1}, "2": {"d": 1}})
TOKENIZER = load_tokenizer("minilm")
TOKENIZER.no_padding()
NUM_WORDS = TOKENIZER.get_vocab_size()
WEIGHT = np.random.default_rng(0).uniform(0.1, 3.0, NUM_WORDS).astype(np.float32)


def list_word_ids(text: str) -> list[int]:
    return TOKENIZER.encode(text, add_special_tokens=False).ids


def test_word_vectors_are_weighted_means() -> None:
    table = load_file(get_minilm_folder() / "model.safetensors")["embeddings.word_embeddings.weight"]
    table = table - table.mean(axis=0)
    _, documents_DH = build_word_vectors(RETRIEVAL)(WEIGHT)
    for document_H, text in zip(documents_DH, DOCUMENTS, strict=True):
        expected_H = sum(WEIGHT[word] * table[word] for word in list_word_ids(text))
        np.testing.assert_allclose(document_H, expected_H / np.linalg.norm(expected_H), atol=1e-5)


def test_repooling_weights_token_states() -> None:
    """Even weights give the vectors of the biencoder itself."""
    model = Biencoder(ModelConfig(architecture="biencoder", num_layers=1, hidden_size=32, num_heads=1)).eval()
    vectors = dict(Repooled(model)(RETRIEVAL, {"flat": np.ones(NUM_WORDS, np.float32), "drawn": WEIGHT}))
    np.testing.assert_allclose(vectors["flat"][0], model.encode(QUERIES, "query"), atol=1e-5)
    np.testing.assert_allclose(vectors["flat"][1], model.encode(DOCUMENTS, "document"), atol=1e-5)
    for document_H, text in zip(vectors["drawn"][1], DOCUMENTS, strict=True):
        tokens = model.tokenize([text], "document")
        with torch.inference_mode():
            states_SH = model.embedder(*make_texts(*tokens.pad(np.arange(1))))[0]
            weights_S = torch.from_numpy(WEIGHT[tokens.ids])
            expected_H = model.mlp((weights_S[:, None] * states_SH).sum(0) / weights_S.sum())
        np.testing.assert_allclose(document_H, expected_H / expected_H.norm(), atol=1e-5)


def test_weights_come_from_named_corpora() -> None:
    other = Retrieval("other", ("x",), ("restart restart",), ("1",), ("q",), {"1": {"x": 1}})
    weights = compute_corpus_weights(RETRIEVAL, other, np.full(NUM_WORDS, 0.01), seed=0)
    assert set(weights) == {"flat", "training", "wrong", "own16", "own64", "own"}
    (server,), (restart,) = list_word_ids("server"), list_word_ids("restart")
    assert weights["flat"][server] == weights["flat"][restart] == 1.0
    assert weights["training"][server] == weights["training"][restart]
    assert weights["own"][server] < weights["own"][restart] and weights["wrong"][restart] < weights["wrong"][server]
    np.testing.assert_array_equal(weights["own16"], weights["own"])  # the corpus has fewer than 16 documents


def test_prior_is_of_training_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = ["restart the server", "stop the server", "a bucket", "a server", "a list"]
    pairs = HandMadePairs([0] * 5, documents)
    (server,) = list_word_ids("server")
    assert compute_training_prior(pairs)[server] == pytest.approx((3 + 0.5) / (5 + 1))
    monkeypatch.setattr("repro.evaluate.headroom.NUM_TRAINING", 3)  # the first, the third, the last
    assert compute_training_prior(pairs)[server] == pytest.approx((1 + 0.5) / (3 + 1))
