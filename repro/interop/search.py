"""Search a corpus with a model: embed its documents and the queries, and rank exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from sentence_transformers.util import dot_score, semantic_search

from repro.batches.surrogate import check_vectors
from repro.data.beir import Retrieval
from repro.evaluate.contexts import draw_context
from repro.interop.arguments import is_blind, to_device
from repro.interop.corpus import Progress, read_corpus
from repro.interop.opening import open_model
from repro.model.progress import make_encoding_reporter


@dataclass(frozen=True)
class Found:
    """One retrieved document."""

    rank: int
    score: float
    id: str
    text: str


def search(
    model: str, corpus: str, queries: Sequence[str], *, top: int = 10, progress: Progress = print
) -> list[list[Found]]:
    """Return the best documents for each query.

    The context of a contextual model is drawn from the searched corpus, as `evaluate` does for a collection of its name.
    A model that was trained without documents has the null context.

    Args:
        model: A run's id, a folder, a hub id or `minilm`.
        corpus: The searched corpus.
        queries: The texts to search for.
        top: Number of documents per query.
        progress: Called with each message.

    Raises:
        ValueError: if the model or the corpus does not exist, or if a vector is not finite.
    """
    searched = read_corpus(corpus, progress)
    opened = open_model(model, progress=progress)
    to_device(opened.model)
    ids, texts = list(searched.documents), list(searched.documents.values())
    if opened.num_contexts:
        source = Retrieval(searched.name, tuple(ids), tuple(texts), (), (), {})
        kind = "null" if is_blind(opened.config) else "own"
        context = draw_context(kind, source, num_contexts=opened.num_contexts, seed=0)
        opened.model.set_context(context.texts, 0, searched.document_role)
    opened.model.report = make_encoding_reporter(progress)
    vectors_ND = opened.model.encode(texts, searched.document_role)
    # NaN scores would rank these documents last, and no message would say so
    check_vectors(vectors_ND, texts, "model")
    queries_QD = opened.model.encode(list(queries), "query")
    hits_by_query = semantic_search(
        torch.from_numpy(queries_QD), torch.from_numpy(vectors_ND), top_k=top, score_function=dot_score
    )
    return [
        [
            Found(rank, float(hit["score"]), ids[int(hit["corpus_id"])], texts[int(hit["corpus_id"])])
            for rank, hit in enumerate(hits, 1)
        ]
        for hits in hits_by_query
    ]
