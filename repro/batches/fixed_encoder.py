"""Describe a fixed encoder of a run: its name, token limit and prompts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repro.batches.sentence_encoder import SentenceEncoder
from repro.batches.surrogate import Surrogate, check_vectors, load_surrogate
from repro.data.prompts import with_prompt
from repro.spec import Run

PROMPTED_ENCODERS = ("nomic-embed-text",)
"""Name prefixes, without owner, of the fixed encoders that need task prompts. All others receive the text alone."""
E5 = ("e5-", "multilingual-e5-")
"""Name prefixes of encoders that need "query: " or "passage: " before each text, which most of their folders do not store."""


@dataclass(frozen=True)
class FixedEncoder:
    """Encoder that is never trained and ignores context. It is loaded when it embeds its first text."""

    name: str
    max_tokens: int

    @property
    def prompts(self) -> str:
        """Row of the prompt table, "none" for most encoders."""
        return "task" if self._is_named(PROMPTED_ENCODERS) else "none"

    def _is_named(self, prefixes: tuple[str, ...]) -> bool:
        # OWNER/NAME on the hub, NAME@DIGEST from a folder
        return self.name.rpartition("/")[2].startswith(prefixes)

    def load(self) -> Surrogate:
        """Load the encoder. Its `embed` expects texts that include their prompts.

        Raises ValueError if it needs prompts that its texts would not get.
        """
        encoder = load_surrogate(self.name)
        stored = encoder.stored_prompts if isinstance(encoder, SentenceEncoder) else []
        if self.prompts == "none" and (stored or self._is_named(E5)):
            needed = f"stores prompts {stored}" if stored else "needs prompts"
            raise ValueError(f"{self.name} {needed}, but a surrogate gets texts without: choose another")
        return encoder

    loaded = cached_property(load)
    """Loaded encoder, cached with this object."""

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Ignore the context."""

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return unit vectors of the prompted texts, float32 (N, D)."""
        return self.embed(with_prompt(texts, self.prompts, prompt))

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Return unit vectors of the texts as they are, float32 (N, D). Raises ValueError if a vector is not finite."""
        vectors_ND = self.loaded.embed(texts, self.max_tokens)
        check_vectors(vectors_ND, texts)
        return vectors_ND


def get_surrogate(run: Run) -> FixedEncoder:
    """Return the surrogate of a run."""
    return FixedEncoder(run.surrogate, run.max_tokens)


def get_filter_encoder(run: Run) -> FixedEncoder:
    """Return the encoder of the false-negative filter: the run's filter model, or its surrogate if none is set."""
    return FixedEncoder(run.filter_model or run.surrogate, run.max_tokens)
