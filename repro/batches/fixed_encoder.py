"""A fixed encoder as runs use it: a surrogate or a filter, how many tokens it sees of a text, the prompts it wants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from repro.batches.surrogate import Surrogate, load_surrogate
from repro.data.prompts import with_prompt
from repro.spec import Run

PROMPTS_OF_ENCODERS = {"nomic-ai/nomic-embed-text-v1": "task"}
"""Fixed encoders that want prompts, and which row of the table of prompts; all others are given bare text."""
WIDTHS, WIDEST = {"minilm-words": 128, "minilm": 384}, 768
"""Dimensions of the surrogates from wheels; of others, those of the paper's."""


@dataclass(frozen=True)
class FixedEncoder:
    """An encoder that is never trained and has no context; it is loaded with the first text that it embeds."""

    name: str
    max_tokens: int

    @property
    def prompts(self) -> str:
        """The row of the table of prompts that it wants: "none" for most."""
        return PROMPTS_OF_ENCODERS.get(self.name, "none")

    @property
    def width(self) -> int:
        """The dimensions of its vectors, told without loading it."""
        return WIDTHS.get(self.name, WIDEST)

    @cached_property
    def loaded(self) -> Surrogate:
        """The encoder itself, in memory as long as this object; its `embed` takes texts that have their prompts."""
        return load_surrogate(self.name)

    def set_context(self, texts: Sequence[str] | None, seed: int = 0, prompt: str = "document") -> None:
        """Take and ignore a context."""

    def encode(self, texts: Sequence[str], prompt: str = "document") -> np.ndarray:
        """Return unit vectors, float32 (N, D), of N texts behind its prompt."""
        return self.loaded.embed(with_prompt(texts, self.prompts, prompt), self.max_tokens)


def get_surrogate(run: Run) -> FixedEncoder:
    """Return a run's surrogate."""
    return FixedEncoder(run.surrogate, run.max_tokens)


def filter_of(run: Run) -> FixedEncoder:
    """Return what a run's filter goes by: its own model, or the surrogate."""
    return FixedEncoder(run.filter_model or run.surrogate, run.max_tokens)
