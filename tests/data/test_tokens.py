"""Token arrays: the ids of transformers' tokenizer, padded to the longest text of a selection."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from transformers import AutoTokenizer

from repro.data import tokens as module
from repro.data.tokens import (
    BOUNDS_FILE,
    cut_unread_ends,
    get_minilm_folder,
    is_wordwise,
    join_tokens,
    load_tokenizer,
    load_tokens,
    splits_at_spaces,
    tokenize,
    write_tokens,
)

TEXTS = ["A short one.", "", "Zweitens: ein längerer Satz, with émojis 🎉 and unfriendliness", "word " * 50, "é"]


@pytest.mark.parametrize("max_tokens", [4, 12, 64])
def test_ids_match_transformers(max_tokens: int) -> None:
    """A selection is padded to its longest text. The tokenizer may be given as a folder."""
    reference = AutoTokenizer.from_pretrained(str(get_minilm_folder()))
    tokens = tokenize(TEXTS, load_tokenizer("minilm"), max_tokens)
    for rows in (range(len(TEXTS)), [4, 0]):
        texts = [TEXTS[row] for row in rows]
        expected = reference(texts, max_length=max_tokens, truncation=True, padding=True, return_tensors="np")
        ids, mask = tokens.pad(rows)
        assert np.array_equal(ids, expected["input_ids"])
        assert np.array_equal(mask, expected["attention_mask"])
        assert tokens.lengths[rows].tolist() == expected["attention_mask"].sum(1).tolist()
    by_folder = tokenize(TEXTS, load_tokenizer(str(get_minilm_folder())), max_tokens)
    assert np.array_equal(by_folder.ids, tokens.ids)
    with pytest.raises(ValueError, match="max_tokens is 2"):
        tokenize(TEXTS, load_tokenizer("minilm"), 2)


PIECES = (
    *("kidney", "Bone", "un", "friendly", "list_buckets(self)", "don't", "3.14", "x" * 101, ".", "…", "🎉", "##ing"),
    *("日本語", "中a", "ΣΑΣ", "ǅ", "ﬁ", "İ", "ß", "é", "e\u0323\u0301", "가", "\u1100\u1161", "\u0301", "\u0345"),
    *(" ", " ", " ", "  ", "\t", "\n", "\r\n", "\x0b", "\x0c", "\x00", "\u00a0", "\u2003", "\u200b", "\ufffd"),
    *("[SEP]", "[MASK]", " [PAD] ", "[sep]"),
)
"""Letters, spaces and marks where a tokenizer may depend on what follows a space."""


def test_word_wise_ids_match_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    texts = ["".join(PIECES[n] for n in rng.integers(0, len(PIECES), rng.integers(0, 30))) for _ in range(1500)]
    assert all(any(piece in text for text in texts) for piece in PIECES)
    tokenizer = load_tokenizer("minilm")
    for max_tokens in (3, 17):
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_tokens)
        expected = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
        for texts_at_once, characters_at_once in ((70, 2**23), (65_536, 500)):
            monkeypatch.setattr(module, "TEXTS_PER_CHUNK", texts_at_once)
            monkeypatch.setattr(module, "CHARACTERS_PER_CHUNK", characters_at_once)
            tokens = tokenize(texts, tokenizer, max_tokens)
            assert np.array_equal(tokens.ids, np.concatenate(expected))
            assert tokens.lengths.tolist() == [len(ids) for ids in expected]


def test_other_tokenizers_read_whole_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

    def load_minilm() -> Tokenizer:
        tokenizer = load_tokenizer("minilm")
        tokenizer.no_padding()
        return tokenizer

    def fail(*args: object) -> None:
        raise AssertionError("by words")

    others = [load_minilm() for _ in range(6)]
    others[0].normalizer = normalizers.NFKC()
    others[1].pre_tokenizer = pre_tokenizers.Metaspace()
    others[2].add_tokens([AddedToken("New York")])
    others[3].add_tokens([AddedToken("York", single_word=True)])
    others[4] = Tokenizer(models.BPE())
    others[5].post_processor = None
    assert is_wordwise(load_minilm()) and not any(is_wordwise(other) for other in others)
    monkeypatch.setattr(module, "tokenize_words", fail)
    for other, count in ((others[2], 2000), (load_minilm(), 1000)):
        assert len(tokenize(["in New York"] * count, other, 8)) == count
    with pytest.raises(AssertionError, match="by words"):
        tokenize(["in New York"] * 2000, load_minilm(), 8)


def load_kinds() -> dict[str, Any]:
    """Return tokenizers of several kinds, trained on the letters of PIECES, and whether they split at spaces."""
    from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors, trainers

    splits = {
        "bytes": (models.BPE(), pre_tokenizers.ByteLevel(), None),
        "unigram": (models.Unigram(), pre_tokenizers.Metaspace(), normalizers.NFKC()),
        "sequence": (
            models.Unigram(),
            pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]),
            normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
        ),
        "no spaces": (models.BPE(), pre_tokenizers.Metaspace(split=False), None),
        "pattern": (models.BPE(), pre_tokenizers.WhitespaceSplit(), normalizers.Replace(Regex("a b"), "c")),
    }
    kinds = {}
    for name, (model, pre_tokenizer, normalizer) in splits.items():
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer, tokenizer.normalizer = pre_tokenizer, normalizer
        trainer = trainers.BpeTrainer if isinstance(model, models.BPE) else trainers.UnigramTrainer
        options = {"unk_token": "[UNK]"} if trainer is trainers.UnigramTrainer else {}
        tokenizer.train_from_iterator(
            [" ".join(PIECES) * 3],
            trainer(vocab_size=300, special_tokens=["[UNK]", "[E]"], show_progress=False, **options),
        )
        tokenizer.post_processor = processors.TemplateProcessing(single="$A [E]", special_tokens=[("[E]", 1)])
        kinds[name] = (tokenizer, name not in ("no spaces", "pattern"))
    return {"minilm": (load_tokenizer("minilm"), True)} | kinds


@pytest.mark.parametrize("name", ["minilm", "bytes", "unigram", "sequence", "no spaces", "pattern"])
def test_unread_ends_change_no_id(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts are cut before they are tokenised where this cannot change an id, and read whole otherwise."""
    tokenizer, splits = load_kinds()[name]
    tokenizer.no_padding()
    tokenizer.enable_truncation(12)
    assert splits_at_spaces(tokenizer) == splits
    rng = np.random.default_rng(1)
    texts = ["".join(PIECES[n] for n in rng.integers(0, len(PIECES), rng.integers(0, 60))) for _ in range(1500)]
    expected = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
    for num_characters in (1, 10):
        monkeypatch.setattr(module, "CHARACTERS_PER_TOKEN", num_characters)
        for count in (1500, 900):
            tokens = tokenize(texts[:count], tokenizer, 12)
            assert [part.tolist() for part in np.split(tokens.ids, tokens.offsets[1:-1])] == expected[:count]
        cut_texts = cut_unread_ends(texts, tokenizer, 12)
        tokenizer.enable_truncation(12)
        assert [encoding.ids for encoding in tokenizer.encode_batch(cut_texts)] == expected
    assert (sum(map(len, cut_texts)) < sum(map(len, texts))) == splits


@pytest.mark.parametrize("size", [1, 2, 5])
def test_blocks_write_the_same_files(tmp_path: Path, size: int) -> None:
    tokens = tokenize(TEXTS, load_tokenizer("minilm"), 16)
    blocks = (TEXTS[start : start + size] for start in range(0, len(TEXTS), size))
    write_tokens(tmp_path, blocks, load_tokenizer("minilm"), 16)
    for name, expected in (("ids.npy", tokens.ids), ("offsets.npy", tokens.offsets)):
        np.save(tmp_path / "expected.npy", expected)
        assert (tmp_path / name).read_bytes() == (tmp_path / "expected.npy").read_bytes()
    assert json.loads((tmp_path / BOUNDS_FILE).read_text()) == {"largest_id": tokens.ids.max()}
    loaded = load_tokens(tmp_path)
    assert isinstance(loaded.ids, np.memmap)
    assert np.array_equal(loaded.pad([3, 1])[0], tokens.pad([3, 1])[0])


def test_joined_tokens_match_one_call(tmp_path: Path) -> None:
    """The largest id is stored with the ids, also for joined parts."""
    for name in ("a", "b"):
        write_tokens(tmp_path / name, [TEXTS], load_tokenizer("minilm"), 16)
    (tmp_path / "whole").mkdir()
    join_tokens(tmp_path / "whole", [tmp_path / "b", tmp_path / "a"])
    tokens = tokenize(TEXTS, load_tokenizer("minilm"), 16)
    largest = int(tokens.ids.max())
    for name, num_texts in (("a", len(TEXTS)), ("whole", 2 * len(TEXTS))):
        assert len(load_tokens(tmp_path / name, num_words=largest + 1)) == num_texts
        with pytest.raises(ValueError, match=f"holds ids up to {largest}"):
            load_tokens(tmp_path / name, num_words=largest)
    np.save(tmp_path / "a" / "offsets.npy", tokens.offsets[:-1])
    with pytest.raises(ValueError, match="does not cut"):
        load_tokens(tmp_path / "a")


@pytest.mark.parametrize("lengths", [[0, 3, 0, 9, 2], [0, 0]])
def test_empty_texts_keep_their_place(lengths: list[int]) -> None:
    batches = list(module.iter_token_batches(np.array(lengths), 6))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert all(len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= 6 for rows in batches)
