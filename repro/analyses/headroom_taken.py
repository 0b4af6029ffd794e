"""Relate the gain of a contextual model to the headroom: the gain of word overlap from the same documents.

A contextual model learns about a corpus from some of its documents. Word overlap (the BM25 formula over WordPiece
tokens) can use the same documents: it weights words by their IDF, mixed with that of the training text.

    headroom = NDCG@10 of word overlap with IDF of the own context documents
             − NDCG@10 of word overlap with IDF of the wrong context documents
    share taken = (NDCG@10 of the model under the own context − under the wrong one) / headroom

Both are means over the same collections. At a share of 1 the model gains as much from the right corpus as a system that
only weights words. The share is reported if the interval of the headroom is above zero. Otherwise there is nothing to
gain. `repro/evaluate/headroom.py` computes the headroom.

Shapes: Q queries of all collections, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from repro.evaluate.headroom import read_word_scores
from repro.evaluate.paired import Gap
from repro.pipeline.inputs import Inputs


def shares_taken(gained: Mapping[str, Gap], headroom: Mapping[str, Gap]) -> dict[str, float]:
    """Return the headroom per group, and the share of it that was gained, as metrics with intervals.

    A group without headroom has no share. Gaps have paired resamples (`paired_gaps`), so the interval of a share is
    that of the ratio of paired resamples.
    """
    metrics: dict[str, float] = {}
    for group, room in headroom.items():
        metrics |= room.as_metrics(f"headroom/{group}")
        if room.low <= 0:
            continue
        has_room_R = room.samples_R > 0  # at least 39 of 40 resamples, since `low` is above zero
        ratios_R = gained[group].samples_R[has_room_R] / room.samples_R[has_room_R]
        share = Gap.of(gained[group].difference / room.difference, ratios_R)
        metrics |= {f"headroom_taken/{group}/share": share.difference}
        metrics |= {f"headroom_taken/{group}/low": share.low, f"headroom_taken/{group}/high": share.high}
    return metrics


def compute_word_scores(inputs: Inputs) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the NDCG@10 of word overlap under the own and the wrong context documents, float32 (Q,) each.

    Builds the stage `headroom` if needed. Returns None for a large suite.
    """
    return read_word_scores(inputs.graph.headroom.build())
