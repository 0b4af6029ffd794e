"""Table 1 from a pretrained start without the false-negative filter: plain and contextual batches, both architectures.

From MiniLM the filter by word vectors lowers the score of clusters (experiment 56), so the rows of Table 1 with clusters
compare models that the filter held back. Here the paper's four rows have no filter. The biencoders are those of
experiment 56. A context-blind model shows how much of the architecture's gain comes from documents.
"""

from typing import Any

from experiments.e01_table1 import (
    BATCHES,
    BLIND,
    BOTH_WITH_CONTEXT,
    FAMILY_COLUMNS,
    MINI,
    NEITHER,
    SOURCE_WITH_CONTEXT,
    get_sizes,
)
from experiments.fresh import MET_BY_BLIND, NDCG_OF_BLIND, blind
from experiments.ours.e56_filter_by_surrogate import COMMON
from experiments.ours.e56_filter_by_surrogate import SEEDS as TEST_SEEDS
from experiments.shared import NDCG, under
from repro.spec import MINUTES, Claim, Column, Experiment, Row, Run, Table, base, pick, term

SEEDS = {"smoke": (0,), "mini": TEST_SEEDS}
NO_FILTER: dict[str, Any] = {"filter": "none"}
CONTEXTS = {"test_contexts": "own+random"}
ARCHITECTURE = SOURCE_WITH_CONTEXT | CONTEXTS
UNFILTERED = BATCHES | NO_FILTER
BOTH = BOTH_WITH_CONTEXT | CONTEXTS | NO_FILTER
CONTEXT_BLIND = BOTH | BLIND
ROWS = (NEITHER, UNFILTERED, BOTH, CONTEXT_BLIND, ARCHITECTURE)


def runs(scale: str) -> tuple[Run, ...]:
    """Return all rows of a seed before the next seed."""
    return tuple(base(scale, **row | get_sizes(row, scale), seed=seed) for seed in SEEDS[scale] for row in ROWS)


TABLE = Table(
    name="table1_unfiltered",
    caption=(
        "Table 1 without the false-negative filter: plain batches of one source and contextual batches (clusters within "
        "a domain), with a biencoder and with the contextual architecture. The context-blind model is the same "
        "architecture, trained without any document. The paper's contextual batches are filtered by a strong encoder."
    ),
    columns=(
        Column(label="minutes", value=MINUTES, decimals=0, scales=MINI),
        Column(label="train loss", value="train/loss", decimals=2),
        *FAMILY_COLUMNS,
        Column(label="NDCG@10", value=NDCG, factor=100),
    ),
    rows=(
        Row(label="neither (one source per batch)", runs=pick(**NEITHER), paper={"train loss": 0.39, "NDCG@10": 59.9}),
        Row(label="contextual batches", runs=pick(**UNFILTERED), paper={"train loss": 0.81, "NDCG@10": 61.7}),
        Row(label="contextual architecture", runs=pick(**ARCHITECTURE), paper={"train loss": 0.37, "NDCG@10": 62.4}),
        Row(label="· random training text", runs=pick(**ARCHITECTURE), context="random"),
        Row(label="both", runs=pick(**BOTH), paper={"train loss": 0.68, "NDCG@10": 63.1}),
        Row(label="· random training text", runs=pick(**BOTH), context="random"),
        Row(label="· context-blind, contextual batches", runs=pick(**CONTEXT_BLIND), context="null"),
    ),
)

CLAIMS = (
    Claim.order(
        "UB.a",
        "from a pretrained start, the architecture gains on contextual batches without the filter",
        pairs=[(term(NDCG, **BOTH), term(NDCG, **UNFILTERED))],
        source="Table 1: 63.1 over 61.7",
        **blind(BOTH),
        **COMMON,
    ),
    Claim.order(
        "UB.b",
        "on contextual batches without the filter, the contextual model beats the context-blind model",
        pairs=[(term(NDCG, **BOTH), term(NDCG_OF_BLIND, **CONTEXT_BLIND))],
        source="our question: what documents add to learned vectors in front of the text",
        **COMMON,
    ),
    Claim.order(
        "UB.c",
        "on contextual batches without the filter, the searched corpus as context beats random training documents",
        pairs=[(term(NDCG, **BOTH), term(under("random"), **BOTH))],
        source="Table 2",
        **COMMON,
    ),
    Claim.order(
        "UB.d",
        "from a pretrained start, contextual batches without the filter add to the architecture",
        pairs=[(term(NDCG, **BOTH), term(NDCG, **ARCHITECTURE))],
        source="Table 1: 63.1 over 62.4",
        **MET_BY_BLIND,
        **COMMON,
    ),
    Claim.order(
        "UB.e",
        "from a pretrained start, the architecture beats the biencoder on plain batches of one source",
        pairs=[(term(NDCG, **ARCHITECTURE), term(NDCG, **NEITHER))],
        source="Table 1: 62.4 over 59.9",
        **MET_BY_BLIND,
        **COMMON,
    ),
)

EXPERIMENT = Experiment(
    number=57, title="Table 1 without the filter", runs=runs, artefacts=(TABLE,), claims=CLAIMS, scales=tuple(SEEDS)
)
