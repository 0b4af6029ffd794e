"""Search a corpus with a model: find or build the index, encode the queries, return the best documents.

An index holds the vectors and texts of a corpus under one model and context. Its folder is named by digests of these.
Search is exact: the vector of a query is compared with those of all documents.

Shapes: N documents, D size of a vector.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repro.batches.surrogate import check_vectors
from repro.data.beir import Retrieval
from repro.data.wording import is_empty
from repro.evaluate.contexts import draw_context
from repro.interop.arguments import MINILM, find_model_folder
from repro.interop.corpus import Corpus, find_corpus
from repro.interop.named_runs import find_named_run
from repro.interop.opening import Opened, open_model
from repro.model.contextual import ContextualModel
from repro.pipeline.encoders import find_commit, get_files_in_key
from repro.records.store import read_records
from repro.spec import TRAINED, Run
from repro.spec.identity import get_training_id
from repro.storage.digests import get_cached_digests
from repro.storage.files import atomic_folder
from repro.storage.paths import get_home, get_local_records, is_imported, run_folder
from repro.text import make_encoding_reporter, shorten
from repro.train.checkpoint import CHECKPOINT_FILE

VERSION = 1
SETTINGS_FILE, VECTORS_FILE, TEXTS_FILE, CONTEXT_FILE = "index.json", "vectors.npy", "documents.jsonl", "context.npy"
# byte offsets of the documents in the file of texts
OFFSETS_FILE = "places.npy"
CONTEXTS = ("own", "null")
Progress = Callable[[str], None]


@dataclass(frozen=True)
class SearchRequest:
    """A request: the model, the searched corpus and the context.

    Attributes:
        model: A run's id, a folder, a hub id, `minilm`, or an imported corpus, which is then searched with the best
            recorded model.
        corpus: The searched corpus. Default: the corpus of the model's run.
        context: "own", "null", or a corpus to draw the context from. Default: "own" if the model takes a context.
        context_seed: Seed for drawing the context.
    """

    model: str
    corpus: str | None = None
    context: str | None = None
    context_seed: int = 0


@dataclass(frozen=True)
class Found:
    """One retrieved document."""

    rank: int
    score: float
    id: str
    text: str


@dataclass(frozen=True)
class Index:
    """An index in its folder."""

    folder: Path

    @property
    def is_built(self) -> bool:
        """Whether the index is complete."""
        return (self.folder / SETTINGS_FILE).is_file()

    def search(self, vector_D: np.ndarray, top: int) -> list[Found]:
        """Return the best documents, best first. Equal scores are in the order of the corpus."""
        vectors_ND = np.load(self.folder / VECTORS_FILE, mmap_mode="r", allow_pickle=False)
        scores_N = vectors_ND @ vector_D
        top = min(top, len(scores_N))
        # `argpartition` finds the best in linear time but leaves them unsorted
        best = np.argpartition(-scores_N, top - 1)[:top] if top < len(scores_N) else np.arange(top)
        best = best[np.lexsort((best, -scores_N[best]))]
        offsets_N = np.load(self.folder / OFFSETS_FILE, mmap_mode="r", allow_pickle=False)
        hits = []
        with (self.folder / TEXTS_FILE).open("rb") as file:
            for rank, row in enumerate(best, 1):
                file.seek(int(offsets_N[row]))
                document = json.loads(file.readline())
                hits.append(Found(rank, float(scores_N[row]), document["id"], document["text"]))
        return hits


def search(request: SearchRequest, queries: Sequence[str], top: int, progress: Progress) -> list[list[Found]]:
    """Return the best documents for each query. The index is built first if it is missing.

    Raises:
        ValueError: if the model, the corpus or the context does not exist.
    """
    if find_model_folder(request.model) is None and is_imported(request.model):
        request = choose_model(request)
        progress(f"searching {request.corpus} with {request.model}")
    run = find_named_run(request.model)
    corpus = find_corpus(_get_corpus_name(request, run))
    context_corpus = None
    if request.context is not None and request.context not in CONTEXTS:
        context_corpus = find_corpus(request.context)
    # before the key of the index, because opening may train the run
    opened = open_model(request.model, progress=progress)
    if request.context is not None and not opened.num_contexts:
        raise ValueError(f"{request.model} has no context: leave out --context")
    context = (request.context or "own") if context_corpus is None else context_corpus.digest
    key = [VERSION, get_model_key(request.model, run), corpus.kind, corpus.digest, request.context_seed, context]
    index = Index(get_home() / "search" / hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16])
    if not index.is_built:
        build_index(opened, request, corpus, context_corpus, index.folder, progress)
    if isinstance(opened.model, ContextualModel):
        stored_CE = np.load(index.folder / CONTEXT_FILE, allow_pickle=False)
        opened.model.context_CE = torch.from_numpy(stored_CE).to(opened.model.device)
    return [index.search(vector_D, top) for vector_D in opened.model.encode(list(queries), "query")]


def choose_model(request: SearchRequest) -> SearchRequest:
    """Return the request with a model, if it named an imported corpus instead.

    The model is the one with the highest recorded NDCG@10 on the corpus: a trained model whose weights are here, or
    MiniLM, also if nothing is recorded. The searched corpus is the named one unless the request has another.
    """
    name = request.model.partition("@")[0]
    measure = f"{name}/mean/ndcg_at_10"
    scores: dict[str, float] = {}
    for record in read_records(get_local_records()):
        run = record.run
        if run.suite == name and measure in record.metrics:
            if run.architecture in TRAINED and (run_folder(get_training_id(run)) / CHECKPOINT_FILE).is_file():
                scores[record.id] = record.metrics[measure]
            elif run.architecture == "surrogate" and run.surrogate == MINILM:
                scores[MINILM] = record.metrics[measure]
    best = max(scores, key=scores.__getitem__, default=MINILM)
    return replace(request, model=best, corpus=request.corpus or name)


def get_model_key(source: str, run: Run | None) -> str:
    """Return a digest or commit that identifies a model's weights."""
    if run is not None:
        folder = run_folder(get_training_id(run))
        note = get_home() / "digests" / f"run-{folder.name}.json"
        return get_cached_digests(folder, [folder / CHECKPOINT_FILE], note)[CHECKPOINT_FILE]
    local_folder = find_model_folder(source)
    if local_folder is not None:
        return get_files_in_key(str(local_folder))["files"]
    return find_commit(source).get("commit", source)


def _get_corpus_name(request: SearchRequest, run: Run | None) -> str:
    if request.corpus is not None:
        return request.corpus
    if run is None:
        raise ValueError(
            f"which corpus should {shorten(request.model)} search? --corpus takes the name of an imported corpus or a "
            "suite, a BEIR folder, or a jsonl file"
        )
    return run.suite


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
    documents, _ = corpus.read()
    if not documents:
        raise ValueError(f"corpus {corpus.name} holds no documents")
    context = set_context(opened, request, corpus, documents, context_corpus)
    opened.model.report = make_encoding_reporter(progress)
    with atomic_folder(folder) as part:
        texts = list(documents.values())
        vectors_ND = opened.model.encode(texts, "document")
        # NaN scores would rank these documents last, and no message would say so
        check_vectors(vectors_ND, texts, "model")
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


def set_context(
    opened: Opened,
    request: SearchRequest,
    corpus: Corpus,
    documents: dict[str, str],
    context_corpus: Corpus | None,
) -> dict[str, Any] | None:
    """Set the context of a contextual model. Return how it was drawn, or None if the model takes no context."""
    if not opened.num_contexts:
        return None
    texts = documents if context_corpus is None else context_corpus.read()[0]
    name = corpus.name if context_corpus is None else context_corpus.name
    source = Retrieval(name, tuple(texts), tuple(texts.values()), (), (), {})
    kind = "own"
    if request.context == "null":
        kind = "null"
    elif context_corpus is not None:
        # "wrong" is the word of records for a context of another corpus.
        kind = "wrong"
    context = draw_context(kind, source, num_contexts=opened.num_contexts, seed=request.context_seed)
    opened.ours.set_context(context.texts, request.context_seed)
    return context.provenance
