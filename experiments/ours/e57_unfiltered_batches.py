"""Contextual batches without the filter, with and without the contextual architecture, from a pretrained start.

From MiniLM the false-negative filter by word vectors lowers the score of clusters (experiment 56), so the rows of
Table 1 that combine clusters, filter and architecture compare models that the filter held back. Here the paper's
question is asked without it: what does the architecture add on contextual batches, and how much of that do documents
add? The biencoders are those of experiment 56, on the same seeds.
"""

from typing import Any

from experiments.e01_table1 import (
    BEYOND_CHANCE,
    BLIND,
    CLUSTER,
    CONTEXTUAL_BATCH,
    FAMILY_COLUMNS,
    MINI,
    NDCG,
    NEITHER,
    WITH_CONTEXT,
)
from experiments.fresh import BELOW_SMALLEST_GAIN, HALF_A_POINT, NDCG_OF_BLIND, blind
from experiments.ours.e56_filter_by_surrogate import SEEDS as TEST_SEEDS
from repro.spec import MINUTES, Claim, Column, Experiment, Row, Run, Table, base, pick, term

SEEDS = {"smoke": (0,), "mini": TEST_SEEDS}
CLUSTERS: dict[str, Any] = {"sampler": "cluster", "packing": "greedy", "filter": "none"}
BIENCODER = {"architecture": "biencoder"} | CLUSTERS
CONTEXTUAL = {"architecture": "contextual", "test_contexts": "own+random"} | WITH_CONTEXT | CLUSTERS
CONTEXT_BLIND = CONTEXTUAL | BLIND


def runs(scale: str) -> tuple[Run, ...]:
    """Return all rows of a seed before the next seed."""
    clusters = {"batch_size": CONTEXTUAL_BATCH[scale], "cluster_size": CLUSTER[scale]}
    return tuple(
        run
        for seed in SEEDS[scale]
        for run in (
            base(scale, **NEITHER, seed=seed),
            *(base(scale, **row | clusters, seed=seed) for row in (BIENCODER, CONTEXTUAL, CONTEXT_BLIND)),
        )
    )


TABLE = Table(
    name="unfiltered_batches",
    caption=(
        "Contextual batches (clusters within a source) without the false-negative filter, for a biencoder, for the "
        "contextual architecture with two kinds of context, and for the same architecture trained without any "
        "document: NDCG@10."
    ),
    columns=(
        Column(label="minutes", value=MINUTES, decimals=0, scales=MINI),
        Column(label="train loss", value="train/loss", decimals=2),
        *FAMILY_COLUMNS,
        Column(label="NDCG@10", value=NDCG, factor=100),
    ),
    rows=(
        Row(label="one source per batch: biencoder", runs=pick(**NEITHER)),
        Row(label="clusters: biencoder", runs=pick(**BIENCODER)),
        Row(label="clusters: contextual, in-corpus", runs=pick(**CONTEXTUAL)),
        Row(label="· random training text", runs=pick(**CONTEXTUAL), context="random"),
        Row(label="clusters: context-blind", runs=pick(**CONTEXT_BLIND), context="null"),
    ),
)

OWN = term(NDCG, **CONTEXTUAL)
COMMON: dict[str, Any] = {
    "delta": HALF_A_POINT,
    "because": f"{BEYOND_CHANCE}; {BELOW_SMALLEST_GAIN}",
    "stated": "2026-11-26",
    "scales": MINI,
    "seeds": TEST_SEEDS,
}
CLAIMS = (
    Claim.order(
        "UB.a",
        "from a pretrained start, the architecture gains on contextual batches without the filter",
        pairs=[(OWN, term(NDCG, **BIENCODER))],
        source="Table 1: 63.1 over 61.7",
        **blind(CONTEXTUAL),
        **COMMON,
    ),
    Claim.order(
        "UB.b",
        "on contextual batches without the filter, the contextual model beats the context-blind model",
        pairs=[(OWN, term(NDCG_OF_BLIND, **CONTEXT_BLIND))],
        source="our question: what documents add to learned vectors in front of the text",
        **COMMON,
    ),
    Claim.order(
        "UB.c",
        "on contextual batches without the filter, the searched corpus as context beats random training documents",
        pairs=[(OWN, term(NDCG.replace("{suite}", "{suite}+random"), **CONTEXTUAL))],
        source="Table 2",
        **COMMON,
    ),
)

EXPERIMENT = Experiment(
    number=57,
    title="Contextual batches without the filter",
    runs=runs,
    artefacts=(TABLE,),
    claims=CLAIMS,
    scales=tuple(SEEDS),
)
