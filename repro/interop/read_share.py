"""Shares of truncated documents and unknown tokens in a collection, estimated from a sample of its texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from repro.data.prompts import with_prompt
from repro.data.tokens import compute_unknown_share, load_tokenizer, tokenize
from repro.evaluate.collections import Collection
from repro.interop.stock_encoder import StockEncoder
from repro.model.encoding import TextEncoder

SAMPLE_SIZE = 2_000
"""Number of documents, and of queries, in the sample. They are evenly spaced in the collection."""


def estimate_unread_shares(model: Any, collection: Collection) -> tuple[float | None, float | None]:
    """Estimate the share of documents that are cut, and that of unknown tokens in documents and queries.

    At most `SAMPLE_SIZE` documents and queries are read. A share is None if the tokenizer does not provide it, for example
    for a model that averages word vectors and has no maximal length.
    """
    documents = _sample_evenly(collection.retrieval.documents)
    queries = _sample_evenly(collection.retrieval.queries)
    role = collection.document_role
    if isinstance(model, TextEncoder):
        config = model.config
        tokenizer, prompts = load_tokenizer(config.tokenizer), config.prompts
        texts = [*with_prompt(documents, prompts, role), *with_prompt(queries, prompts, "query")]
        # one token more than the model reads tells truncated texts from those of exactly this length
        tokens = tokenize(texts, tokenizer, config.max_tokens + 1)
        cut = (tokens.lengths[: len(documents)] > config.max_tokens).mean()
        return float(cut), compute_unknown_share(tokens, tokenizer)[0]
    if isinstance(model, StockEncoder) and model.longest and callable(model.theirs.tokenizer):
        stock_tokenizer, role_prompts, max_tokens = model.theirs.tokenizer, model.role_prompts, model.longest
        options = {"truncation": True, "max_length": max_tokens + 1}
        document_ids = stock_tokenizer([role_prompts[role] + text for text in documents], **options)["input_ids"]
        query_ids = stock_tokenizer([role_prompts["query"] + text for text in queries], **options)["input_ids"]
        cut = np.mean([len(ids) > max_tokens for ids in document_ids])
        return float(cut), _compute_unknown_share(stock_tokenizer, [*document_ids, *query_ids])
    return None, None


def _sample_evenly(texts: Sequence[str]) -> list[str]:
    rows = np.unique(np.linspace(0, len(texts) - 1, min(SAMPLE_SIZE, len(texts))).astype(int))
    return [texts[row] for row in rows]


def _compute_unknown_share(tokenizer: Any, rows: Sequence[Sequence[int]]) -> float | None:
    """Return the share of unknown tokens, not counting special ones. None if the tokenizer has no unknown token."""
    unknown = getattr(tokenizer, "unk_token_id", None)
    if unknown is None:
        return None
    special = set(getattr(tokenizer, "all_special_ids", ())) - {unknown}
    ids = [token_id for row in rows for token_id in row if token_id not in special]
    return sum(token_id == unknown for token_id in ids) / max(1, len(ids))
