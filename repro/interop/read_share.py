"""Shares of truncated documents and unknown tokens in a collection, estimated from a sample of its texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from repro.data.prompts import PROMPTS
from repro.data.tokens import compute_unknown_share, load_tokenizer, tokenize
from repro.evaluate.collections import Collection
from repro.interop.stock_encoder import StockEncoder
from repro.model.encoding import TextEncoder

SAMPLE_SIZE = 2_000
"""Number of documents, and of queries, in the sample. They are evenly spaced in the collection."""


def estimate_unread_shares(model: Any, collection: Collection) -> tuple[float | None, float | None]:
    """Estimate the share of documents that are cut, and that of unknown tokens in documents and queries.

    At most `SAMPLE_SIZE` documents and queries are read. Shares are None for a model without a maximal length or a fast
    tokenizer, for example one that averages word vectors.
    """
    if isinstance(model, TextEncoder):
        tokenizer, max_tokens = load_tokenizer(model.config.tokenizer), model.config.max_tokens
        prompts = PROMPTS[model.config.prompts]._asdict()
    elif isinstance(model, StockEncoder) and model.longest and hasattr(model.theirs.tokenizer, "backend_tokenizer"):
        # a copy, because counting sets its length
        tokenizer = Tokenizer.from_str(model.theirs.tokenizer.backend_tokenizer.to_str())
        prompts, max_tokens = model.role_prompts, model.longest
    else:
        return None, None
    documents = [prompts[collection.document_role] + text for text in _sample_evenly(collection.retrieval.documents)]
    queries = [prompts["query"] + text for text in _sample_evenly(collection.retrieval.queries)]
    # one token more than the model reads tells truncated texts from those of exactly this length
    tokens = tokenize([*documents, *queries], tokenizer, max_tokens + 1)
    cut = (tokens.lengths[: len(documents)] > max_tokens).mean()
    return float(cut), compute_unknown_share(tokens, tokenizer)[0]


def _sample_evenly(texts: Sequence[str]) -> list[str]:
    rows = np.unique(np.linspace(0, len(texts) - 1, min(SAMPLE_SIZE, len(texts))).astype(int))
    return [texts[row] for row in rows]
