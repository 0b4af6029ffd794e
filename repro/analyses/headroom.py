"""Measure the value of knowing the corpus: retrieval with IDF word weights from different texts.

Words are WordPiece tokens, weighted as in `evaluate/lexical.py`. The weights come from:

- `flat`: nothing, all words are equal.
- `training`: the training documents.
- `wrong`: a wrong corpus.
- `own16`, `own64`, `own`: 16, 64 or all documents of the searched corpus.

The systems are:

- `overlap`: the BM25 formula over these tokens.
- `words`: the weighted mean of MiniLM's untrained word vectors.
- `repooled`: for a run that trains a biencoder, the weighted mean of its token states, passed through its own head.

The corpora and documents are those that a contextual model would get (`evaluate/contexts.py`).

Shapes: Q queries, D documents, V words of the vocabulary, W words of the queries, S tokens of a text, K weightings.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from scipy.sparse import csr_array

from repro.analyses import Measured, check_suite
from repro.analyses.corpora import TEXTS_PER_CHUNK
from repro.data.beir import HEADLINE, Retrieval
from repro.data.tokens import Tokens
from repro.evaluate.adaptation import normalize
from repro.evaluate.collections import (
    describe_datasets,
    read_collections,
    score_headline,
    search_collection,
    summarise_scores,
)
from repro.evaluate.contexts import have_wrong_corpora, wrong_corpora
from repro.evaluate.headroom import compute_context_idf
from repro.evaluate.lexical import (
    PRIOR,
    DocumentFrequencies,
    Vectors,
    build_word_overlap,
    count_document_frequency,
    tokenize_words,
)
from repro.evaluate.suites import Encoder
from repro.pipeline.inputs import Inputs

SAMPLES = {"own16": 16, "own64": 64}

DEPTH = 100
TEXTS_IN_BATCH = 256


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `{suite}+SYSTEM-WEIGHTS/NAME/ndcg_at_10` per system and weights, with its value for every query."""
    suite, collections = inputs.suite, read_collections(inputs.suite)
    check_suite(inputs.run, have_wrong_corpora(suite.datasets), "several collections with different documents")
    others = wrong_corpora(suite.datasets)
    # the words of the training documents
    train_V = count_document_frequency(inputs.pairs.blocks("document", TEXTS_PER_CHUNK))
    training = DocumentFrequencies(train_V, len(inputs.pairs))
    prior_V = training.compute_prior()
    values_by_path: dict[str, list[dict[str, np.ndarray]]] = {}
    for dataset in suite.datasets:
        own, wrong = collections[dataset.name], collections[others[dataset.name]].retrieval
        weights = compute_corpus_weights(own.retrieval, wrong, prior_V, inputs.run.context_seed)
        repool = None if model is None else Repooled(model)
        for name, vectors in _iter_vectors(own.retrieval, weights, repool):
            scores_Q = score_headline(search_collection(own, *vectors, DEPTH), own)
            values_by_path.setdefault(f"{suite.name}+{name}", []).append({HEADLINE: scores_Q})
    rows = describe_datasets(suite, collections)
    metrics, arrays = summarise_scores(values_by_path, rows)
    provenance = {
        "name": suite.name,
        "datasets": rows,
        "num_training_documents": training.num_documents,
        "prior": PRIOR,
    }
    return Measured(metrics, arrays, provenance)


def compute_corpus_weights(own: Retrieval, wrong: Retrieval, prior_V: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Return the weight of each word, float32 (V,), under each of the weightings named above."""
    weights = {"flat": np.ones(len(prior_V), np.float32), "training": -np.log(prior_V).astype(np.float32)}
    weights["wrong"] = DocumentFrequencies.count(wrong.documents).idf(prior_V)
    weights |= {name: compute_context_idf(own, count, seed, prior_V) for name, count in SAMPLES.items()}
    return weights | {"own": DocumentFrequencies.count(own.documents).idf(prior_V)}


Weights = Mapping[str, np.ndarray]
"""Word weights, float32 (V,), by name."""


def _iter_vectors(retrieval: Retrieval, weights: Weights, repool: Repooled | None) -> Iterator[tuple[str, Vectors]]:
    """Yield the vectors of a collection by system and weights: `words-own64`. No two of them are held at a time."""
    if repool is not None:
        yield from ((f"repooled-{kind}", vectors) for kind, vectors in repool(retrieval, weights))
        return
    for system, build in (("overlap", build_word_overlap), ("words", build_word_vectors)):
        compute_vectors = build(retrieval)
        yield from ((f"{system}-{kind}", compute_vectors(weights_V)) for kind, weights_V in weights.items())


def build_word_vectors(retrieval: Retrieval) -> Callable[[np.ndarray], Vectors]:
    """Return a function from weights to vectors of a collection: weighted means of MiniLM's word vectors."""
    from safetensors.numpy import load_file

    from repro.data.tokens import get_minilm_folder

    vectors_VE = load_file(get_minilm_folder() / "model.safetensors")["embeddings.word_embeddings.weight"]
    # Without centring, the mean of all word vectors would make all texts similar.
    vectors_VE = (vectors_VE - vectors_VE.mean(axis=0)).astype(np.float32)
    sides = (tokenize_words(retrieval.queries), tokenize_words(retrieval.documents))

    def embed_texts(tokens: Tokens, weights_V: np.ndarray) -> np.ndarray:
        shape = (len(tokens), len(weights_V))
        weighted_NV = csr_array((weights_V[tokens.ids], tokens.ids, tokens.offsets), shape=shape)
        return normalize(np.asarray(weighted_NV @ vectors_VE))

    return lambda weights_V: (embed_texts(sides[0], weights_V), embed_texts(sides[1], weights_V))


class Repooled:
    """A trained biencoder that averages token states by weight instead of uniformly. Its head stays the same.

    Texts are encoded once, and averaged under all weights from the same states.
    """

    def __init__(self, model: Encoder) -> None:
        from repro.model.biencoder import Biencoder

        assert isinstance(model, Biencoder), f"headroom needs a biencoder, not a {type(model).__name__}"
        self._model = model.eval()

    def __call__(self, retrieval: Retrieval, weights: Weights) -> Iterable[tuple[str, Vectors]]:
        """Return the vectors of a collection under each weighting."""
        weights_KV = np.stack(list(weights.values()))
        queries_KQH = self._pool(retrieval.queries, "query", weights_KV)
        documents_KDH = self._pool(retrieval.documents, "document", weights_KV)
        return ((name, (queries_KQH[index], documents_KDH[index])) for index, name in enumerate(weights))

    def _pool(self, texts: Sequence[str], role: str, weights_KV: np.ndarray) -> np.ndarray:
        """Return unit vectors, float32 (K, N, H), of N texts under K weightings."""
        import torch

        from repro.model.texts import make_texts

        tokens = self._model.tokenize(texts, role)
        size = self._model.config.hidden_size
        vectors_KNH = np.empty((len(weights_KV), len(tokens), size), np.float32)
        # Batches of similar lengths need little padding.
        order = np.argsort(tokens.lengths, kind="stable")
        with torch.inference_mode():
            for start in range(0, len(order), TEXTS_IN_BATCH):
                rows = order[start : start + TEXTS_IN_BATCH]
                ids_NS, mask_NS = tokens.pad(rows)
                states_NSH = self._model.embedder(*make_texts(ids_NS, mask_NS).to(self._model.device)).float()
                # One pass through the backbone serves all weightings. Only the mean and the head differ.
                weights_KNS = torch.from_numpy(weights_KV[:, ids_NS] * mask_NS).to(states_NSH)
                sums_KNH = torch.einsum("kns,nsh->knh", weights_KNS, states_NSH)
                means_KNH = sums_KNH / weights_KNS.sum(2, keepdim=True).clamp(min=1e-9)
                vectors_KNH[:, rows] = normalize(self._model.mlp(means_KNH).float().cpu().numpy())
        return vectors_KNH
