"""Tokenises many texts word by word: a word that stands in many texts is tokenised once.

Steps:
1. Texts are cut at spaces, and their words numbered; each distinct word goes through the tokenizer once.
2. A text's ids are those of its words, one after another, as far as there is room, between the tokenizer's own first
   and last. They are the tokenizer's own ids of the text where no token reaches over a space and no character is
   normalised by what stands beyond one: so with BERT's normaliser, splitter and WordPiece, and `is_wordwise` asks.

Shapes: N texts, W words of all texts, V distinct words, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from tokenizers import Tokenizer

TEXTS_AT_ONCE, CHARACTERS_AT_ONCE = 65_536, 2**23
PROBE, NUM_ENDS = "a", 2


def is_wordwise(tokenizer: Tokenizer) -> bool:
    """Return whether the ids of a text are those of its words between one first and one last special token.

    The tokenizer is asked as it is set, which must be without padding.
    """
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    parts = (tokenizer.model, tokenizer.normalizer, tokenizer.pre_tokenizer)
    kinds = (WordPiece, BertNormalizer, BertPreTokenizer)
    if not all(isinstance(part, kind) for part, kind in zip(parts, kinds, strict=True)):
        return False
    added = tokenizer.get_added_tokens_decoder().values()
    if any(" " in one.content or one.single_word or one.lstrip or one.rstrip for one in added):
        return False
    ends, word = tokenizer.encode("").ids, tokenizer.encode(PROBE, add_special_tokens=False).ids
    return len(ends) == NUM_ENDS and tokenizer.encode(PROBE).ids == [ends[0], *word, ends[1]]


def tokenize_words(texts: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Return ids, int32 (T,), and tokens of each text, int64 (N,), of one block of texts after another.

    Each text is cut to `max_tokens`, which the tokenizer is set to cut to as well.
    """
    ends = tokenizer.encode("").ids
    for block in _blocks(texts):
        codes_W, bounds_N, words = _split_words(block)
        ids_T, starts_V, lengths_V = _tokenize_words(words, tokenizer)
        lengths_W = lengths_V[codes_W]
        taken_W = _as_far_as_there_is_room(lengths_W, bounds_N, max_tokens - len(ends))
        taken_before = np.concatenate([[0], np.cumsum(taken_W)])
        chosen = np.repeat(starts_V[codes_W] - taken_before[:-1], taken_W) + np.arange(taken_before[-1])
        lengths_N = np.diff(taken_before[bounds_N])
        yield _between_specials(ids_T[chosen], lengths_N, ends), lengths_N + len(ends)


def _blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Return blocks of at most so many texts, of at most so many characters or one text."""
    start, num_characters = 0, 0
    for stop, text in enumerate(texts):
        if stop > start and (stop - start == TEXTS_AT_ONCE or num_characters + len(text) > CHARACTERS_AT_ONCE):
            yield list(texts[start:stop])
            start, num_characters = stop, 0
        num_characters += len(text)
    yield list(texts[start:])


def _split_words(texts: list[str]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the number of each word (W,), where each text's words begin and the last's end (N + 1), and the words."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = pc.split_pattern(pa.array(texts, pa.large_string()), " ")
    coded = lists.values.dictionary_encode()
    return coded.indices.to_numpy(), lists.offsets.to_numpy(), coded.dictionary.to_pylist()


def _tokenize_words(words: list[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids of all words (T,), and of each where they begin and how many they are (V,)."""
    found = [encoding.ids for encoding in tokenizer.encode_batch_fast(words, add_special_tokens=False)]
    lengths_V = np.fromiter(map(len, found), np.int64, len(found))
    ids_T = np.fromiter((number for ids in found for number in ids), np.int32, lengths_V.sum())
    return ids_T, np.cumsum(lengths_V) - lengths_V, lengths_V


def _as_far_as_there_is_room(lengths_W: np.ndarray, bounds_N: np.ndarray, room: int) -> np.ndarray:
    """Return how many tokens of each word fit behind those before it in its text, (W,)."""
    before_W = np.concatenate([[0], np.cumsum(lengths_W)])
    of_text_W = before_W[:-1] - np.repeat(before_W[bounds_N[:-1]], np.diff(bounds_N))
    return np.clip(room - of_text_W, 0, lengths_W)


def _between_specials(ids_T: np.ndarray, lengths_N: np.ndarray, ends: list[int]) -> np.ndarray:
    """Return the ids of all texts, each between the two special ones."""
    stops_N = np.cumsum(lengths_N + len(ends))
    starts_N = stops_N - lengths_N - len(ends)
    ids = np.empty(len(ids_T) + len(ends) * len(lengths_N), np.int32)
    is_text = np.ones(len(ids), dtype=bool)
    for places_N, number in zip((starts_N, stops_N - 1), ends, strict=True):
        ids[places_N], is_text[places_N] = number, False
    ids[is_text] = ids_T
    return ids
