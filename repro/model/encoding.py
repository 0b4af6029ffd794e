"""Base class of both models: encode texts, and save and load the model.

1. Texts get their prompt, are tokenized and cut to the model's length.
2. They are sorted by length and then by content. The batches therefore do not depend on the input order.
3. Vectors are L2-normalised float32.

Shapes: N texts, D vector size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import ClassVar, Self

import numpy as np
import torch
from numpy.lib.stride_tricks import sliding_window_view
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import Tensor, nn

from repro.data.prompts import with_prompt
from repro.data.tokens import Tokens, iter_token_batches, load_tokenizer, resolve_tokenizer, tokenize, write_tokenizer
from repro.model.config import ModelConfig, load_config
from repro.model.modeling_cde import as_texts, evaluation_mode
from repro.model.texts import Texts, make_texts
from repro.storage.arrays import iter_blocks
from repro.storage.files import atomic_file, name_in_errors
from repro.storage.tensor_files import DIGEST, add_digest, check_digest

WEIGHTS_FILE = "model.safetensors"
GPU = "cuda"
TEXTS_PER_CHUNK = 64
TOKENS_PER_CHUNK = 131_072
"""Tokens per batch on a GPU, including padding and the prefix of each text."""


class TextEncoder(nn.Module):
    """Base class of `Biencoder` and `ContextualModel`."""

    config: ModelConfig
    architecture: ClassVar[str]
    report: Callable[[int, int], None] = staticmethod(lambda num_done, num_texts: None)
    """Callback after each batch: report(number of encoded texts, number of all texts)."""
    is_narrow = False
    """Whether a GPU computes the stages under bfloat16 autocast, as in training. Vectors are always float32."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config

    @property
    def device(self) -> torch.device:
        """Device of the weights."""
        return next(self.parameters()).device

    @cached_property
    def _tokenizer(self) -> Tokenizer:
        return load_tokenizer(self.config.tokenizer)

    @property
    def num_prefix(self) -> int:
        """Number of positions before each text."""
        return 0

    def embed_texts(self, texts: Texts, context_CE: Tensor | None = None) -> Tensor:
        """Return vectors under a context, or under the current one, (N, D), not normalised.

        Each architecture implements it.
        """
        raise NotImplementedError

    def current_context(self) -> Tensor | None:
        """Return the current context. A call uses it for all its texts, even if another thread sets a new one."""
        return None

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Set the corpus that vectors are conditioned on. Models without context ignore it."""

    def precision(self) -> AbstractContextManager[object]:
        """Return the autocast context for encoding, outside of training."""
        is_narrow = self.is_narrow and self.device.type == GPU
        return torch.autocast(GPU, dtype=torch.bfloat16) if is_narrow else nullcontext()

    def encode(self, texts: Sequence[str], prompt: str = "document", batch_size: int | None = None) -> np.ndarray:
        """Return L2-normalised vectors, float32 (N, D). `prompt` is "query" or "document".

        If `batch_size` is None, a CPU encodes 64 texts per batch. A GPU encodes as many as `TOKENS_PER_CHUNK` allows.
        """
        return self.encode_tokens(self.tokenize(texts, prompt), batch_size=batch_size)

    def tokenize(self, texts: Sequence[str], prompt: str) -> Tokens:
        """Return the token ids of the prompted texts, cut to the model's length. Raises ValueError for a single string."""
        prompted = with_prompt(as_texts(texts), self.config.prompts, prompt)
        tokens = tokenize(prompted, self._tokenizer, self.config.max_tokens)
        if len(tokens.ids) and (largest_id := int(tokens.ids.max())) >= self.config.vocab_size:
            name = self.config.tokenizer
            raise ValueError(f"{name!r} gives id {largest_id}: it is not the tokenizer of the training run")
        return tokens

    def encode_tokens(self, tokens: Tokens, *, batch_size: int | None = None) -> np.ndarray:
        """Return the vectors of tokens that already include their prompt, float32 (N, D)."""
        # Without texts, a model without a context raises no error.
        context_CE = self.current_context() if len(tokens) else None
        return self.encode_under(tokens, context_CE, batch_size)

    def encode_under(self, tokens: Tokens, context_CE: Tensor | None, batch_size: int | None = None) -> np.ndarray:
        """Return `encode_tokens` under a context. A model without context accepts only None."""
        if batch_size is not None and batch_size < 1:
            raise ValueError(f"batch_size is {batch_size}: it must be at least 1")
        # Filled in place, millions of vectors are in memory only once.
        vectors_ND = np.empty((len(tokens), self.config.hidden_size), dtype=np.float32)
        num_done = 0
        with evaluation_mode(self):
            for rows in self.iter_batches(tokens, batch_size):
                vectors_ND[rows] = self.encode_batch(tokens, rows, context_CE)
                num_done += len(rows)
                self.report(num_done, len(tokens))
        return vectors_ND

    def encode_batch(self, tokens: Tokens, rows: np.ndarray, context_CE: Tensor | None) -> np.ndarray:
        """Return the L2-normalised vectors of one batch under a context, (n, D)."""
        texts = make_texts(*tokens.pad(rows)).to(self.device)
        with self.precision():
            vectors_nD = self.embed_texts(texts, context_CE).float()
        return nn.functional.normalize(vectors_nD, dim=-1).cpu().numpy()

    def iter_batches(self, tokens: Tokens, batch_size: int | None) -> Iterator[np.ndarray]:
        """Return the positions of the texts of each batch."""
        order = compute_canonical_order(tokens)
        if batch_size is None and self.device.type == GPU:
            batches = iter_token_batches(tokens.lengths[order], TOKENS_PER_CHUNK, self.num_prefix)
            return (order[rows] for rows in batches)
        return (order[part] for part in iter_blocks(len(order), batch_size or TEXTS_PER_CHUNK))

    def save_pretrained(self, folder: str | Path) -> None:
        """Write config.json and model.safetensors. Each file is replaced atomically.

        If the tokenizer is a folder, its tokenizer.json is copied, so that the saved folder is self-contained.
        """
        if Path(self.config.tokenizer).is_dir():
            write_tokenizer(self.config.tokenizer, Path(folder))
        self.config.save(Path(folder))
        # Weights come last: a folder without them is not taken for a model.
        write_tensors(dict(self.state_dict()), Path(folder) / WEIGHTS_FILE)

    @classmethod
    def from_pretrained(cls, folder: str | Path) -> Self:
        """Load a folder that `save_pretrained` wrote, in eval mode. A tokenizer.json in the folder has priority.

        Raises ValueError if the files are missing or do not match.
        """
        config = load_config(Path(folder))
        config = replace(config, tokenizer=resolve_tokenizer(config.tokenizer, Path(folder)))
        if config.architecture != cls.architecture:
            raise ValueError(f"{folder} holds a {config.architecture} model, not a {cls.architecture} one")
        model = cls(config)
        path = Path(folder) / WEIGHTS_FILE
        weights = read_tensors(path)
        check_fit(get_shapes(weights), get_shapes(model.state_dict()), f"{path} does not fit its config")
        model.load_state_dict(weights)
        return model.eval()


def get_shapes(weights: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each tensor by name."""
    return {name: tuple(value.shape) for name, value in weights.items()}


def check_fit(actual: Mapping[str, Sequence[int]], expected: Mapping[str, Sequence[int]], message: str) -> None:
    """Raise ValueError if tensors are missing, unexpected or of another shape. The message begins with `message`."""
    missing, extra = sorted(set(expected) - set(actual)), sorted(set(actual) - set(expected))
    mismatched = [
        f"{name} is {list(actual[name])}, not {list(shape)}"
        for name, shape in sorted(expected.items())
        if name in actual and tuple(actual[name]) != tuple(shape)
    ]
    if missing or extra or mismatched:
        counts = f"{len(missing)} missing, {len(extra)} extra, {len(mismatched)} of another shape"
        raise ValueError(f"{message}: {counts}; first of each: {missing[:3]} {extra[:3]} {mismatched[:3]}")


def compute_canonical_order(tokens: Tokens) -> np.ndarray:
    """Return the positions of the texts sorted by length, then by token ids.

    The same texts in any order give the same batches.
    """
    lengths, ids = tokens.lengths, np.asarray(tokens.ids)
    # Sorting by length reduces padding. Sorting equal lengths by content removes the influence of the input order.
    order = np.argsort(lengths, kind="stable")
    # Each group of equal length is a view, so sorting it changes `order`.
    for group in np.split(order, np.flatnonzero(np.diff(lengths[order])) + 1):
        length = int(lengths[group[0]]) if len(group) > 1 else 0
        if length:
            texts_NS = np.ascontiguousarray(sliding_window_view(ids, length)[tokens.offsets[group]])
            # View each row of ids as one byte string. numpy ignores trailing zero bytes, which does not change the
            # order of keys with equal length.
            keys_N = texts_NS.view(f"S{length * ids.itemsize}")[:, 0]
            group[:] = group[np.argsort(keys_N, kind="stable")]
    return order


def read_tensors(path: Path) -> dict[str, Tensor]:
    """Read a safetensors file. Raises ValueError if it does not match its digest or contains non-finite numbers."""
    with name_in_errors(path):
        check_digest(path)
        tensors = load_file(path)
    # `isfinite` is not implemented for every type of eight bits
    not_finite = [name for name, value in tensors.items() if not bool(torch.isfinite(value.float()).all())]
    if not_finite:
        raise ValueError(f"{path} holds numbers that are not finite in {not_finite[:3]} ({len(not_finite)} tensors)")
    return tensors


def write_tensors(tensors: dict[str, Tensor], path: Path, metadata: dict[str, str] | None = None) -> None:
    """Write a safetensors file with its digest, atomically. If this fails, the previous file is unchanged."""
    with name_in_errors(path), atomic_file(path, lasts=True) as part:
        contiguous = {name: value.detach().contiguous() for name, value in tensors.items()}
        # The library ignores the umask, so that others of a group could not read the file.
        part.touch()
        mode = part.stat().st_mode
        save_file(contiguous, part, {**(metadata or {}), DIGEST: "0" * 64})
        part.chmod(mode)
        add_digest(part)
