"""Shares of truncated documents and unknown tokens in a collection, estimated from a sample of its texts."""

from __future__ import annotations

from typing import Any

from tokenizers import Tokenizer

from repro.data.prompts import PROMPTS
from repro.data.tokens import count_unread, load_tokenizer
from repro.evaluate.collections import Collection
from repro.interop.stock_encoder import StockEncoder
from repro.model.encoding import TextEncoder
from repro.storage.arrays import sample_evenly

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
    retrieval = collection.retrieval
    documents, queries = (
        [prompts[role] + texts[row] for row in sample_evenly(len(texts), SAMPLE_SIZE)]
        for role, texts in ((collection.document_role, retrieval.documents), ("query", retrieval.queries))
    )
    num_cut, unknown_share = count_unread(documents, queries, tokenizer, max_tokens)
    return num_cut / len(documents), unknown_share
