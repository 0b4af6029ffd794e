"""Wrapper that lets models of sentence-transformers be scored like ours: prompts and similarity."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
MANY_TEXTS = 1024
"""Number of texts from which the library shows its progress bar."""
MAX_LENGTH = 2**31


class StockEncoder:
    """A model of sentence-transformers with the interface of our models. It takes no context.

    Attributes:
        theirs: The model.
        called: Its name in messages.
        report: Not called, because the library shows a progress bar of its own.

    Raises:
        ValueError: if its similarity is not an inner product, since search ranks by inner products.
    """

    def __init__(self, theirs: SentenceTransformer, called: str = "model") -> None:
        if theirs.similarity_fn_name not in SIMILARITIES:
            raise ValueError(f"{called} has similarity {theirs.similarity_fn_name!r}, none of {SIMILARITIES}")
        self.theirs = theirs
        self.report: Callable[[int, int], None] = lambda num_done, num_texts: None

    @property
    def similarity(self) -> str:
        """Its similarity function: "cosine", or "dot", which depends on the lengths of vectors too."""
        return str(self.theirs.similarity_fn_name)

    @property
    def longest(self) -> int | None:
        """Maximal number of tokens of a document. None if texts are never truncated, or if it is unknown."""
        length = getattr(self.theirs[0], "document_length", None) or self.theirs.max_seq_length
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
        """Return vectors, float32 (N, D). They are normalised unless the similarity is the dot product."""
        # Each text once: padding changes the last digits of a vector, so equal texts would not tie.
        positions = {text: position for position, text in enumerate(dict.fromkeys(texts))}
        distinct_ND = self.theirs.encode(
            list(positions),
            prompt_name=self._get_prompt_name(prompt),
            show_progress_bar=len(texts) >= MANY_TEXTS,
            # some models have lengths by role
            task=prompt,
        ).astype(np.float32)
        vectors_ND = distinct_ND[[positions[text] for text in texts]]
        # here and not by the library, because half-precision lengths are inexact
        return vectors_ND if self.similarity == DOT else normalize(vectors_ND)

    def to(self, device: str) -> None:
        """Put the weights on a device."""
        self.theirs.to(device)

    def _get_prompt_name(self, role: str) -> str:
        """Return the name of the prompt of a role, the role itself if it has none: the library adds an empty one."""
        names = DOCUMENT_PROMPT_NAMES if role == "document" else (role,)
        return next((name for name in names if self.theirs.prompts.get(name)), role)
