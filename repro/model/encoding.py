"""What both architectures offer to a user: context from texts, vectors from texts, a folder to save to and load from.

1. Texts get their prompt, are tokenised, cut to the model's length. 2. They are ordered by length and then by content,
so that a text meets the same batch mates whatever order it came in. 3. Vectors are L2-normalised float32.

Shapes: N texts, D size of a vector.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from repro.data.prompts import with_prompt
from repro.data.tokens import (
    TOKENIZER_FILE,
    Tokens,
    batches_of_tokens,
    load_tokenizer,
    tokenize,
    with_own_tokenizer,
    write_tokenizer,
)
from repro.model.config import ModelConfig, load_config
from repro.model.texts import Texts, texts_from
from repro.storage.arrays import iter_blocks
from repro.storage.atomic import whole_file
from repro.storage.json_files import short

WEIGHTS_FILE = "model.safetensors"
HALF_A_LETTER = re.compile("[\ud800-\udfff]")
GPU = "cuda"
TEXTS_AT_ONCE = 64
TOKENS_AT_ONCE = 131_072
"""On a GPU, padding and what stands before each text included."""


@contextmanager
def evaluation_mode(model: nn.Module) -> Iterator[None]:
    """Put a model into eval mode, without gradients, and each of its modules back into its own mode afterwards."""
    were_training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in were_training:
            module.training = True


def as_texts(texts: Iterable[str]) -> list[str]:
    """Return texts in order as a list: from a list, tuple, array, column of a table or of `datasets`.

    ValueError for one text alone, for what has no order or no end (a set, dict, generator), and for an item that is no
    text, such as None or NaN.
    """
    kind = type(texts).__name__
    if isinstance(texts, str | bytes):
        raise ValueError(f"{short(repr(texts))} is one text, and several are asked for: give a list, [text]")
    if isinstance(texts, Set | Mapping) or not hasattr(texts, "__len__") or hasattr(texts, "columns"):
        raise ValueError(f"texts are a {kind}: give a list, tuple, array or one column of a table, in a fixed order")
    found: list[Any] = texts.to_pylist() if hasattr(texts, "to_pylist") else list(texts)
    odd = next((place for place, text in enumerate(found) if not isinstance(text, str)), None)
    if odd is not None:
        num_odd = sum(not isinstance(text, str) for text in found)
        raise ValueError(
            f"text {odd} of {len(found)} is {short(repr(found[odd]))} ({type(found[odd]).__name__}), no text "
            f"({num_odd} such): replace or remove it"
        )
    for place, text in enumerate(found):
        if not text.isascii() and HALF_A_LETTER.search(text):
            raise ValueError(f"text {place} of {len(found)} holds half a letter (a lone surrogate): decode it again")
    return [str(text) for text in found]


def check_vocabulary(ids: np.ndarray, config: ModelConfig) -> None:
    """ValueError if a tokenizer gives ids that the model has no word vectors for."""
    if len(ids) and (largest := int(ids.max())) >= config.vocab_size:
        raise ValueError(
            f"the tokenizer {config.tokenizer!r} gives id {largest}, but the model has {config.vocab_size} word "
            "vectors: it is not the tokenizer that the model was trained with"
        )


class TextEncoder(nn.Module):
    """Base of `Biencoder` and `ContextualModel`."""

    config: ModelConfig
    architecture: ClassVar[str]
    report: Callable[[int, int], None] = staticmethod(lambda num_done, num_texts: None)
    """Called after each batch with how many texts of how many are encoded."""
    is_narrow = False
    """Whether stages are computed under bfloat16 autocast where a GPU is, as in training; vectors are float32."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    @property
    def num_ahead(self) -> int:
        """What the model reads before every text, in tokens."""
        return 0

    def embed_texts(self, texts: Texts) -> Tensor:
        """Return vectors under the context that was set, (N, D), not normalised; each architecture has its own."""
        raise NotImplementedError

    def current_context(self) -> Tensor | None:
        """Return the context that is set now: texts keep it, whatever another thread sets while they are embedded."""
        return None

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Choose the corpus that vectors are conditioned on; a model without context takes and ignores it."""

    def precision(self) -> AbstractContextManager[object]:
        """Return what stages are computed under outside of a training."""
        is_narrow = self.is_narrow and self.device.type == GPU
        return torch.autocast(GPU, dtype=torch.bfloat16) if is_narrow else nullcontext()

    def encode(self, texts: Sequence[str], prompt: str = "document", batch_size: int | None = None) -> np.ndarray:
        """Return L2-normalised vectors, float32 (N, D); `prompt` is "query" or "document".

        `batch_size` None: 64 texts at once, and on a GPU as many as `TOKENS_AT_ONCE` allows.
        """
        return self.encode_tokens(self.tokenize(texts, prompt), batch_size=batch_size)

    def tokenize(self, texts: Sequence[str], prompt: str) -> Tokens:
        """Return token ids of the texts with their prompt, cut to the model's length; ValueError for one text alone."""
        prompted = with_prompt(as_texts(texts), self.config.prompts, prompt)
        name = self.config.tokenizer
        tokens = tokenize(prompted, _tokenizer(name, _changed_at(name)), self.config.max_tokens)
        check_vocabulary(tokens.ids, self.config)
        return tokens

    def encode_tokens(self, tokens: Tokens, *, batch_size: int | None = None) -> np.ndarray:
        """The same from tokens that already carry their prompt."""
        context = self.current_context() if len(tokens) else None
        (vectors_ND,) = self._encode_each(tokens, [context], batch_size)
        return vectors_ND

    def _encode_each(
        self, tokens: Tokens, contexts: Sequence[Tensor | None], batch_size: int | None
    ) -> list[np.ndarray]:
        """Return the vectors of all texts under each context, None for the one that is set."""
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: it must be at least 1")
        found = [np.zeros((0, self.config.hidden_size), dtype=np.float32) for _ in contexts]
        num_done = 0
        # what is shared lies in the model, so one context, as threads may ask for, shares nothing
        with evaluation_mode(self), self.share_texts() if len(contexts) > 1 else nullcontext():
            for rows in self._batches(tokens, batch_size):
                texts = texts_from(*tokens.pad(rows)).to(self.device)
                for place, context_CE in enumerate(contexts):
                    with self.precision():
                        vectors_nD = self.embed_under(texts, context_CE).float()
                    if not len(found[place]):  # filled in place: the vectors of millions of texts lie in memory once
                        found[place] = np.empty((len(tokens), vectors_nD.shape[1]), dtype=np.float32)
                    found[place][rows] = nn.functional.normalize(vectors_nD, dim=-1).cpu().numpy()
                num_done += len(rows)
                self.report(num_done, len(tokens))
        return found

    def share_texts(self) -> AbstractContextManager[object]:
        """Return a block in which what several contexts have in common is computed once a batch."""
        return nullcontext()

    def embed_under(self, texts: Texts, context: Tensor | None) -> Tensor:
        """Return vectors under a context, None for the one that is set; a model without context knows None alone."""
        assert context is None, "this model has no context"
        return self.embed_texts(texts)

    def _batches(self, tokens: Tokens, batch_size: int | None) -> Iterator[np.ndarray]:
        """Return the places of the texts of each batch."""
        order = compute_canonical_order(tokens)
        if batch_size is None and self.device.type == GPU:
            batches = batches_of_tokens(tokens.lengths[order], TOKENS_AT_ONCE, self.num_ahead)
            return (order[rows] for rows in batches)
        return (order[part] for part in iter_blocks(len(order), batch_size or TEXTS_AT_ONCE))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors, each whole or not at all.

        The words of a model whose tokenizer is a folder go with it, as tokenizer.json: the folder may be moved.
        """
        if Path(self.config.tokenizer).is_dir():
            write_tokenizer(self.config.tokenizer, Path(folder))
        self.config.save(Path(folder))
        write_tensors(dict(self.state_dict()), Path(folder) / WEIGHTS_FILE)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Load what `save_pretrained` of this class wrote, in eval mode; ValueError says what does not fit.

        A folder's own tokenizer.json goes before the tokenizer that its config names.
        """
        config = load_config(Path(folder))
        config = replace(config, tokenizer=with_own_tokenizer(config.tokenizer, Path(folder)))
        if config.architecture != cls.architecture:
            raise ValueError(f"{folder} holds a {config.architecture} model, not a {cls.architecture} one")
        model = cls(config)
        model.load_weights(Path(folder))
        return model.eval()

    def load_weights(self, folder: Path) -> None:
        """Read model.safetensors; ValueError for a damaged one, or one that does not fit, naming what is wrong."""
        path = folder / WEIGHTS_FILE
        if not path.is_file():
            raise ValueError(f"{folder} holds no model: {WEIGHTS_FILE} is missing")
        found = _read_tensors(path)
        check_fit(get_shapes(found), get_shapes(self.state_dict()), f"{path} does not fit its config")
        self.load_state_dict(found)


def get_shapes(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor by name."""
    return {name: tuple(value.shape) for name, value in weights.items()}


def check_fit(found: Mapping[str, Sequence[int]], wanted: Mapping[str, Sequence[int]], says: str) -> None:
    """ValueError that begins with `says` when weights lack a tensor, have one too many, or one of another shape."""
    missing, extra = sorted(set(wanted) - set(found)), sorted(set(found) - set(wanted))
    odd = [
        f"{name} is {list(found[name])}, not {list(shape)}"
        for name, shape in sorted(wanted.items())
        if name in found and tuple(found[name]) != tuple(shape)
    ]
    if missing or extra or odd:
        counts = f"{len(missing)} missing, {len(extra)} extra, {len(odd)} of another shape"
        raise ValueError(f"{says}: {counts}; first of each: {missing[:3]} {extra[:3]} {odd[:3]}")


def compute_canonical_order(tokens: Tokens) -> np.ndarray:
    """Return the places of the texts by length, then by token ids: the same batches for any order of the same texts."""
    lengths, ids = tokens.lengths, np.asarray(tokens.ids)
    order = np.argsort(lengths, kind="stable")
    for alike in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):  # views: texts of one length
        length = int(lengths[alike[0]]) if len(alike) > 1 else 0
        if length:
            texts_NS = np.ascontiguousarray(sliding_window_view(ids, length)[tokens.offsets[alike]])
            # numpy drops zero bytes at the end of such a key, which changes no order among keys of one length
            keys_N = texts_NS.view(f"S{length * ids.itemsize}")[:, 0]
            alike[:] = alike[np.argsort(keys_N, kind="stable")]
    return order


def _read_tensors(path: Path) -> dict[str, Tensor]:
    """Return what `write_tensors` wrote; ValueError when it is damaged or holds a number that is not finite."""
    try:
        found = load_file(path)
    except (OSError, SafetensorError) as error:
        raise ValueError(f"{path} is damaged or no safetensors file ({error}): restore it or train again") from error
    odd = [name for name, value in found.items() if not bool(torch.isfinite(value).all())]
    if odd:
        raise ValueError(f"{path} holds numbers that are not finite in {odd[:3]} ({len(odd)} tensors)")
    return found


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file by rename; OSError in one line when it cannot be written, what was there stays."""
    try:
        with whole_file(path, lasts=True) as part:
            save_file({name: value.detach().contiguous() for name, value in tensors.items()}, part, metadata)
    except (OSError, SafetensorError) as error:
        told = re.search(r"os error (\d+)", str(error))  # safetensors has the system's number only in its words
        number = getattr(error, "errno", None) or (int(told[1]) if told else errno.EIO)
        raise OSError(number, f"could not write {path} ({error}); what was there before is untouched") from error


def _changed_at(tokenizer: str) -> int:
    """Return when a folder's tokenizer was last written; 0 for one that is named and does not change."""
    path = Path(tokenizer) / TOKENIZER_FILE
    return path.stat().st_mtime_ns if path.is_file() else 0


@lru_cache(maxsize=4)
def _tokenizer(name: str, changed_at: int) -> Tokenizer:
    return load_tokenizer(name)
