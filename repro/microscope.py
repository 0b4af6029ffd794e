"""The batch microscope: one batch of a run, rebuilt from (seed, step) without training, seen through the surrogate.

Shapes: B pairs of the batch, H hard negatives a pair, M = B (1 + H) documents: the positives, then the hard negatives.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from repro.batches.mask import batch_difficulty, content_keys, mask_false_negatives, masked_fraction
from repro.batches.surrogate import load_surrogate
from repro.data.pairs import Side
from repro.identity import run_id, training_id
from repro.inputs import Inputs, stages_of
from repro.places import run_folder
from repro.spec import TRAINED, Run
from repro.train.metrics import read_metrics
from repro.training import build_sampler, settings_of

Report = Callable[[str], None]
NUM_PARTS = 10
"""Difficulty over a training is told in so many parts."""
STAGES = ("corpus", "selection", "embeddings", "clusters", "negatives")


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
    """All that is told of one batch; `batch_hash` is the one in the training's log, scores are the surrogate's."""

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
        """Gives the explanation as plain values."""
        return asdict(self)


@dataclass(frozen=True)
class Seen:
    """A batch as the surrogate and the filter see it."""

    pairs_B: np.ndarray
    documents_M: list[str]
    scores_BM: np.ndarray
    masked_BM: np.ndarray
    is_same_text_BM: np.ndarray

    @property
    def difficulty(self) -> float:
        """The mean similarity of a query to the other documents."""
        return batch_difficulty(self.scores_BM, np.arange(len(self.pairs_B)))


def explain(run: Run, batch: int, *, num_negatives: int = 3, report: Report = print) -> Explanation:
    """Looks into one batch of a run (counted from 1); builds the stages it needs, trains nothing.

    ValueError for a run without batches, and for a batch that its training does not have.
    """
    if run.architecture not in TRAINED and run.measure != "batches":
        raise ValueError(f"run {run_id(run)} ({run.architecture}, measure {run.measure!r}) has no batches")
    for stage in (stage for stage in stages_of(run) if stage.name in STAGES):
        stage.build(report)
    inputs = Inputs(run)
    sampler = build_sampler(run, inputs)
    num_batches = settings_of(run, len(sampler)).num_steps
    if not 1 <= batch <= num_batches:
        raise ValueError(f"batch {batch}: this training has batches 1 to {num_batches}")
    seen = look_at(run, inputs, sampler.at(batch - 1))
    parts = _logged_parts(run)
    return Explanation(
        run=run_id(run),
        batch=batch,
        epoch=(batch - 1) // len(sampler) + 1,
        batch_hash=hashlib.sha256(np.asarray(seen.pairs_B, dtype="<i8").tobytes()).hexdigest()[:16],
        surrogate=run.surrogate,
        filter=run.filter,
        filter_margin=run.filter_margin,
        difficulty=seen.difficulty,
        masked_fraction=masked_fraction(seen.masked_BM),
        pairs=tuple(_pair(run, inputs, seen, row, num_negatives) for row in range(len(seen.pairs_B))),
        parts=parts or _rebuilt_parts(run, inputs, sampler, num_batches),
        parts_are_from="the training's log" if parts else "one rebuilt batch of each part",
    )


def look_at(run: Run, inputs: Inputs, pairs_B: np.ndarray) -> Seen:
    """Gives the scores and the mask of a batch, as its training has them."""
    rows_M = pairs_B
    if inputs.negatives is not None:
        rows_M = np.concatenate([pairs_B, inputs.negatives[pairs_B].reshape(-1)])
    documents_M = inputs.pairs.texts("document", rows_M)
    scores_BM = _vectors(run, inputs, "query", pairs_B) @ _vectors(run, inputs, "document", rows_M).T
    keys_M, own_B = content_keys(documents_M), np.arange(len(pairs_B))
    masked_BM = mask_false_negatives(
        own_B,
        keys_M,
        scores_QM=scores_BM if run.filter == "surrogate" else None,
        margin=run.filter_margin,
        num_hard_negatives=run.num_hard_negatives,
    )
    return Seen(pairs_B, documents_M, scores_BM, masked_BM, keys_M == keys_M[own_B][:, None])


def _vectors(run: Run, inputs: Inputs, side: Side, rows: np.ndarray) -> np.ndarray:
    """Gives surrogate vectors, float32 (len(rows), D): the stored ones, or fresh ones for a run that stores none."""
    stored = inputs.embeddings(side)
    if stored is not None:
        return np.asarray(stored[rows], np.float32)
    return load_surrogate(run.surrogate).embed(inputs.pairs.texts(side, rows), run.max_tokens)


def _pair(run: Run, inputs: Inputs, seen: Seen, row: int, num_negatives: int) -> Pair:
    number, pairs = int(seen.pairs_B[row]), inputs.pairs
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
        document=seen.documents_M[row],
        score=float(scores_M[row]),
        hardest=tuple(_other(seen, row, place) for place in order[is_negative_M[order]][:num_negatives]),
        removed=tuple(_other(seen, row, place) for place in order[masked_M[order]]),
    )


def _other(seen: Seen, row: int, place: int) -> Other:
    why = ""
    if seen.masked_BM[row, place]:
        why = "the same text" if seen.is_same_text_BM[row, place] else "as near as its own document, or nearer"
    return Other(int(place) + 1, float(seen.scores_BM[row, place]), seen.documents_M[place], why)


def _logged_parts(run: Run) -> tuple[Part, ...]:
    """Gives the training in parts, from its log; nothing when there is no log with difficulties."""
    lines = [line for line in read_metrics(run_folder(training_id(run))) if line["difficulty"] is not None]
    parts = []
    for chunk in np.array_split(np.arange(len(lines)), min(NUM_PARTS, len(lines))) if lines else ():
        inside = [lines[place] for place in chunk]
        names = ("difficulty", "masked_fraction", "loss")
        means = {name: float(np.mean([line[name] for line in inside])) for name in names}
        parts.append(Part(inside[0]["step"], inside[-1]["step"], **means))
    return tuple(parts)


def _rebuilt_parts(run: Run, inputs: Inputs, sampler: Any, num_batches: int) -> tuple[Part, ...]:
    """Gives the training in parts, each told by its first batch: without a log, difficulty needs no training."""
    parts = []
    for chunk in np.array_split(np.arange(num_batches), min(NUM_PARTS, num_batches)):
        first, last = int(chunk[0]), int(chunk[-1])
        seen = look_at(run, inputs, sampler.at(first))
        parts.append(Part(first + 1, last + 1, seen.difficulty, masked_fraction(seen.masked_BM)))
    return tuple(parts)
