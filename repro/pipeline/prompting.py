"""Prepend prompts to the texts of a corpus, for the model and for fixed encoders.

The paper's filter, nomic-embed-text-v1, was trained with task prefixes. The official code feeds it the token ids of
training, so with the prefix of each domain (`hn_filter_model` "nomic"). The paper does not mention this. Our filter
gets the same prefixes: those that the corpus declares for a domain, otherwise those of search. We also add them in a run
that trains without prompts. The official code would pass bare text there, which the filter was never trained on.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from repro.batches.fixed_encoder import FixedEncoder
from repro.data.pairs import SIDES, Indices, Pairs, Side, TextColumn
from repro.data.paper.hub import SOURCES, get_prompts_by_domain
from repro.data.prompts import PROMPTS
from repro.pipeline.encoders import get_files_in_key
from repro.storage.digests import hash_json


def get_encoder_in_key(encoder: FixedEncoder, corpus: str = "") -> dict[str, Any]:
    """Return the parts of a stage key that decide how an encoder embeds a corpus, in addition to the encoder's name."""
    return (
        {"max_tokens": encoder.max_tokens}
        | get_files_in_key(encoder.name)
        | get_prompts_in_key(encoder.prompts, corpus)
    )


def get_prompts_in_key(prompts: str, corpus: str) -> dict[str, str]:
    """Return the digest of the prompt texts for a stage key, so that editing them rebuilds it. Empty without prompts."""
    if prompts == "none":
        return {}
    declared = SOURCES[corpus].domains if corpus in SOURCES else {}
    texts = [PROMPTS[prompts], {name: domain.prompts for name, domain in declared.items()}]
    return {"prompt_texts": hash_json(texts)[:12]}


def list_domain_prompts(prompts: str, corpus: str, pairs: Pairs, side: Side) -> list[str]:
    """Return the prompt of each domain of the pairs, by its code. A domain's own prompt comes before the general one."""
    names = pairs.domain_names
    present = np.flatnonzero(np.bincount(pairs.domain_codes, minlength=len(names)))
    by_domain = {} if prompts == "none" else get_prompts_by_domain(corpus, [names[code] for code in present])
    return [by_domain.get(name, PROMPTS[prompts])[SIDES.index(side)] for name in names]


class PromptedTexts(TextColumn):
    """The queries or the documents of pairs with their prompts, read by row."""

    def __init__(self, pairs: Pairs, side: Side, prompts: str, corpus: str) -> None:
        super().__init__(pairs, side)
        self._codes_N = pairs.domain_codes
        self._prompts = list_domain_prompts(prompts, corpus, pairs, side)

    def texts(self, rows: Indices) -> list[str]:
        """Return the texts of these rows with their prompts."""
        codes = self._codes_N[rows].tolist()
        return [self._prompts[code] + text for code, text in zip(codes, super().texts(rows), strict=True)]
