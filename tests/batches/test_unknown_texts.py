"""Texts of which a surrogate knows no token, and vectors that are no numbers."""

import numpy as np
import pytest

from repro.batches.fixed_encoder import FixedEncoder
from repro.batches.mask import compute_content_keys, mask_directions, mask_false_negatives
from repro.batches.surrogate import check_vectors, load_surrogate
from repro.data.tokens import compute_unknown_share, load_tokenizer, tokenize

THAI = ["กขคง จฉช", "ซญดต ถทธน", "บปผ พฟม"]


@pytest.mark.parametrize("name", ["minilm-words", "minilm"])
def test_unknown_scripts_mask_nothing(name: str) -> None:
    """Thai, which MiniLM's vocabulary lacks, has zero vectors: no negative is masked, in one direction or four."""
    vectors_ND = load_surrogate(name).embed([*THAI, "an English text", "ok กขคง"], 40)
    assert (np.abs(vectors_ND).sum(1) > 0).tolist() == [False, False, False, True, True]
    keys_M = compute_content_keys(THAI)
    queries_BD = documents_MD = vectors_ND[:3]
    masked_BM = mask_false_negatives(keys_M, queries_BD @ documents_MD.T)
    assert not masked_BM.any()
    assert not mask_directions(compute_content_keys(THAI[::-1]), keys_M, masked_BM, (queries_BD, documents_MD)).any()


def test_known_texts_are_masked_next_to_unknown() -> None:
    """One unknown pair changes nothing for the others: compared with the rule written out entry by entry."""
    rng = np.random.default_rng(0)
    queries_BD, documents_MD = rng.normal(size=(2, 6, 4)).astype(np.float32)
    queries_BD[2], documents_MD[4] = 0, 0
    scores_BM = queries_BD @ documents_MD.T
    found = mask_false_negatives(np.arange(6), scores_BM)
    for b in range(6):
        for m in range(6):
            is_known = b not in (2, 4) and m != 4
            assert found[b, m] == (b != m and is_known and scores_BM[b, m] >= scores_BM[b, b])


def test_unknown_tokens_are_counted() -> None:
    tokenizer = load_tokenizer("minilm")
    share, is_unknown = compute_unknown_share(tokenize(["a pump", "กขคง จฉช", ""], tokenizer, 40), tokenizer)
    assert (share, is_unknown.tolist()) == (0.5, [False, True, False])


def test_texts_of_nan_vectors_are_named() -> None:
    vectors = np.ones((3, 2), np.float32)
    check_vectors(vectors, ["a", "b", "c"])
    vectors[1, 0] = np.nan
    with pytest.raises(ValueError, match="1 text, first 'b'"):
        check_vectors(vectors, ["a", "b", "c"])


def test_encoders_name_texts_of_nan_vectors(monkeypatch: pytest.MonkeyPatch) -> None:
    """An encoder that is loaded for evaluation, or for batches without stored vectors, names the text, too."""

    class Broken:
        num_dimensions, looks_at_neighbours = 2, False

        def embed(self, texts: list[str], max_tokens: int) -> np.ndarray:
            return np.array([[np.nan if "bad" in text else 1.0, 0.0] for text in texts], np.float32)

    monkeypatch.setattr("repro.batches.fixed_encoder.load_surrogate", lambda name: Broken())
    encoder = FixedEncoder("x", 40)
    assert encoder.encode(["good"]).shape == (1, 2)
    for encode in (encoder.encode, encoder.embed):
        with pytest.raises(ValueError, match="1 text, first 'a bad one'"):
            encode(["good", "a bad one"])
