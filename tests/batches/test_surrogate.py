"""Surrogates, against sentence-transformers and against sums written out."""

from collections.abc import Sequence
from pathlib import Path
from typing import Never

import numpy as np
import pytest

from repro.batches import surrogate as module
from repro.batches.surrogate import MiniLM, embed_texts, load_surrogate
from repro.data.tokens import minilm_folder

TEXTS = [
    "list buckets",
    "Returns a list of all buckets owned by the authenticated sender of the request.",
    "Bone marrow",
    "list buckets",
    "x",
    "Deletes the policy of a queue. " * 30,
]


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return load_surrogate("minilm")


def test_minilm_is_that_of_sentence_transformers(minilm: MiniLM, monkeypatch: pytest.MonkeyPatch) -> None:
    from sentence_transformers import SentenceTransformer

    monkeypatch.setattr(module, "CPU_TOKENS_PER_BATCH", 50)
    reference = SentenceTransformer(str(minilm_folder()), device="cpu")
    reference.max_seq_length = 32
    expected = reference.encode(TEXTS, normalize_embeddings=True)
    np.testing.assert_allclose(minilm.embed(TEXTS, 32), expected, atol=2e-3 if minilm._device.type == "cuda" else 2e-6)


def test_a_local_folder_is_a_surrogate_too(minilm: MiniLM) -> None:
    other = load_surrogate(str(minilm_folder()))
    assert other.num_dimensions == 384
    np.testing.assert_allclose(other.embed(TEXTS, 16), minilm.embed(TEXTS, 16), atol=2e-3)


def test_stored_vectors_are_in_the_order_of_the_texts(
    minilm: MiniLM, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TEXTS_PER_BLOCK", 2)
    stored = embed_texts(minilm, TEXTS, tmp_path / "documents.npy", max_tokens=32)
    assert isinstance(stored, np.memmap)
    assert stored.dtype == np.float16
    np.testing.assert_allclose(stored, minilm.embed(TEXTS, 32), atol=1e-3)
    assert [path.name for path in tmp_path.iterdir()] == ["documents.npy"]


def test_repeated_texts_are_embedded_once(tmp_path: Path) -> None:
    class Counting:
        num_dimensions = 2

        def __init__(self) -> None:
            self.seen = []

        def embed(self, texts: Sequence[str], max_tokens: int) -> np.ndarray:
            self.seen += texts
            return np.array([[len(text), max_tokens] for text in texts], dtype=np.float32)

    surrogate, calls = Counting(), []
    vectors = embed_texts(
        surrogate,
        ["bb", "a", "bb", "a", "a"],
        tmp_path / "x.npy",
        max_tokens=7,
        progress=lambda *now: calls.append(now),
    )
    assert sorted(surrogate.seen) == ["a", "bb"]
    assert vectors.tolist() == [[2, 7], [1, 7], [2, 7], [1, 7], [1, 7]]
    assert calls == [(5, 5)]


def test_nothing_is_written_when_the_encoder_fails(tmp_path: Path) -> None:
    class Failing:
        num_dimensions = 2

        def embed(self, texts: Sequence[str], max_tokens: int) -> Never:
            raise RuntimeError("no")

    with pytest.raises(RuntimeError):
        embed_texts(Failing(), ["a"], tmp_path / "x.npy", max_tokens=7)
    assert not list(tmp_path.iterdir())


def test_word_vectors_are_a_weighted_mean_and_frequent_words_weigh_less() -> None:
    words = load_surrogate("minilm-words")
    vectors = words.embed(["the kidney", "kidney", "the", "liver kidney kidney", ""], 16)
    np.testing.assert_allclose(np.linalg.norm(vectors[:4], axis=1), 1, atol=1e-5)
    assert not vectors[4].any()
    assert vectors[0] @ vectors[1] > 0.99 > 0.5 > vectors[0] @ vectors[2]
    mixed = (
        words._weighted_VD[words._tokenizer.token_to_id("liver")]
        + 2 * words._weighted_VD[words._tokenizer.token_to_id("kidney")]
    )
    np.testing.assert_allclose(vectors[3], mixed / np.linalg.norm(mixed), atol=1e-5)


def test_a_name_that_is_no_surrogate_lists_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"unknown surrogate './nowhere'.*\['minilm', 'minilm-words'\]"):
        load_surrogate("./nowhere")


def test_no_texts_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no texts"):
        embed_texts(load_surrogate("minilm-words"), [], tmp_path / "x.npy", max_tokens=8)
