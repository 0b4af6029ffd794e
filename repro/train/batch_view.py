"""One batch as the surrogate and the false-negative filter see it: training and the microscope look through the same.

Shapes: N pairs of the data, B pairs of a batch, H hard negatives a pair, M = B (1 + H) documents: the positives, then
the hard negatives of the first pair, of the second, …; D dimensions of the surrogate; K = 2 (B + M) entries of the
four directions of the improved contrastive loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from repro.batches.directions import mask_directions
from repro.batches.fixed_encoder import FixedEncoder, get_surrogate
from repro.batches.mask import (
    compute_batch_difficulty,
    compute_content_keys,
    compute_masked_fraction,
    mask_false_negatives,
)
from repro.batches.negatives import list_document_rows
from repro.data.pairs import Side
from repro.pipeline.inputs import Inputs
from repro.pipeline.prompting import texts_for
from repro.storage.arrays import give_back, read_here_and_there

Vectors = dict[Side, np.ndarray | None]
"""Stored vectors (N, D) of queries and of documents, memory-mapped; None where a run stores none."""
Seen = tuple[np.ndarray, np.ndarray]
"""What a fixed encoder makes of a batch: its queries (B, D) and its documents (M, D)."""


@dataclass(frozen=True)
class BatchView:
    """Scores of a batch's queries with its documents (None: this run has no surrogate), and what the filter removes."""

    pairs_B: np.ndarray
    rows_M: np.ndarray
    keys_M: np.ndarray
    scores_BM: np.ndarray | None
    masked_BM: np.ndarray
    masked: np.ndarray  # as the run's loss has it: masked_BM, or (B, K)

    @property
    def difficulty(self) -> float | None:
        """The mean surrogate similarity of a query to the other documents; None without scores."""
        return None if self.scores_BM is None else compute_batch_difficulty(self.scores_BM)

    @property
    def masked_fraction(self) -> float:
        """The share that is removed of all terms of the run's loss but the target, 0 … 1, as the training's log has it:
        of four directions where the loss has them, else of queries with documents.
        """
        num_documents = len(self.rows_M)
        is_of_documents = self.masked.shape[1] == num_documents
        return float(compute_masked_fraction(self.masked, None if is_of_documents else num_documents))


@dataclass(frozen=True)
class BatchViewer:
    """Gives the view of any batch of a run (eq. 4).

    `always_scores`: also for a run whose batches do not depend on a surrogate, which then embeds the batch's texts; the
    filter sees those scores only where the run has one.
    """

    inputs: Inputs
    always_scores: bool = False

    def __call__(self, pairs_B: np.ndarray) -> BatchView:
        """Return the view of the batch of these pairs, int64 (B,)."""
        run, rows_M = self.inputs.run, list_document_rows(pairs_B, self.inputs.negatives)
        keys_M = np.asarray(self.inputs.content_keys[rows_M])
        seen = self._vectors(self._stored, pairs_B, rows_M)
        filtering = seen if run.filter == "surrogate" else None
        if run.filter == "surrogate" and run.filter_model:
            filtering = self._vectors(self._of_filter, pairs_B, rows_M)
        scores_BM = _scores(seen)
        filtering_BM = scores_BM if filtering is seen else _scores(filtering)
        known = self.inputs.known_positives
        how: dict[str, Any] = {"margin": run.filter_margin, "num_hard_negatives": run.num_hard_negatives}
        how["known_BM"] = None if known is None else known.among(pairs_B, keys_M)
        masked_BM = masked = mask_false_negatives(keys_M, filtering_BM, **how)
        if run.loss == "icl":
            query_keys_B = compute_content_keys(self.inputs.pairs.texts("query", pairs_B))
            masked = mask_directions(query_keys_B, keys_M, masked_BM, filtering, **how)
        give_back(self.inputs.content_keys)
        return BatchView(pairs_B, rows_M, keys_M, scores_BM, masked_BM, masked)

    @cached_property
    def _stored(self) -> Vectors:
        return _by_side(self.inputs.embeddings)

    @cached_property
    def _of_filter(self) -> Vectors:
        return _by_side(self.inputs.filter_embeddings)

    @cached_property
    def _surrogate(self) -> FixedEncoder:
        """The run's surrogate, for what is not stored; loading it takes a second, so it stays for the next batch."""
        return get_surrogate(self.inputs.run)

    def _vectors(self, stored: Vectors, pairs_B: np.ndarray, rows_M: np.ndarray) -> Seen | None:
        queries_BD = self._rows(stored["query"], "query", pairs_B)
        documents_MD = self._rows(stored["document"], "document", rows_M)
        give_back(*stored.values())
        return None if queries_BD is None or documents_MD is None else (queries_BD, documents_MD)

    def _rows(self, stored_ND: np.ndarray | None, side: Side, rows: np.ndarray) -> np.ndarray | None:
        if stored_ND is not None:
            return np.asarray(stored_ND[rows], np.float32)
        if not self.always_scores:
            return None
        texts = texts_for(self._surrogate, self.inputs.run.corpus, self.inputs.pairs, side)
        return self._surrogate.loaded.embed(texts.texts(rows), self._surrogate.max_tokens)


def _by_side(load: Callable[[Side], np.ndarray | None]) -> Vectors:
    found: Vectors = {"query": load("query"), "document": load("document")}
    read_here_and_there(*found.values())
    return found


def _scores(seen: Seen | None) -> np.ndarray | None:
    return None if seen is None else seen[0] @ seen[1].T
