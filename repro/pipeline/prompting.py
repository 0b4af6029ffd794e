"""Texts behind their prompts: which prompt stands before each text of a corpus, for the model and for an encoder.

The paper's filter, nomic-embed-text-v1, was trained with task prefixes. The official code feeds it the token ids that
are trained on, so with the prefix that each domain has in training (`hn_filter_model` "nomic"; the paper does not say).
Ours sees the same prefixes: those of the domain where the corpus declares some, else those of search. It does so also
in a run that trains without prompts, where the official code would give it bare text that it was never trained on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from repro.batches.fixed_encoder import FixedEncoder
from repro.data.pairs import ROWS_PER_BATCH, Indices, Pairs, Side, TextColumn
from repro.data.paper.hub import SOURCES, prompts_by_domain
from repro.data.prompts import PROMPTS
from repro.pipeline.encoders import get_files_in_key
from repro.storage.arrays import iter_blocks

SIDES: tuple[Side, ...] = ("query", "document")


def get_encoder_in_key(encoder: FixedEncoder, corpus: str = "") -> dict[str, Any]:
    """Return what a key says of a fixed encoder beside its name: what it makes of the texts of a corpus follows."""
    return (
        {"max_tokens": encoder.max_tokens}
        | get_files_in_key(encoder.name)
        | get_prompts_in_key(encoder.prompts, corpus)
    )


def get_prompts_in_key(prompts: str, corpus: str) -> dict[str, str]:
    """Return what a stage's key says of the prompts' texts, so that editing them makes it anew; nothing without."""
    if prompts == "none":
        return {}
    declared = SOURCES[corpus].domains if corpus in SOURCES else {}
    texts = [PROMPTS[prompts], {name: domain.prompts for name, domain in declared.items()}]
    return {"prompt_texts": hashlib.sha256(json.dumps(texts, sort_keys=True).encode()).hexdigest()[:12]}


def list_prompts_of_domains(prompts: str, corpus: str, pairs: Pairs, side: Side) -> list[str]:
    """Return the prompt of each domain of the pairs, by its code: its own where the corpus declares one."""
    names, of_all = pairs.domain_names, PROMPTS[prompts]
    present = np.flatnonzero(np.bincount(pairs.domain_codes, minlength=len(names)))
    own = {} if prompts == "none" else prompts_by_domain(corpus, [names[code] for code in present])
    return [own.get(name, of_all)[SIDES.index(side)] for name in names]


def texts_for(encoder: FixedEncoder, corpus: str, pairs: Pairs, side: Side) -> TextColumn:
    """Return the queries or documents of pairs as a fixed encoder wants them: bare, or behind its prompts."""
    return PromptedTexts(pairs, side, encoder.prompts, corpus) if encoder.prompts != "none" else TextColumn(pairs, side)


class PromptedTexts(TextColumn):
    """The queries or the documents of pairs behind the prompts of one row of the table, read by their numbers."""

    def __init__(self, pairs: Pairs, side: Side, prompts: str, corpus: str) -> None:
        super().__init__(pairs, side)
        self._codes_N = pairs.domain_codes
        self._prompts = list_prompts_of_domains(prompts, corpus, pairs, side)

    def texts(self, rows: Indices) -> list[str]:
        """Return the texts of these rows, each behind its prompt."""
        codes = self._codes_N[rows].tolist()
        return [self._prompts[code] + text for code, text in zip(codes, super().texts(rows), strict=True)]

    def blocks(self, size: int = ROWS_PER_BATCH) -> Iterator[list[str]]:
        """Return all texts in order, each behind its prompt, a block at a time; memory holds one block."""
        for block in iter_blocks(len(self), size):
            yield self.texts(np.arange(block.start, block.stop))
            self.give_back()

    def text_lengths(self) -> np.ndarray:
        """Return the number of characters of each with its prompt, int32 (N,)."""
        lengths_P = np.array([len(prompt) for prompt in self._prompts], np.int32)
        return super().text_lengths() + lengths_P[self._codes_N]
