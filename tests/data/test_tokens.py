"""Token arrays: the ids of transformers' tokenizer, padded to the longest text of a selection."""

import json
from pathlib import Path

import numpy as np
import pytest
from transformers import AutoTokenizer

from repro.data import tokens as module
from repro.data.tokens import (
    BOUNDS_FILE,
    get_minilm_folder,
    is_wordwise,
    join_tokens,
    load_tokenizer,
    load_tokens,
    tokenize,
    write_tokens,
)
from repro.storage import arrays

TEXTS = ["A short one.", "", "Zweitens: ein längerer Satz, with émojis 🎉 and unfriendliness", "word " * 50, "é"]


@pytest.mark.parametrize("max_tokens", [4, 12, 64])
def test_ids_match_transformers(max_tokens: int) -> None:
    reference = AutoTokenizer.from_pretrained(str(get_minilm_folder()))
    expected = reference(TEXTS, max_length=max_tokens, truncation=True, padding=True, return_tensors="np")
    tokens = tokenize(TEXTS, load_tokenizer("minilm"), max_tokens)
    ids, mask = tokens.pad(range(len(TEXTS)))
    assert np.array_equal(ids, expected["input_ids"])
    assert np.array_equal(mask, expected["attention_mask"])
    assert tokens.lengths.tolist() == expected["attention_mask"].sum(1).tolist()


def test_selection_is_padded_to_its_longest() -> None:
    tokens = tokenize(TEXTS, load_tokenizer("minilm"), 32)
    ids, mask = tokens.pad([4, 0])
    assert ids.shape == mask.shape == (2, tokens.lengths[0])
    assert ids[0, tokens.lengths[4] :].tolist() == [0] * (tokens.lengths[0] - tokens.lengths[4])


def test_saved_tokens_are_mapped_back(tmp_path: Path) -> None:
    tokens = tokenize(TEXTS, load_tokenizer("minilm"), 16)
    write_tokens(tmp_path, [TEXTS], load_tokenizer("minilm"), 16)
    loaded = load_tokens(tmp_path)
    assert isinstance(loaded.ids, np.memmap)
    assert np.array_equal(loaded.pad([3, 1])[0], tokens.pad([3, 1])[0])


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
    for max_tokens in (3, 17, 512):
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_tokens)
        expected = [encoding.ids for encoding in tokenizer.encode_batch(texts)]
        for texts_at_once, characters_at_once in ((65_536, 2**23), (70, 2**23), (65_536, 500)):
            monkeypatch.setattr(module, "TEXTS_PER_CHUNK", texts_at_once)
            monkeypatch.setattr(module, "CHARACTERS_PER_CHUNK", characters_at_once)
            found = tokenize(texts, tokenizer, max_tokens)
            assert np.array_equal(found.ids, np.concatenate(expected))
            assert found.lengths.tolist() == [len(ids) for ids in expected]


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


@pytest.mark.parametrize("size", [1, 2, 5])
def test_blocks_write_the_same_files(tmp_path: Path, size: int) -> None:
    whole = tokenize(TEXTS, load_tokenizer("minilm"), 16)
    blocks = (TEXTS[start : start + size] for start in range(0, len(TEXTS), size))
    write_tokens(tmp_path, blocks, load_tokenizer("minilm"), 16)
    for name, expected in (("ids.npy", whole.ids), ("offsets.npy", whole.offsets)):
        np.save(tmp_path / "expected.npy", expected)
        assert (tmp_path / name).read_bytes() == (tmp_path / "expected.npy").read_bytes()
    assert json.loads((tmp_path / BOUNDS_FILE).read_text()) == {"largest_id": whole.ids.max()}


def test_opening_reads_no_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The largest id is read from a note, also for joined parts. Files without a note, as older ones, are scanned."""
    tokens = tokenize(TEXTS, load_tokenizer("minilm"), 16)
    largest = int(tokens.ids.max())
    for name in ("a", "b"):
        write_tokens(tmp_path / name, [TEXTS], load_tokenizer("minilm"), 16)
    (tmp_path / "b" / BOUNDS_FILE).unlink()
    (tmp_path / "whole").mkdir()
    join_tokens(tmp_path / "whole", [tmp_path / "b", tmp_path / "a"])
    scanned: list[Path] = []
    scan = arrays._find_min_and_max

    def record_scan(array: np.memmap) -> tuple[int, int]:
        scanned.append(Path(str(array.filename)))
        return scan(array)

    monkeypatch.setattr(arrays, "_find_min_and_max", record_scan)
    for name in ("a", "whole"):
        assert len(load_tokens(tmp_path / name, num_words=largest + 1)) in (len(TEXTS), 2 * len(TEXTS))
        with pytest.raises(ValueError, match=f"holds ids up to {largest}, expected 0 to {largest - 1}"):
            load_tokens(tmp_path / name, num_words=largest)
    assert not scanned
    with pytest.raises(ValueError, match="holds numbers from"):
        load_tokens(tmp_path / "b", num_words=largest)
    load_tokens(tmp_path / "b", num_words=largest + 1)
    assert {path.name for path in scanned} == {"ids.npy", "offsets.npy"}
    np.save(tmp_path / "a" / "offsets.npy", tokens.offsets[:-1])
    with pytest.raises(ValueError, match="does not cut"):
        load_tokens(tmp_path / "a")


def test_local_folder_gives_same_tokenizer() -> None:
    by_folder = tokenize(TEXTS, load_tokenizer(str(get_minilm_folder())), 16)
    assert np.array_equal(by_folder.ids, tokenize(TEXTS, load_tokenizer("minilm"), 16).ids)


def test_no_room_for_text_is_refused() -> None:
    with pytest.raises(ValueError, match="max_tokens is 2"):
        tokenize(TEXTS, load_tokenizer("minilm"), 2)


@pytest.mark.parametrize("lengths", [[0, 3, 0, 9, 2], [0, 0]])
def test_empty_texts_keep_their_place(lengths: list[int]) -> None:
    batches = list(module.iter_token_batches(np.array(lengths), 6))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))
    assert all(len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= 6 for rows in batches)
