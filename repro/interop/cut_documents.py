"""How many documents of a collection a model cuts, counted in some of them."""

from __future__ import annotations

from typing import Any

import numpy as np

from repro.data.prompts import with_prompt
from repro.data.tokens import load_tokenizer, tokenize
from repro.evaluate.collections import Collection
from repro.interop.stock_encoder import StockEncoder
from repro.model.encoding import TextEncoder

LOOKED_AT = 2_000
"""Documents of a collection, evenly spaced, in which is counted how many are cut."""


def cut_share(model: Any, collection: Collection) -> float | None:
    """Return the share of a collection's documents that are longer than a model reads; None where nobody knows.

    Counted in at most `LOOKED_AT` documents, evenly spaced. A model without a length of its own, as one that adds up
    word vectors, cuts none that we know of.
    """
    documents = collection.retrieval.documents
    places = np.unique(np.linspace(0, len(documents) - 1, LOOKED_AT).astype(int))
    texts = [documents[place] for place in places]
    if isinstance(model, TextEncoder):
        config = model.config
        prompted = with_prompt(texts, config.prompts, collection.document_role)
        lengths = tokenize(prompted, load_tokenizer(config.tokenizer), config.max_tokens + 1).lengths
        return float((lengths > config.max_tokens).mean())
    if isinstance(model, StockEncoder) and model.longest and callable(model.theirs.tokenizer):
        prefix, longest = model.prompts_used[collection.document_role], model.longest
        found = model.theirs.tokenizer([prefix + text for text in texts], truncation=True, max_length=longest + 1)
        return float(np.mean([len(ids) > longest for ids in found["input_ids"]]))
    return None
