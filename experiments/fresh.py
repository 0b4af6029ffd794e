"""Seeds as plain data: those trained in addition to the first three, and those that judge each claim.

A claim worded after some records existed is judged by later records.
"""

from collections.abc import Sequence
from typing import Any

from experiments.shared import ndcg
from repro.spec import by_scale, term

FIRST_STATED = "2026-11-21"
"""The day of the first claims, before any record."""
STATED: dict[str, Any] = {"stated": "2026-11-22"}
"""Metadata of a claim worded on that day. `RESTATED` if its wording changed then."""
RESTATED: dict[str, Any] = STATED | {"version": 2}

TENTH_OF_POINT_PER_DOUBLING = 0.001
"""The δ of a slope: about half a point over the four to six doublings of an axis at desk."""
ADDED_DELTA: dict[str, Any] = {"delta": TENTH_OF_POINT_PER_DOUBLING, "stated": "2026-11-28"}
"""Metadata of a trend whose δ was added on that day. Its records are older, so it is tentative until new seeds judge it."""

MINED_TWICE = "its arms mined their hard negatives by two versions of the code"
MET_BY_BLIND: dict[str, Any] = {"caveat": "not evidence about context"}
"""Metadata of a claim that a model without context can also meet."""
CONTEXT_BLIND = {"sequence_dropout": 1.0, "test_contexts": "null"}
"""The context-blind counterpart of a contextual model: trained without documents, scored with null vectors."""


def blind(row: dict[str, Any]) -> dict[str, Any]:
    """Return the context-blind comparison of a claim about a contextual model."""
    return {"blind": term(ndcg("null"), **row | CONTEXT_BLIND)}


# ---- seeds trained in addition to the first three

TABLE1 = tuple(range(3, 8))
"""Table 1 at desk: contextual batches, and batches of one domain, with either architecture."""
ROWS_AT_LAB = (4, 5, 6)
"""Table 1 at lab: all rows."""

SOURCE_ROWS = (0, *TABLE1)
"""Table 1 at desk: the rows of one source per batch. Seed 0 is the one that a user's own machine runs."""

PACKING = tuple(range(3, 13))
"""Figure 14 at desk: both packing orders at the smallest clusters."""
SUPERVISED = (3, 4, 5, 6)
"""Figure 11 at desk."""
BY_CLUSTER = (0, 3, 4, 5, 6)
"""Figure 10 at desk, after a first phase shared by all cluster sizes."""
OVERFITTED = (0, 3, 4, 5, 6)
"""Figure 5 at desk, with few pairs and the full learning rate."""
DRAWS = (3, 4, 5)
"""Table 4 and the false negatives of §4.1: draws of documents and clusters. Seconds each, no training."""
NEIGHBOURS = (*DRAWS, 6, 7)
"""Table 3: draws of documents."""
TASKS = (3, 4, 5)
"""Table 2 at desk: contextual models of Table 1."""
CONTEXT_FIGURES = tuple(range(8, 16))
"""Figures 15 and 16 at desk: contextual models not in Table 1."""
CROSSED = (*CONTEXT_FIGURES, *range(16, 25))
"""Figure 7 at desk."""
REPACKED = (3, 4)
"""Figure 6: packings. Nothing is trained."""

DEPTHS = tuple(range(3, 12))
"""Figure 17 at desk."""
GRID = (3, 4, 5)
"""Batch by cluster size at desk, in the paper's range."""
DOUBLED = tuple(range(3, 10))
"""GTE's batch sizes at desk."""
RATES = (3, 4, 5)
"""GTE's learning rates at desk."""
MORE_EMERGENCE = (4, 5, 6, 7, 8)
"""All three models of context_emergence at lab, at the largest number of steps they share."""
FREQUENCY = (3, 4, 5, 6)
"""The contextual model with given word frequencies, after the most steps at desk."""
NESTED = (3, 4, 5, 6)
"""MRL's figures 2 and 7: the nested model and the plain one."""
WIDTHS = (3, 4)
"""Nested models with word frequencies, under either loss."""
PLANTED = tuple(range(3, 16))
"""The planted corpus with and without its context: both architectures with the longest training."""
BY_BATCHES = (0, *TABLE1)
"""Both models of Table 1 on batches of one domain, at desk. Seed 0 is the one that a user's own machine runs."""
BY_BATCHES_AT_LAB = (4, 5, 6)
"""The same at lab, where the claims were worded from seeds 1 to 3."""

# ---- seeds that judge claims

FIRST, AT_LAB = (0, 1, 2), (1, 2, 3)


def declare(desk: Sequence[int] = FIRST, lab: Sequence[int] = AT_LAB) -> dict[str, Any]:
    """Return the seeds that judge a claim at each scale."""
    return {"seeds": by_scale({"desk": tuple(desk), "lab": tuple(lab), "small": FIRST, "large": FIRST})}


FIRST_SEEDS = declare()
COMPANION = STATED | declare(lab=FIRST)
"""Metadata of the claims of companion papers."""
ROWS = declare(TABLE1, (*AT_LAB, *ROWS_AT_LAB))
EMERGENCE_AT_LAB = (*AT_LAB, *MORE_EMERGENCE)
"""All three models of context_emergence at lab, after the most steps they share."""
