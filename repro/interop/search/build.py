"""Build an index with a model, and encode queries under its context."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repro.batches.surrogate import check_vectors
from repro.data.beir import Retrieval
from repro.data.wording import is_empty
from repro.evaluate.contexts import draw_context
from repro.interop.corpus import Corpus, describe_column_choice
from repro.interop.opening import Opened
from repro.interop.search.index import (
    CONTEXT_FILE,
    OFFSETS_FILE,
    SETTINGS_FILE,
    TEXTS_FILE,
    VECTORS_FILE,
    Index,
    Progress,
    SearchRequest,
)
from repro.model.contextual import ContextualModel
from repro.model.modeling_cde import as_texts
from repro.model.progress import make_encoding_reporter
from repro.storage.files import atomic_folder


def build_index(
    opened: Opened,
    request: SearchRequest,
    corpus: Corpus,
    context_corpus: Corpus | None,
    folder: Path,
    progress: Progress,
) -> None:
    """Write the index of a corpus into a folder, completely or not at all."""
    started = time.monotonic()
    documents, _ = corpus.read(progress)
    if not documents:
        raise ValueError(f"corpus {corpus.name} holds no documents")
    for line in describe_column_choice(corpus):
        progress(line)
    context = set_context(opened, request, corpus, documents, context_corpus, progress)
    opened.model.report = make_encoding_reporter(progress)
    texts = list(documents.values())
    # Encoding may take hours. The folder is begun after it, because `prune` removes folders that stay unfinished.
    vectors_ND = opened.model.encode(texts, corpus.document_role)
    # NaN scores would rank these documents last, and no message would say so
    check_vectors(vectors_ND, texts, "model")
    with atomic_folder(folder) as part:
        np.save(part / VECTORS_FILE, vectors_ND)
        # byte offsets of the lines, so that a query reads only the texts that it finds
        offsets, offset = [], 0
        with (part / TEXTS_FILE).open("wb") as file:
            for document_id, text in documents.items():
                offsets.append(offset)
                # `write` returns the number of bytes, which is the offset of the next line.
                offset += file.write(json.dumps({"id": document_id, "text": text}).encode() + b"\n")
        np.save(part / OFFSETS_FILE, np.asarray(offsets, np.int64))
        if isinstance(opened.model, ContextualModel):
            np.save(part / CONTEXT_FILE, opened.model.current_context().detach().cpu().numpy())
        settings = {"model": opened.called, "corpus": corpus.name, "num_documents": len(texts), "context": context}
        (part / SETTINGS_FILE).write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    num_empty = sum(map(is_empty, texts))
    note = f", {num_empty} of them empty" if num_empty else ""
    progress(f"index of {len(texts)} documents{note} built in {time.monotonic() - started:.0f} s, in {folder}")


def encode_queries(opened: Opened, index: Index, queries: Sequence[str]) -> np.ndarray:
    """Encode queries under the context of an index. Return vectors (N, D)."""
    if isinstance(opened.model, ContextualModel):
        context_CE = torch.from_numpy(np.load(index.folder / CONTEXT_FILE, allow_pickle=False))
        # a run's model is on the GPU if there is one
        opened.model.context_CE = context_CE.to(opened.model.device)
    return opened.model.encode(as_texts(queries), "query")


def set_context(
    opened: Opened,
    request: SearchRequest,
    corpus: Corpus,
    documents: dict[str, str],
    context_corpus: Corpus | None,
    progress: Progress,
) -> dict[str, Any] | None:
    """Set the context of a contextual model. Return how it was drawn, or None if the model takes no context."""
    if not opened.num_contexts:
        return None
    texts = documents if context_corpus is None else context_corpus.read(progress)[0]
    drawn_from = context_corpus or corpus
    source = Retrieval(drawn_from.name, tuple(texts), tuple(texts.values()), (), (), {})
    kind = "own"
    if request.context == "null":
        kind = "null"
    elif context_corpus is not None:
        # "wrong" is the word of records for a context of another corpus.
        kind = "wrong"
    context = draw_context(kind, source, num_contexts=opened.num_contexts, seed=request.context_seed)
    opened.ours.set_context(context.texts, request.context_seed, corpus.document_role)
    return context.provenance
