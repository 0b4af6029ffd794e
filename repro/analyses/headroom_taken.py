"""The share of the headroom that a contextual model takes: its own − wrong, over that of words weighted by IDF.

A model is told about a corpus by some of its documents. Word overlap (BM25's formula over WordPiece tokens) can be
told by the same documents: its words weigh by the IDF counted in them, mixed with the training text's.

    headroom = NDCG@10 of word overlap with IDF of the model's own context documents
             − NDCG@10 of word overlap with IDF of its wrong context documents
    share taken = (NDCG@10 of the model under the own context − under the wrong one) / headroom

Both are means over the same collections. A share of 1 means that the model gains as much from being told the right
corpus instead of a wrong one as a system does that only weighs words. It is told where the headroom's interval is above
zero: elsewhere there is nothing to take. How the headroom is computed: `repro/evaluate/headroom.py`.

Shapes: Q queries of all collections, R resamples.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from repro.evaluate.headroom import read_word_scores
from repro.evaluate.paired import Gap
from repro.pipeline.inputs import Inputs


def shares_taken(gained: Mapping[str, Gap], headroom: Mapping[str, Gap]) -> dict[str, float]:
    """Return the headroom by group, and the share of it that was gained where there is one, as metrics with intervals.

    Gaps are resampled alike (`paired_gaps`), so the interval of a share is that of the ratio of paired resamples.
    """
    metrics: dict[str, float] = {}
    for group, room in headroom.items():
        metrics |= room.as_metrics(f"headroom/{group}")
        if room.low <= 0:
            continue
        has_room_R = room.samples_R > 0  # all but one in forty of them, or fewer
        ratios_R = gained[group].samples_R[has_room_R] / room.samples_R[has_room_R]
        share = Gap.of(gained[group].difference / room.difference, ratios_R)
        metrics |= {f"headroom_taken/{group}/share": share.difference}
        metrics |= {f"headroom_taken/{group}/low": share.low, f"headroom_taken/{group}/high": share.high}
    return metrics


def compute_word_scores(inputs: Inputs) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the NDCG@10 of word overlap under the own and the wrong context documents, float32 (Q,) each.

    They are those of the stage `headroom`. None for a large suite.
    """
    return read_word_scores(inputs.graph.headroom.build())
