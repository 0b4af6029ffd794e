"""Batch size, cluster size and the filter from a pretrained start (the grid of figures 2, 3, 9, 12 and 13).

The batch sizes lie in the range that the paper's figure 13 calls best, and all cells see the same number of pairs.
Clusters lie within a source. A source with fewer pairs than a cluster is one cluster.
"""

from typing import Any

from experiments import e04_batch_by_cluster as e04
from experiments.fresh import MET_BY_BLIND
from experiments.shared import BELOW_PAPERS_GAINS, get_size_at
from repro.spec import Claim, Experiment, Figure, Row, Run, by_scale, pick

BATCH_SIZES: dict[str, tuple[int, ...]] = {"smoke": (8, 16), "mini": (128, 512)}
CLUSTER_SIZES: dict[str, tuple[int, ...]] = {"smoke": (8, 40), "mini": (64, 256, 1024, 4096, 16384)}
NUM_TRAINING_PAIRS = {"smoke": 192, "mini": 61440}
SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), "mini": (1, 2, 3)}
"""No cell of the grid was trained before the claims were stated."""

WITH_FILTER, WITHOUT_FILTER, CONTEXTUAL_ROW = e04.PLAIN, e04.PLAIN_UNFILTERED, e04.CONTEXTUAL | e04.UNFILTERED
LINES = (("filter", WITH_FILTER), ("no filter", WITHOUT_FILTER), ("contextual, no filter", CONTEXTUAL_ROW))


def runs(scale: str) -> tuple[Run, ...]:
    """Return biencoders with and without the filter, and contextual models at the smallest batch size, seed by seed."""
    small, *larger = BATCH_SIZES[scale]
    rows = [(row, small) for _, row in LINES]
    rows += [(row, batch_size) for batch_size in larger for row in (WITHOUT_FILTER, WITH_FILTER)]
    return tuple(
        run
        for seed in SEEDS[scale]
        for row, batch_size in rows
        for run in e04.cells(scale, row, (batch_size,), CLUSTER_SIZES[scale], (seed,), NUM_TRAINING_PAIRS)
    )


HEATMAP = Figure(
    name="grid_at_mini",
    title="Score by batch size, cluster size and filter, from MiniLM",
    caption=(
        "NDCG@10 of biencoders that start from MiniLM, by batch and cluster size, with the false-negative filter and "
        "without, and of the contextual model without it. "
        f"{e04.CELLS_NOTE} All training runs see the same number of pairs."
    ),
    series=tuple(Row(label=label, runs=pick(**row)) for label, row in LINES),
    **e04.BY_BATCH_AND_CLUSTER,
)
SMALL_BATCH: dict[str, Any] = {"batch_size": get_size_at(BATCH_SIZES, 0)}
LARGE_BATCH: dict[str, Any] = {"batch_size": get_size_at(BATCH_SIZES, -1)}
COMMON: dict[str, Any] = {"stated": "2026-11-26", "scales": ("mini",), "seeds": SEEDS["mini"]}
COMMON_OF_DIFFERENCES = COMMON | BELOW_PAPERS_GAINS
ALL_BATCHES: dict[str, Any] = {"batch_size": by_scale(BATCH_SIZES)}
ALL_CLUSTERS: dict[str, Any] = {"cluster_size": by_scale(CLUSTER_SIZES)}

CLAIMS = (
    e04.claim_trend(
        "GM.a",
        "from a pretrained start, with the filter, smaller clusters are better",
        *e04.SMALLER,
        "Figure 3",
        WITH_FILTER,
        **COMMON,
    ),
    e04.claim_trend(
        "GM.b",
        "from a pretrained start, without the filter, larger clusters are better",
        *e04.LARGER,
        "Figure 3",
        WITHOUT_FILTER,
        **COMMON,
    ),
    Claim.order(
        "GM.c",
        "from a pretrained start, filtered batches beat unfiltered ones over all settings",
        pairs=e04.list_pairs(WITH_FILTER, WITHOUT_FILTER, ALL_BATCHES | ALL_CLUSTERS),
        source="Figure 4",
        **COMMON_OF_DIFFERENCES,
    ),
    Claim.order(
        "GM.d",
        "from a pretrained start, without the filter, larger batches are better",
        pairs=e04.list_pairs(WITHOUT_FILTER | LARGE_BATCH, WITHOUT_FILTER | SMALL_BATCH, ALL_CLUSTERS),
        source="§6",
        **COMMON_OF_DIFFERENCES,
    ),
    e04.claim_trend(
        "GM.e",
        "from a pretrained start, without the filter, the contextual model is better with smaller clusters",
        *e04.SMALLER,
        "Figure 9",
        CONTEXTUAL_ROW,
        **COMMON,
    ),
    Claim.interaction(
        "GM.f",
        "from a pretrained start, small clusters gain more with the filter than without",
        of=e04.gain_of_small_clusters(WITH_FILTER | SMALL_BATCH, CLUSTER_SIZES),
        above=e04.gain_of_small_clusters(WITHOUT_FILTER | SMALL_BATCH, CLUSTER_SIZES),
        source="Figure 12",
        **COMMON_OF_DIFFERENCES,
    ),
    Claim.order(
        "GM.g",
        "from a pretrained start, without the filter, the contextual model beats the biencoder, on average over cluster sizes",
        pairs=e04.list_pairs(CONTEXTUAL_ROW, WITHOUT_FILTER, SMALL_BATCH | ALL_CLUSTERS),
        source="Figure 9 and §9.5",
        **COMMON_OF_DIFFERENCES | MET_BY_BLIND,
    ),
)

EXPERIMENT = Experiment(
    title="Batch size, cluster size and the filter, from MiniLM",
    runs=runs,
    artefacts=(HEATMAP,),
    claims=CLAIMS,
    scales=tuple(SEEDS),
)
