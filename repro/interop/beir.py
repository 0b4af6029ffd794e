"""Adapter for the search and evaluation of the library beir, on corpora and queries from its loader.

beir encodes queries before documents, so the context of a contextual model must be set first. It is drawn as in
`repro evaluate`: the same seed and the same name of the collection give the same documents.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import torch

from repro.data.beir import Retrieval, get_legal_name
from repro.data.paper.collection_rules import find_rules
from repro.evaluate.collections import Encoder
from repro.evaluate.contexts import draw_context
from repro.model.contextual import ContextualModel

if TYPE_CHECKING:
    from beir.retrieval.evaluation import EvaluateRetrieval

Corpus = Mapping[str, Mapping[str, str]]
"""A corpus from beir's GenericDataLoader: title and text by id."""


class BeirModel:
    """Encoder for `DenseRetrievalExactSearch`, whose "dot" ranks as `repro evaluate` does.

    Vectors have unit length, except those of a model whose similarity is the dot product.
    """

    def __init__(self, model: Encoder) -> None:
        self.model = model
        self.document_role = "document"

    def set_context(self, corpus: Corpus | None, *, name: str, seed: int = 0) -> Self:
        """Draw the context from a corpus. None sets the null context. A biencoder ignores it.

        `name` is the name of the collection, which is that of its folder. It selects the same prompt as in
        `repro evaluate`: documents of Quora are questions, for example. Here the name alone decides, because the queries
        are not known yet; `repro evaluate` also compares the content. For a wrong context, give another corpus and its
        name.
        """
        # as `repro evaluate` calls a folder, because the draw depends on the name
        name = get_legal_name(name)
        self.document_role = find_rules(name).document_role
        if isinstance(self.model, ContextualModel):
            source = None
            if corpus is not None:
                texts = tuple(_join_title(document) for document in corpus.values())
                source = Retrieval(name, tuple(corpus), texts, (), (), {})
            kind = "null" if source is None else "own"
            context = draw_context(kind, source, num_contexts=self.model.config.num_contexts, seed=seed)
            self.model.set_context(context.texts, seed, self.document_role)
        return self

    def encode_queries(self, queries: Sequence[str], **_: Any) -> torch.Tensor:
        """Return vectors, float32 (N, D). Options of beir such as its batch size have no effect."""
        return torch.from_numpy(self.model.encode(queries, "query"))

    def encode_corpus(self, corpus: Sequence[Mapping[str, str]], **_: Any) -> torch.Tensor:
        """Return vectors of documents with title and text, float32 (N, D)."""
        texts = [_join_title(document) for document in corpus]
        return torch.from_numpy(self.model.encode(texts, self.document_role))


def beir_retriever(model: BeirModel, k_values: Sequence[int] = (10, 100)) -> EvaluateRetrieval:
    """Return beir's exact search with a model. Call its `retrieve` and `evaluate`."""
    from beir.retrieval.evaluation import EvaluateRetrieval
    from beir.retrieval.search.dense import DenseRetrievalExactSearch

    search = DenseRetrievalExactSearch(model, batch_size=64, show_progress_bar=False)
    return EvaluateRetrieval(search, k_values=list(k_values), score_function="dot")


def _join_title(document: Mapping[str, str]) -> str:
    """Join title and text in the same way as our reader of BEIR folders."""
    return " ".join(filter(None, (document.get("title"), document.get("text")))).strip()
