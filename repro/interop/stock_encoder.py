"""Wrapper that lets models of sentence-transformers be scored like ours: prompts and similarity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from repro.evaluate.adaptation import normalize

if TYPE_CHECKING:
    import torch
    from sentence_transformers import SentenceTransformer

ROLES = ("query", "document")
DOCUMENT_PROMPT_NAMES = ("document", "passage", "corpus")
"""Accepted names of the document prompt. The first one that is not empty is used."""
DOT = "dot"
SIMILARITIES = ("cosine", DOT)
TEXTS_PER_BLOCK = 256
MAX_LENGTH = 2**31


def check_similarity(theirs: SentenceTransformer, folder: Path) -> None:
    """Raise ValueError if a model's similarity is not an inner product, since search ranks by inner products."""
    name = theirs.similarity_fn_name
    if name not in SIMILARITIES:
        raise ValueError(
            f"{folder} compares its vectors by {name!r} (similarity_fn_name), which is not supported; choose a model "
            f"with one of {list(SIMILARITIES)}"
        )


class StockEncoder:
    """A model of sentence-transformers with the interface of our models. It takes no context.

    Attributes:
        theirs: The model.
        report: Callback after each block of texts: report(number of encoded texts, number of all texts).
    """

    def __init__(self, theirs: SentenceTransformer) -> None:
        self.theirs = theirs
        self.report: Callable[[int, int], None] = lambda num_done, num_texts: None

    @property
    def similarity(self) -> str:
        """Its similarity function: "cosine", or "dot", which depends on the lengths of vectors too."""
        return str(self.theirs.similarity_fn_name)

    @property
    def keeps_lengths(self) -> bool:
        """Whether vectors and their prefixes are searched without normalisation."""
        return self.similarity == DOT

    @property
    def longest(self) -> int | None:
        """Maximal number of tokens. None if texts are never truncated, or if it is unknown."""
        length = self.theirs.max_seq_length
        # a tokenizer without a limit has 1e30
        return int(length) if length and length < MAX_LENGTH else None

    @property
    def device(self) -> torch.device:
        """The device of its weights."""
        return self.theirs.device

    @property
    def dtype(self) -> str:
        """The type of its weights, for example "float16"."""
        weights = next(self.theirs.parameters(), None)
        return "float32" if weights is None else str(weights.dtype).removeprefix("torch.")

    @property
    def role_prompts(self) -> dict[str, str]:
        """The text in front of queries and of documents, by role."""
        return {role: self.theirs.prompts[self._get_prompt_name(role)] or "" for role in ROLES}

    @property
    def unused_prompts(self) -> list[str]:
        """Names of its prompts that are not empty and not used for either role."""
        used = self.role_prompts.values()
        return [name for name, text in self.theirs.prompts.items() if text and text not in used]

    @property
    def settings(self) -> Mapping[str, Any]:
        """Its provenance in a score, as plain values."""
        return {
            "prompts": dict(self.theirs.prompts),
            "prompts_used": self.role_prompts,
            "max_tokens": self.longest,
            "similarity": self.similarity,
        }

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Ignore a context."""

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return vectors, float32 (N, D). They are normalised unless the similarity is the dot product.

        `prompt` also selects the route in a model with different modules per role.
        """
        options: dict[str, Any] = {"prompt_name": self._get_prompt_name(prompt), "task": prompt}
        if len(texts) <= TEXTS_PER_BLOCK:
            return self._to_float32(self.theirs.encode(list(texts), **options))
        # by length, so that the texts of a block need little padding
        order = np.argsort([len(text) for text in texts], kind="stable")
        blocks = []
        for start in range(0, len(texts), TEXTS_PER_BLOCK):
            rows = order[start : start + TEXTS_PER_BLOCK]
            blocks.append(self._to_float32(self.theirs.encode([texts[row] for row in rows], **options)))
            self.report(start + len(rows), len(texts))
        return np.concatenate(blocks)[np.argsort(order)]

    def _to_float32(self, vectors_ND: np.ndarray) -> np.ndarray:
        """Return vectors in float32. They are normalised afterwards, because half-precision lengths are inexact."""
        vectors_ND = vectors_ND.astype(np.float32)
        return vectors_ND if self.keeps_lengths else normalize(vectors_ND)

    def to(self, device: str) -> None:
        """Put the weights on a device."""
        self.theirs.to(device)

    def _get_prompt_name(self, role: str) -> str:
        """Return the name of the prompt of a role, the role itself if it has none: the library adds an empty one."""
        names = DOCUMENT_PROMPT_NAMES if role == "document" else (role,)
        return next((name for name in names if self.theirs.prompts.get(name)), role)
