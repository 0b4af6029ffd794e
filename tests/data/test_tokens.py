"""Token arrays: the ids of transformers' own tokenizer, padded to the longest of a selection."""

from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from repro.data.tokens import load_tokenizer, load_tokens, minilm_folder, tokenize, write_tokens

TEXTS = ["A short one.", "", "Zweitens: ein längerer Satz, with émojis 🎉 and unfriendliness", "word " * 50, "é"]


@pytest.mark.parametrize("max_tokens", [4, 12, 64])
def test_ids_and_masks_are_those_of_transformers(max_tokens: int) -> None:
    reference = AutoTokenizer.from_pretrained(str(minilm_folder()))
    expected = reference(TEXTS, max_length=max_tokens, truncation=True, padding=True, return_tensors="np")
    tokens = tokenize(TEXTS, load_tokenizer("minilm"), max_tokens)
    ids, mask = tokens.pad(range(len(TEXTS)))
    assert np.array_equal(ids, expected["input_ids"])
    assert np.array_equal(mask, expected["attention_mask"])
    assert tokens.lengths.tolist() == expected["attention_mask"].sum(1).tolist()


def test_a_selection_is_padded_to_its_own_longest_text() -> None:
    tokens = tokenize(TEXTS, load_tokenizer("minilm"), 32)
    ids, mask = tokens.pad([4, 0])
    assert ids.shape == mask.shape == (2, tokens.lengths[0])
    assert ids[0, tokens.lengths[4] :].tolist() == [0] * (tokens.lengths[0] - tokens.lengths[4])


def test_saved_tokens_are_mapped_back_unchanged(tmp_path: Path) -> None:
    tokens = tokenize(TEXTS, load_tokenizer("minilm"), 16)
    tokens.save(tmp_path)
    loaded = load_tokens(tmp_path)
    assert isinstance(loaded.ids, np.memmap)
    assert np.array_equal(loaded.pad([3, 1])[0], tokens.pad([3, 1])[0])


@pytest.mark.parametrize("size", [1, 2, 5])
def test_tokens_written_in_blocks_are_the_files_of_all_texts_at_once(tmp_path: Path, size: int) -> None:
    tokenize(TEXTS, load_tokenizer("minilm"), 16).save(tmp_path / "whole")
    blocks = (TEXTS[start : start + size] for start in range(0, len(TEXTS), size))
    write_tokens(tmp_path / "blocks", blocks, load_tokenizer("minilm"), 16)
    for name in ("ids.npy", "offsets.npy"):
        assert (tmp_path / "blocks" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_a_local_folder_gives_the_same_tokenizer_as_its_name() -> None:
    by_folder = tokenize(TEXTS, load_tokenizer(str(minilm_folder())), 16)
    assert np.array_equal(by_folder.ids, tokenize(TEXTS, load_tokenizer("minilm"), 16).ids)


def test_no_room_for_text_is_refused() -> None:
    with pytest.raises(ValueError, match="max_tokens is 2"):
        tokenize(TEXTS, load_tokenizer("minilm"), 2)
