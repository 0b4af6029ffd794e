"""Fast tokenisation of many texts: each distinct word is tokenised once.

1. Texts are split at spaces, and their words are numbered. Each distinct word is tokenised once.
2. The ids of a text are those of its words between the two special tokens, truncated to the maximal length.

The result equals that of the tokenizer if no token crosses a space and if the normalisation of a character does not
depend on characters across a space. This holds for the normaliser, pre-tokeniser and WordPiece of BERT. `is_wordwise`
checks it.

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
    """Return whether word-by-word tokenisation gives the same ids. Padding must be disabled in the tokenizer."""
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
    """Yield ids, int32 (T,), and the number of tokens per text, int64 (N,), block by block.

    `max_tokens` is the maximal length of a text, and must be that of the tokenizer's truncation.
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
    """Yield blocks of texts, limited by their number and their characters. A long text is a block of its own."""
    start, num_characters = 0, 0
    for stop, text in enumerate(texts):
        if stop > start and (stop - start == TEXTS_AT_ONCE or num_characters + len(text) > CHARACTERS_AT_ONCE):
            yield list(texts[start:stop])
            start, num_characters = stop, 0
        num_characters += len(text)
    yield list(texts[start:])


def _split_words(texts: list[str]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the code of each word (W,), the bounds of each text's words (N + 1), and the distinct words."""
    import pyarrow as pa
    import pyarrow.compute as pc

    lists = pc.split_pattern(pa.array(texts, pa.large_string()), " ")
    coded = lists.values.dictionary_encode()
    return coded.indices.to_numpy(), lists.offsets.to_numpy(), coded.dictionary.to_pylist()


def _tokenize_words(words: list[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids of all distinct words (T,), and the start and number of those of each word (V,)."""
    found = [encoding.ids for encoding in tokenizer.encode_batch_fast(words, add_special_tokens=False)]
    lengths_V = np.fromiter(map(len, found), np.int64, len(found))
    ids_T = np.fromiter((number for ids in found for number in ids), np.int32, lengths_V.sum())
    return ids_T, np.cumsum(lengths_V) - lengths_V, lengths_V


def _as_far_as_there_is_room(lengths_W: np.ndarray, bounds_N: np.ndarray, room: int) -> np.ndarray:
    """Return how many tokens of each word fit into its text after the preceding words, (W,)."""
    before_W = np.concatenate([[0], np.cumsum(lengths_W)])
    of_text_W = before_W[:-1] - np.repeat(before_W[bounds_N[:-1]], np.diff(bounds_N))
    return np.clip(room - of_text_W, 0, lengths_W)


def _between_specials(ids_T: np.ndarray, lengths_N: np.ndarray, ends: list[int]) -> np.ndarray:
    """Return the ids of all texts, each between the two special tokens."""
    stops_N = np.cumsum(lengths_N + len(ends))
    starts_N = stops_N - lengths_N - len(ends)
    ids = np.empty(len(ids_T) + len(ends) * len(lengths_N), np.int32)
    is_text = np.ones(len(ids), dtype=bool)
    for places_N, number in zip((starts_N, stops_N - 1), ends, strict=True):
        ids[places_N], is_text[places_N] = number, False
    ids[is_text] = ids_T
    return ids
