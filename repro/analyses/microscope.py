"""The batch microscope: one batch of a run, rebuilt from (seed, step) without training, seen through the surrogate.

Shapes: B pairs of the batch, H hard negatives a pair, M = B (1 + H) documents: the positives, then the hard negatives.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from repro.pipeline.inputs import Inputs
from repro.spec import TRAINED, Run
from repro.spec.identity import get_training_id, run_id
from repro.storage.paths import run_folder
from repro.train.batch_view import BatchView, BatchViewer
from repro.train.feed import compute_batch_hash
from repro.train.metrics import read_metrics
from repro.train.trainer import build_sampler, make_train_settings

Progress = Callable[[str], None]
NUM_PARTS = 10
"""Difficulty over a training is told in so many parts."""
STAGES = ("corpus", "selection", "keys", "embeddings", "clusters", "negatives")


@dataclass(frozen=True)
class Other:
    """Another document of the batch, seen from a query."""

    place: int  # in the batch, counted from 1: pairs first, then hard negatives
    score: float  # of the query with it
    document: str
    why: str = ""  # why the filter removed it


@dataclass(frozen=True)
class Pair:
    """One pair of the batch: its texts, where it comes from, its own score, what is hard for it and what is removed."""

    place: int
    id: str
    domain: str
    cluster: int | None
    query: str
    document: str
    score: float
    hardest: tuple[Other, ...]
    removed: tuple[Other, ...]


@dataclass(frozen=True)
class Part:
    """A stretch of the training, and the means of what is known of its batches."""

    first_batch: int
    last_batch: int
    difficulty: float
    masked_fraction: float
    loss: float | None = None


@dataclass(frozen=True)
class Explanation:
    """All that is told of one batch; `batch_hash` is the one in the training's log, scores are the surrogate's.

    `masked_fraction` is of all terms of the loss, as the log's; pairs show documents, the first of a loss's directions.
    """

    run: str
    batch: int
    epoch: int
    batch_hash: str
    surrogate: str
    filter: str
    filter_margin: float
    difficulty: float
    masked_fraction: float
    pairs: tuple[Pair, ...]
    parts: tuple[Part, ...]
    parts_are_from: str

    def as_dict(self) -> dict[str, Any]:
        """Return the explanation as plain values."""
        return asdict(self)


def explain(run: Run, batch: int, *, num_negatives: int = 3, progress: Progress = print) -> Explanation:
    """Look into one batch of a run (counted from 1); builds the stages it needs, trains nothing.

    ValueError for a run without batches, and for a batch that its training does not have.
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
    view_of = BatchViewer(inputs, always_scores=True)
    seen = view_of(sampler.at(batch - 1))
    parts = _logged_parts(run)
    return Explanation(
        run=run_id(run),
        batch=batch,
        epoch=(batch - 1) // len(sampler) + 1,
        batch_hash=compute_batch_hash(seen.pairs_B),
        surrogate=run.surrogate,
        filter=run.filter,
        filter_margin=run.filter_margin,
        difficulty=_difficulty(seen),
        masked_fraction=seen.masked_fraction,
        pairs=_pairs(inputs, seen, num_negatives),
        parts=parts or _rebuilt_parts(view_of, sampler, num_batches),
        parts_are_from="the training's log" if parts else "one rebuilt batch of each part",
    )


def _pairs(inputs: Inputs, seen: BatchView, num_negatives: int) -> tuple[Pair, ...]:
    documents_M = inputs.pairs.texts("document", seen.rows_M)
    return tuple(_pair(inputs, seen, documents_M, row, num_negatives) for row in range(len(seen.pairs_B)))


def _pair(inputs: Inputs, seen: BatchView, documents_M: list[str], row: int, num_negatives: int) -> Pair:
    assert seen.scores_BM is not None, "the viewer was asked for scores"
    run, number, pairs = inputs.run, int(seen.pairs_B[row]), inputs.pairs
    scores_M, masked_M = seen.scores_BM[row], seen.masked_BM[row]
    is_negative_M = ~masked_M
    is_negative_M[row] = False
    order = np.argsort(-scores_M, kind="stable")
    return Pair(
        place=row + 1,
        id=pairs.ids([number])[0],
        domain=pairs.domain_names[pairs.domain_codes[number]],
        cluster=int(inputs.clusters.assignment_N[number]) if run.sampler == "cluster" else None,
        query=pairs.texts("query", [number])[0],
        document=documents_M[row],
        score=float(scores_M[row]),
        hardest=tuple(_other(seen, documents_M, row, place) for place in order[is_negative_M[order]][:num_negatives]),
        removed=tuple(_other(seen, documents_M, row, place) for place in order[masked_M[order]]),
    )


def _other(seen: BatchView, documents_M: list[str], row: int, place: int) -> Other:
    assert seen.scores_BM is not None, "the viewer was asked for scores"
    why = ""
    if seen.masked_BM[row, place]:
        is_same = seen.keys_M[place] == seen.keys_M[row]
        why = "the same text" if is_same else "as near as its own document, or nearer"
    return Other(int(place) + 1, float(seen.scores_BM[row, place]), documents_M[place], why)


def _difficulty(seen: BatchView) -> float:
    assert seen.difficulty is not None, "the viewer was asked for scores"
    return seen.difficulty


def _logged_parts(run: Run) -> tuple[Part, ...]:
    """Return the training in parts, from its log; nothing when there is no log with difficulties."""
    lines = [line for line in read_metrics(run_folder(get_training_id(run))) if line["difficulty"] is not None]
    parts = []
    for chunk in np.array_split(np.arange(len(lines)), min(NUM_PARTS, len(lines))) if lines else ():
        inside = [lines[place] for place in chunk]
        names = ("difficulty", "masked_fraction", "loss")
        means = {name: float(np.mean([line[name] for line in inside])) for name in names}
        first, last = ((line["step"] - 1) * run.batches_a_step + 1 for line in (inside[0], inside[-1]))
        parts.append(Part(first, last + run.batches_a_step - 1, **means))
    return tuple(parts)


def _rebuilt_parts(view_of: BatchViewer, sampler: Any, num_batches: int) -> tuple[Part, ...]:
    """Return the training in parts, each told by its first batch: without a log, difficulty needs no training."""
    parts = []
    for chunk in np.array_split(np.arange(num_batches), min(NUM_PARTS, num_batches)):
        first, last = int(chunk[0]), int(chunk[-1])
        seen = view_of(sampler.at(first))
        parts.append(Part(first + 1, last + 1, _difficulty(seen), seen.masked_fraction))
    return tuple(parts)
