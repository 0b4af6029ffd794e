"""How much of a collection a model reads, count_noun in some of its texts: cut documents and unknown tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from repro.data.prompts import with_prompt
from repro.data.tokens import load_tokenizer, tokenize, unknown_tokens
from repro.evaluate.collections import Collection
from repro.interop.stock_encoder import StockEncoder
from repro.model.encoding import TextEncoder

LOOKED_AT = 2_000
"""Documents, and queries, of a collection in which tokens are count_noun, evenly spaced."""


@dataclass(frozen=True)
class ReadShare:
    """What a model reads of a collection; None where its tokenizer does not tell.

    Attributes:
        cut: The share of documents that are longer than the model reads.
        unknown: The share of unknown tokens in documents and queries.
    """

    cut: float | None = None
    unknown: float | None = None


def count_read(model: Any, collection: Collection) -> ReadShare:
    """Return what a model reads of at most `LOOKED_AT` documents and queries of a collection.

    A model without a length of its own, as one that adds up word vectors, cuts none that we know of.
    """
    documents, queries = _some(collection.retrieval.documents), _some(collection.retrieval.queries)
    role = collection.document_role
    if isinstance(model, TextEncoder):
        config = model.config
        tokenizer, prompts = load_tokenizer(config.tokenizer), config.prompts
        texts = [*with_prompt(documents, prompts, role), *with_prompt(queries, prompts, "query")]
        found = tokenize(texts, tokenizer, config.max_tokens + 1)
        cut = (found.lengths[: len(documents)] > config.max_tokens).mean()
        return ReadShare(float(cut), unknown_tokens(found, tokenizer)[0])
    if isinstance(model, StockEncoder) and model.longest and callable(model.theirs.tokenizer):
        words, longest = model.theirs.tokenizer, model.longest
        ids = [
            words([model.prompts_used[one] + text for text in texts], truncation=True, max_length=longest + 1)
            for texts, one in ((documents, role), (queries, "query"))
        ]
        cut = float(np.mean([len(row) > longest for row in ids[0]["input_ids"]]))
        return ReadShare(cut, _unknown_share(words, [row for one in ids for row in one["input_ids"]]))
    return ReadShare()


def _some(texts: Sequence[str]) -> list[str]:
    places = np.unique(np.linspace(0, len(texts) - 1, min(LOOKED_AT, len(texts))).astype(int))
    return [texts[place] for place in places]


def _unknown_share(tokenizer: Any, rows: Sequence[Sequence[int]]) -> float | None:
    """Return the share of unknown tokens among all but special ones; None for a tokenizer without an unknown token."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:
        return None
    special = set(getattr(tokenizer, "all_special_ids", ())) - {unknown}
    ids = [number for row in rows for number in row if number not in special]
    return sum(number == unknown for number in ids) / max(1, len(ids))
