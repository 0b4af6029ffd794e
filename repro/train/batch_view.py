"""Compute the surrogate's scores and the false-negative mask of one batch, for training and for analyses.

Shapes: N pairs of the data set, B pairs of a batch, H hard negatives per pair, M = B (1 + H) documents (the positives,
then the hard negatives of the first pair, of the second, …), D surrogate dimensions, K = 2 (B + M) columns of the
improved contrastive loss.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from repro.batches.mask import (
    compute_batch_difficulty,
    compute_content_keys,
    compute_masked_fraction,
    make_batch_rng,
    mask_at_random,
    mask_directions,
    mask_false_negatives,
)
from repro.batches.negatives import list_document_rows
from repro.data.pairs import Side
from repro.pipeline.inputs import Inputs
from repro.pipeline.prompting import PromptedTexts
from repro.storage.arrays import JoinedRows, advise_random_access, release_pages, request_rows

Vectors = dict[Side, np.ndarray | JoinedRows | None]
"""Stored vectors of queries (N, D) and of all documents, memory-mapped. None if the run stores none."""
SurrogateVectors = tuple[np.ndarray, np.ndarray]
"""Surrogate vectors of a batch: queries (B, D) and documents (M, D)."""


@dataclass(frozen=True)
class BatchView:
    """Scores and mask of one batch.

    `scores_BM` is None if the run has no surrogate. `masked_BM` covers queries and documents. `masked` has the columns
    of the run's loss. `known_BM` marks the known positives of a query, and is None if the run does not mask them.
    `filter_scores_BM` are the scores that the filter compares, None without a filter.
    """

    pairs_B: np.ndarray
    rows_M: np.ndarray
    keys_M: np.ndarray
    scores_BM: np.ndarray | None
    masked_BM: np.ndarray
    masked: np.ndarray  # masked_BM, or (B, K) for the improved contrastive loss
    known_BM: np.ndarray | None = None
    filter_scores_BM: np.ndarray | None = None

    @property
    def difficulty(self) -> float | None:
        """Mean surrogate similarity between a query and the other documents. None without scores."""
        return None if self.scores_BM is None else compute_batch_difficulty(self.scores_BM)

    @property
    def masked_fraction(self) -> float:
        """Masked share of all terms of the run's loss except the target, 0 … 1, as in the training log.

        It covers four directions if the loss has them. Otherwise it covers queries and documents.
        """
        num_documents = len(self.rows_M)
        has_one_direction = self.masked.shape[1] == num_documents
        return float(compute_masked_fraction(self.masked, None if has_one_direction else num_documents))


@dataclass(frozen=True)
class BatchViewer:
    """Function that returns the view of any batch of a run (eq. 4).

    With `always_scores`, it also scores batches of runs without a surrogate and embeds their texts on demand. These
    scores never reach the filter of such a run.
    """

    inputs: Inputs
    always_scores: bool = False

    def __call__(self, pairs_B: np.ndarray, *, with_scores: bool = True) -> BatchView:
        """Return the view of a batch, given its pair indices, int64 (B,). Without scores, it reads no vector for them."""
        run = self.inputs.run
        rows_M = list_document_rows(pairs_B, self.inputs.negatives)
        filter_source = None
        if run.filter != "none":
            filter_source = self._filter_vectors if run.filter_model else self._stored_vectors
        score_source = self._stored_vectors if with_scores or filter_source is self._stored_vectors else None
        # All rows are requested before the first one is read, so that the disk reads them in parallel.
        request_rows(self.inputs.document_keys, rows_M)
        for source in (filter_source, score_source):
            if source is not None:
                request_rows(source["query"], pairs_B)
                request_rows(source["document"], rows_M)
        keys_M = np.asarray(self.inputs.document_keys[rows_M])
        filter_vectors = self._load_vectors(filter_source, pairs_B, rows_M)
        filter_scores_BM = scores_BM = _compute_scores(filter_vectors)
        if score_source is not filter_source:
            scores_BM = _compute_scores(self._load_vectors(score_source, pairs_B, rows_M))
        known_positives = self.inputs.known_positives
        known_BM = None if known_positives is None else known_positives.find_in_batch(pairs_B, keys_M)
        options: dict[str, Any] = {
            "margin": run.filter_margin,
            "num_hard_negatives": run.num_hard_negatives,
            "known_BM": known_BM,
        }
        masked_BM = masked = mask_false_negatives(keys_M, filter_scores_BM, **options)
        if run.filter == "random":
            unfiltered_BM = mask_false_negatives(keys_M, None, **options)
            rng, num_own = make_batch_rng(run.seed, pairs_B), run.num_hard_negatives
            masked_BM = masked = mask_at_random(masked_BM, unfiltered_BM, rng, num_hard_negatives=num_own)
        if run.loss == "icl":
            query_keys_B = compute_content_keys(self.inputs.pairs.texts("query", pairs_B), run.corpus)
            self.inputs.pairs.release_pages()
            masked = mask_directions(query_keys_B, keys_M, masked_BM, filter_vectors, **options)
        release_pages(self.inputs.document_keys)
        return BatchView(pairs_B, rows_M, keys_M, scores_BM, masked_BM, masked, known_BM, filter_scores_BM)

    @cached_property
    def _stored_vectors(self) -> Vectors:
        return self._open_vectors(of_filter=False)

    @cached_property
    def _filter_vectors(self) -> Vectors:
        return self._open_vectors(of_filter=True)

    def _open_vectors(self, *, of_filter: bool) -> Vectors:
        queries = self.inputs.embeddings("query", of_filter=of_filter)
        vectors: Vectors = {"query": queries, "document": self.inputs.document_embeddings(of_filter=of_filter)}
        advise_random_access(*vectors.values())
        return vectors

    def _load_vectors(self, stored: Vectors | None, pairs_B: np.ndarray, rows_M: np.ndarray) -> SurrogateVectors | None:
        if stored is None:
            return None
        queries_BD = self._load_rows(stored["query"], "query", pairs_B)
        documents_MD = self._load_rows(stored["document"], "document", rows_M)
        release_pages(*stored.values())
        return None if queries_BD is None or documents_MD is None else (queries_BD, documents_MD)

    def _load_rows(self, stored_ND: np.ndarray | JoinedRows | None, side: Side, rows: np.ndarray) -> np.ndarray | None:
        if stored_ND is not None:
            return np.asarray(stored_ND[rows], np.float32)
        if not self.always_scores:
            return None
        surrogate = self.inputs.surrogate
        if side == "document":
            return surrogate.embed(self.inputs.document_texts(rows, surrogate.prompts))
        texts = PromptedTexts(self.inputs.pairs, side, surrogate.prompts, self.inputs.run.corpus)
        return surrogate.embed(texts.texts(rows))


def _compute_scores(vectors: SurrogateVectors | None) -> np.ndarray | None:
    if vectors is None:
        return None
    queries_BD, documents_MD = vectors
    return queries_BD @ documents_MD.T
