"""What knowing the corpus is worth: retrieval with words weighted by IDF, by where the IDF is counted.

Words are WordPiece tokens. A word in a share p of documents weighs −log p. Weights are `flat` (all words alike), of the
`training` documents, of a `wrong` corpus, of 16 or 64 documents of the searched corpus (`own16`, `own64`), or of all of
it (`own`). A share counted in n documents is mixed with the training text's, which counts as `PRIOR` documents more.
Systems: `overlap`, BM25's formula over those tokens; `words`, the weighted mean of MiniLM's untrained word vectors; and
for a run that trains a biencoder `repooled`, the weighted mean of its token states, through its own head.
The corpora and documents are those that a contextual model would be given (`evaluate/contexts.py`).

Shapes: Q queries, D documents, V words of the vocabulary, W words that some query has, S tokens of a text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from repro.data.beir import Retrieval
from repro.data.tokens import Tokens, load_tokenizer, tokenize
from repro.evaluate.collections import Collection, read_collections, without_quirky_hits
from repro.evaluate.contexts import draw_context, wrong_corpora
from repro.evaluate.retrieval import score, search
from repro.evaluate.suites import Encoder
from repro.inputs.inputs import Inputs
from repro.measures import Measured
from repro.measures.divergence import document_frequency

if TYPE_CHECKING:
    from repro.model.biencoder import Biencoder

SAMPLES = {"own16": 16, "own64": 64}
WEIGHTS = ("flat", "training", "wrong", *SAMPLES, "own")
PRIOR = 8.0
"""Documents that the training text counts as, where shares of few documents would say that most words never occur."""
K1, B = 0.9, 0.4  # as BM25's reference has them
DEPTH = 100
HEADLINE = "ndcg_at_10"
TEXTS_AT_ONCE = 8192

Vectors = tuple[np.ndarray, np.ndarray]
"""Vectors of queries and documents, float32 (Q, H) and (D, H), to be compared by inner product."""


@dataclass(frozen=True)
class Shares:
    """In which share of a text's documents each word is, (V,), and how many documents those are."""

    counts_V: np.ndarray
    num_documents: int

    @classmethod
    def of(cls, documents: Sequence[str]) -> Shares:
        """Count the words of some documents."""
        return cls(document_frequency([documents]), len(documents))

    def idf(self, prior_V: np.ndarray) -> np.ndarray:
        """Return −log of the share of each word, mixed with a prior share, float32 (V,)."""
        share_V = (self.counts_V + PRIOR * prior_V) / (self.num_documents + PRIOR)
        return -np.log(share_V).astype(np.float32)


def measure(inputs: Inputs, model: Encoder | None, folder: Path) -> Measured:
    """Return `{suite}+SYSTEM-WEIGHTS/NAME/ndcg_at_10` for each system and weights, with its value for every query."""
    systems: Mapping[str, System] = {"overlap": word_overlap, "words": WordVectors()}
    if model is not None:
        systems = {"repooled": Repooled(_biencoder(model))}
    suite, collections = inputs.suite, read_collections(inputs.suite)
    others = wrong_corpora(suite.datasets)
    training = training_shares(inputs)
    prior_V = (training.counts_V + 0.5) / (training.num_documents + 1)
    found: dict[str, list[np.ndarray]] = {}
    for dataset in suite.datasets:
        own, wrong = collections[dataset.name], collections[others[dataset.name]].retrieval
        weights = corpus_weights(own.retrieval, wrong, prior_V, inputs.run.context_seed)
        for name, system in systems.items():
            for kind, vectors in _vectors(system, own.retrieval, weights):
                found.setdefault(f"{suite.name}+{name}-{kind}", []).append(_scores(own, vectors))
    metrics: dict[str, float] = {}
    for path, values in found.items():
        each = {d.name: float(scores.mean()) for d, scores in zip(suite.datasets, values, strict=True)}
        groups = {d.family: [o.name for o in suite.datasets if o.family == d.family] for d in suite.datasets}
        groups |= {"mean": list(each)}
        metrics |= {f"{path}/{dataset}/{HEADLINE}": value for dataset, value in each.items()}
        metrics |= {f"{path}/{g}/{HEADLINE}": float(np.mean([each[n] for n in names])) for g, names in groups.items()}
    arrays = {path: np.concatenate(values).astype(np.float32) for path, values in found.items()}
    rows = [{"name": d.name, "family": d.family, **collections[d.name].provenance} for d in suite.datasets]
    told = {"name": suite.name, "datasets": rows, "num_training_documents": training.num_documents, "prior": PRIOR}
    return Measured(metrics, arrays, told)


def training_shares(inputs: Inputs) -> Shares:
    """Count the words of the training documents."""
    pairs = inputs.pairs
    blocks = (np.arange(start, min(start + TEXTS_AT_ONCE, len(pairs))) for start in range(0, len(pairs), TEXTS_AT_ONCE))
    return Shares(document_frequency(pairs.texts("document", rows) for rows in blocks), len(pairs))


def corpus_weights(own: Retrieval, wrong: Retrieval, prior_V: np.ndarray, seed: int) -> dict[str, np.ndarray]:
    """Return the weight of each word, float32 (V,), by where it comes from: WEIGHTS."""
    weights = {"flat": np.ones(len(prior_V), np.float32), "training": -np.log(prior_V).astype(np.float32)}
    weights["wrong"] = Shares.of(wrong.documents).idf(prior_V)
    for name, count in SAMPLES.items():
        drawn = draw_context("own", own, num_contexts=count, seed=seed).texts
        assert drawn is not None, "a context that is drawn from a corpus has texts"
        weights[name] = Shares.of(drawn).idf(prior_V)
    return weights | {"own": Shares.of(own.documents).idf(prior_V)}


System = Callable[[Retrieval], Callable[[np.ndarray], Vectors]]
"""Of a collection gives what vectors it has under given weights of words (V,)."""


def _vectors(system: System, retrieval: Retrieval, weights: Mapping[str, np.ndarray]) -> list[tuple[str, Vectors]]:
    under = system(retrieval)
    return [(kind, under(weights[kind])) for kind in WEIGHTS]


def _scores(collection: Collection, vectors: Vectors) -> np.ndarray:
    retrieval = collection.retrieval
    run = search(*vectors, retrieval.query_ids, retrieval.document_ids, DEPTH + collection.num_extra_hits)
    return score(without_quirky_hits(run, collection, DEPTH), retrieval.judgements, (HEADLINE,))[HEADLINE]


def word_overlap(retrieval: Retrieval) -> Callable[[np.ndarray], Vectors]:
    """Return BM25 as an inner product: counts of a query's words, and their saturated counts in documents by weight."""
    queries, documents = _tokens(retrieval.queries), _tokens(retrieval.documents)
    words_W, columns = np.unique(queries.ids, return_inverse=True)
    queries_QW = np.zeros((len(queries), len(words_W)), np.float32)
    np.add.at(queries_QW, (np.repeat(np.arange(len(queries)), queries.lengths), columns), 1.0)
    known = np.isin(documents.ids, words_W)
    rows, columns = np.repeat(np.arange(len(documents)), documents.lengths), np.searchsorted(words_W, documents.ids)
    counts_DW = np.zeros((len(documents), len(words_W)), np.float32)
    np.add.at(counts_DW, (rows[known], columns[known]), 1.0)
    lengths_D1 = documents.lengths[:, None] / max(1.0, float(documents.lengths.mean()))
    saturated_DW = (counts_DW / (counts_DW + K1 * (1 - B + B * lengths_D1))).astype(np.float32)
    return lambda weights_V: (queries_QW, saturated_DW * weights_V[words_W])


class WordVectors:
    """The weighted mean of MiniLM's word vectors, centred: no order, no training."""

    @cached_property
    def _vectors(self) -> np.ndarray:
        """Centred word vectors, float32 (V, 384)."""
        from safetensors.numpy import load_file

        from repro.data.tokens import minilm_folder

        vectors_VE = load_file(minilm_folder() / "model.safetensors")["embeddings.word_embeddings.weight"]
        return (vectors_VE - vectors_VE.mean(axis=0)).astype(np.float32)

    def __call__(self, retrieval: Retrieval) -> Callable[[np.ndarray], Vectors]:
        """Return the vectors of a collection under given weights."""
        sides = (_tokens(retrieval.queries), _tokens(retrieval.documents))
        return lambda weights_V: (self._of(sides[0], weights_V), self._of(sides[1], weights_V))

    def _of(self, tokens: Tokens, weights_V: np.ndarray) -> np.ndarray:
        from scipy.sparse import csr_array

        shape = (len(tokens), len(weights_V))
        weighted_NV = csr_array((weights_V[tokens.ids], tokens.ids, tokens.offsets), shape=shape)
        return _unit(np.asarray(weighted_NV @ self._vectors))


class Repooled:
    """A trained biencoder whose token states are averaged by weight instead of evenly; its head stays as it is."""

    def __init__(self, model: Biencoder) -> None:
        self._model = model.eval()

    def __call__(self, retrieval: Retrieval) -> Callable[[np.ndarray], Vectors]:
        """Return the vectors of a collection under given weights; token states are computed once."""
        states = [self._states(retrieval.queries, "query"), self._states(retrieval.documents, "document")]
        return lambda weights_V: (self._pool(*states[0], weights_V), self._pool(*states[1], weights_V))

    def _states(self, texts: Sequence[str], role: str) -> tuple[Tokens, np.ndarray]:
        """Return the tokens of texts, and the state of each token in their order, float32 (tokens, H)."""
        import torch

        from repro.model.texts import texts_from

        tokens = self._model.tokenize(texts, role)
        states = np.empty((len(tokens.ids), self._model.config.hidden_size), np.float32)
        order = np.argsort(tokens.lengths, kind="stable")
        with torch.inference_mode():
            for start in range(0, len(order), 256):
                rows = order[start : start + 256]
                batch = texts_from(*tokens.pad(rows)).to(self._model.device)
                found_NSH = self._model.embedder(batch).float().cpu().numpy()
                for row, found_SH in zip(rows, found_NSH, strict=True):
                    first, last = tokens.offsets[row], tokens.offsets[row + 1]
                    states[first:last] = found_SH[: last - first]
        return tokens, states

    def _pool(self, tokens: Tokens, states: np.ndarray, weights_V: np.ndarray) -> np.ndarray:
        import torch

        weights = weights_V[tokens.ids][:, None]
        sums = np.add.reduceat(states * weights, tokens.offsets[:-1], axis=0)
        means = sums / np.maximum(np.add.reduceat(weights, tokens.offsets[:-1], axis=0), 1e-9)
        with torch.inference_mode():
            return _unit(self._model.mlp(torch.from_numpy(means).to(self._model.device)).float().cpu().numpy())


def _biencoder(model: Encoder) -> Biencoder:
    from repro.model.biencoder import Biencoder

    if not isinstance(model, Biencoder):
        raise ValueError(f"the measure 'headroom' re-pools a biencoder, not a {type(model).__name__}")
    return model


def _tokens(texts: Sequence[str]) -> Tokens:
    """Return the words of whole texts without special tokens."""
    tokens = tokenize(list(texts), load_tokenizer("minilm"), 512)
    inside = np.ones(len(tokens.ids), bool)
    inside[tokens.offsets[:-1]] = inside[tokens.offsets[1:] - 1] = False
    return Tokens(tokens.ids[inside], np.concatenate([[0], np.cumsum(tokens.lengths - 2)]).astype(np.int64))


def _unit(vectors_NH: np.ndarray) -> np.ndarray:
    norms_N1 = np.linalg.norm(vectors_NH, axis=1, keepdims=True)
    unit_NH: np.ndarray = (vectors_NH / np.maximum(norms_N1, np.finfo(np.float32).tiny)).astype(np.float32)
    return unit_NH
