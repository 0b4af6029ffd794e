"""Search a corpus with a model: embed its documents and the queries, and rank exactly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from repro.data.beir import Retrieval
from repro.interop.arguments import check_contexts, check_model, to_device
from repro.interop.corpus import Progress, describe_column_choice, find_corpus
from repro.interop.named_runs import find_named_run

if TYPE_CHECKING:
    from repro.interop.opening import Opened

CONTEXTS = ("own", "null")
HINT = "leave out --context"


@dataclass(frozen=True)
class Found:
    """One retrieved document."""

    rank: int
    score: float
    id: str
    text: str


def search(
    model: str,
    corpus: str,
    queries: Sequence[str],
    *,
    context: str | None = None,
    context_seed: int = 0,
    top: int = 10,
    progress: Progress = print,
) -> list[list[Found]]:
    """Return the best documents for each query.

    Args:
        model: A run's id, a folder, a hub id or `minilm`.
        corpus: The searched corpus.
        queries: The texts to search for.
        context: "own", "null", or a corpus to draw the context from. Default: "own", or "null" for a model trained
            without documents.
        context_seed: Seed for drawing the context.
        top: Number of documents per query.
        progress: Called with each message.

    Raises:
        ValueError: if the model, the corpus or the context does not exist.
    """
    check_model(model)
    run, contexts = find_named_run(model), [] if context is None else [context]
    if run is not None:
        # by the fields of the run, because opening it may train it
        check_contexts({model: run}, contexts, hint=HINT)
    searched = find_corpus(corpus, progress)
    other = None if context in (None, *CONTEXTS) else find_corpus(str(context), progress)
    documents = searched.read()
    for line in describe_column_choice(searched):
        progress(line)
    # these load torch, so mistakes above are reported at once
    import torch
    from sentence_transformers.util import dot_score, semantic_search

    from repro.batches.surrogate import check_vectors
    from repro.interop.opening import open_model
    from repro.model.progress import make_encoding_reporter

    opened = open_model(model, progress=progress)
    to_device(opened.model)
    check_contexts({model: opened.config}, contexts, hint=HINT)
    if opened.num_contexts:
        is_null = context == "null" or (context is None and opened.ours.config.is_blind)
        source = searched.name, documents
        if other is not None:
            source = other.name, other.read()
        _set_context(opened, "null" if is_null else "own", *source, searched.document_role, context_seed)
    opened.model.report = make_encoding_reporter(progress)
    ids, texts = list(documents), list(documents.values())
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


def _set_context(opened: Opened, kind: str, name: str, documents: dict[str, str], role: str, seed: int) -> None:
    """Draw the context from a corpus, as `evaluate` does for a collection of this name."""
    from repro.evaluate.contexts import draw_context

    source = Retrieval(name, tuple(documents), tuple(documents.values()), (), (), {})
    context = draw_context(kind, source, num_contexts=opened.num_contexts, seed=seed)
    opened.ours.set_context(context.texts, seed, role)
