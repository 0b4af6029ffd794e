"""Inspect one batch of a run, rebuilt from (seed, step) without training and scored by the surrogate.

Shapes: B pairs of the batch, H hard negatives per pair, M = B (1 + H) documents: the positives, then the hard negatives.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from repro.batches.mask import compute_content_keys
from repro.pipeline.inputs import Inputs
from repro.spec import TRAINED, Run
from repro.spec.identity import run_id
from repro.train.batch_view import BatchView, BatchViewer
from repro.train.feed import compute_batch_hash
from repro.train.setup import build_sampler, make_train_settings

Progress = Callable[[str], None]
NUM_HARDEST = 3
"""The number of hardest negatives of a pair."""
STAGES = ("corpus", "selection", "keys", "positives", "embeddings", "clusters", "negatives")


@dataclass(frozen=True)
class Other:
    """Another document of the batch, scored against a query."""

    place: int  # in the batch, from 1: pairs first, then hard negatives
    score: float  # with the query
    document: str
    why: str = ""  # reason for removal by the filter


@dataclass(frozen=True)
class Pair:
    """One pair of the batch: its texts, origin, score, hardest negatives and removed negatives."""

    place: int
    domain: str
    cluster: int | None
    query: str
    document: str
    score: float
    hardest: tuple[Other, ...]
    removed: tuple[Other, ...]


@dataclass(frozen=True)
class Explanation:
    """One batch of a run. `batch_hash` is the one in the training log, and scores are those of the surrogate.

    `masked_fraction` covers all terms of the loss, as in the log. Pairs show documents, the first direction of a loss.
    """

    run: Run
    batch: int
    epoch: int
    batch_hash: str
    difficulty: float
    masked_fraction: float
    pairs: tuple[Pair, ...]


def explain(run: Run, batch: int, progress: Progress = print) -> Explanation:
    """Explain one batch of a run, counted from 1. Builds the stages it needs and trains nothing.

    Raises ValueError if the run has no batches, or if its training run has no such batch.
    """
    if run.architecture not in TRAINED and run.measure != "batches":
        raise ValueError(f"run {run_id(run)} ({run.architecture}, measure {run.measure!r}) has no batches")
    inputs = Inputs(run)
    for stage in (stage for stage in inputs.graph.stages if stage.name in STAGES):
        stage.build(progress)
    sampler = build_sampler(inputs)
    num_batches = make_train_settings(run, len(sampler)).num_steps * run.batches_a_step
    if not 1 <= batch <= num_batches:
        raise ValueError(f"batch {batch}: this training has batches 1 to {num_batches}")
    view = BatchViewer(inputs, always_scores=True)(sampler.at(batch - 1))
    assert view.difficulty is not None, "the viewer computes scores"
    return Explanation(
        run=run,
        batch=batch,
        epoch=(batch - 1) // len(sampler) + 1,
        batch_hash=compute_batch_hash(view.pairs_B),
        difficulty=view.difficulty,
        masked_fraction=view.masked_fraction,
        pairs=tuple(_explain_pairs(inputs, view)),
    )


def _explain_pairs(inputs: Inputs, view: BatchView) -> Iterator[Pair]:
    assert view.scores_BM is not None, "the viewer computes scores"
    run, pairs, rows_B = inputs.run, inputs.pairs, view.pairs_B
    queries, documents = pairs.texts("query", rows_B), inputs.document_texts(view.rows_M)
    query_keys_B = compute_content_keys(queries, run.corpus)
    for row, pair in enumerate(rows_B):
        scores_M, masked_M = view.scores_BM[row], view.masked_BM[row]
        is_negative_M = ~masked_M
        is_negative_M[row] = False
        # Positions of the batch in falling order of similarity. Both lists of others are filtered from it.
        order = np.argsort(-scores_M, kind="stable")
        hardest, removed = (
            tuple(
                Other(
                    place=int(column) + 1,
                    score=float(scores_M[column]),
                    document=documents[column],
                    why=_find_reason(run, view, query_keys_B[row], row, column) if masked_M[column] else "",
                )
                for column in columns
            )
            for columns in (order[is_negative_M[order]][:NUM_HARDEST], order[masked_M[order]])
        )
        yield Pair(
            place=row + 1,
            domain=pairs.domain_names[pairs.domain_codes[pair]],
            cluster=int(inputs.clusters.assignment_N[pair]) if run.sampler == "cluster" else None,
            query=queries[row],
            document=documents[row],
            score=float(scores_M[row]),
            hardest=hardest,
            removed=removed,
        )


def _find_reason(run: Run, view: BatchView, query_key: int, row: int, column: int) -> str:
    """Return why the filter removed a document of the batch for a query."""
    if view.keys_M[column] == view.keys_M[row]:
        return "the same text"
    if view.known_BM is not None and view.known_BM[row, column]:
        return "the text of the query" if view.keys_M[column] == query_key else "another document of the same query"
    if run.filter == "random":
        return "drawn at random"
    reason = "as near as its own document, or nearer"
    if run.filter_margin:
        reason = f"its score is at least that of its own document {run.filter_margin:+g}"
    if run.filter_model and view.filter_scores_BM is not None:
        # The printed scores are those of the surrogate, which is another encoder.
        own, other = view.filter_scores_BM[row, [row, column]]
        reason += f" ({run.filter_model}: {other:.3f}, own {own:.3f})"
    return reason
