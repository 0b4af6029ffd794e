"""Batch size, cluster size and the filter at desk, in the paper's range (figures 2, 3, 4, 9, 12 and 13).

Experiment 4 has batches of 32, below all of the paper's, and three cluster sizes. Here batches have 128 to 1024 pairs
and clusters 64 to 47,616, and all cells see four times as many pairs. Clusters lie within a source. A source with fewer
pairs than a cluster is one cluster. The largest source of desk has 47,616 pairs, so the largest clusters are whole sources.
"""

from typing import Any

from experiments.e04_batch_by_cluster import (
    BIENCODER,
    BY_BATCH,
    BY_BATCH_AND_CLUSTER,
    BY_CLUSTER,
    BY_DIFFICULTY,
    CELLS_NOTE,
    CONTEXTUAL,
    DIFFICULTY_NOTE,
    EQUAL_PAIRS,
    FILTERED,
    LARGER,
    SMALLER,
    UNFILTERED,
    claim_trend,
    gain_of_small_clusters,
    list_cells,
    list_pairs,
)
from experiments.fresh import CONTEXT_BLIND, MET_BY_BLIND, NDCG_OF_BLIND
from experiments.shared import (
    BELOW_PAPERS_GAINS,
    LOSS,
    MEAN_OF_SEEDS,
    NDCG,
    get_size_at,
)
from repro.spec import Claim, Experiment, Figure, Row, Run, by_scale, pick, term

BATCHES: dict[str, tuple[int, ...]] = {"smoke": (8, 16), "desk": (128, 256, 512, 1024)}
CONTEXTUAL_BATCHES: dict[str, tuple[int, ...]] = {"smoke": (8,), "desk": (128, 256, 512)}
CLUSTERS: dict[str, tuple[int, ...]] = {"smoke": (8, 40), "desk": (64, 256, 1024, 4096, 16384, 47616)}
BLIND_CLUSTER = {"smoke": 8, "desk": 1024}
"""The cluster size of the context-blind models."""
NUM_TRAINING_PAIRS = {"smoke": 192, "desk": 61440}
EQUAL_STEPS = {"smoke": 12, "desk": 240}
EQUAL_STEPS_CLUSTER = {"smoke": 16, "desk": 512}
"""The cluster size of runs with equal steps. It is not in the grid, so no cell of the grid contains them."""
SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), "desk": (3, 4, 5)}
"""No cell of the grid was trained before the claims were stated, and experiment 4 has other seeds."""

PLAIN, PLAIN_UNFILTERED = BIENCODER | FILTERED, BIENCODER | UNFILTERED
CDE = CONTEXTUAL | FILTERED | {"test_contexts": "own"}
BLIND = CDE | CONTEXT_BLIND


def runs(scale: str) -> tuple[Run, ...]:
    """Return, seed by seed, both architectures over the grid, context-blind models, and biencoders with equal steps."""
    blind_cluster, equal_cluster = (BLIND_CLUSTER[scale],), (EQUAL_STEPS_CLUSTER[scale],)
    rows = [(PLAIN, BATCHES, CLUSTERS[scale]), (PLAIN_UNFILTERED, BATCHES, CLUSTERS[scale])]
    rows += [(CDE, CONTEXTUAL_BATCHES, CLUSTERS[scale]), (BLIND, CONTEXTUAL_BATCHES, blind_cluster)]
    cells = [
        (row, batch_size, NUM_TRAINING_PAIRS[scale] // batch_size, clusters)
        for row, batch_sizes, clusters in rows
        for batch_size in batch_sizes[scale]
    ]
    cells += [(PLAIN, batch_size, EQUAL_STEPS[scale], equal_cluster) for batch_size in BATCHES[scale]]
    return tuple(
        run
        for seed in SEEDS[scale]
        for row, batch_size, num_steps, clusters in cells
        for run in list_cells(scale, row, batch_size, num_steps, clusters, seed)
    )


ALL_CLUSTERS: dict[str, Any] = {"cluster_size": by_scale(CLUSTERS)}
WITH_FILTER, WITHOUT_FILTER, CONTEXTUAL_ROW = (
    Row(label=label, runs=pick(**row | ALL_CLUSTERS))
    for label, row in (
        ("filter", PLAIN),
        ("no filter", PLAIN_UNFILTERED),
        ("contextual, filter", CDE),
    )
)

FIGURES = (
    Figure(
        name="grid_in_range",
        title="Score by batch size, cluster size and filter, in the paper's range",
        caption=(
            "NDCG@10 of biencoders by batch and cluster size, with the false-negative filter and without, and of the "
            f"contextual model with it. The largest clusters are whole sources. {CELLS_NOTE} {EQUAL_PAIRS}"
        ),
        series=(WITH_FILTER, WITHOUT_FILTER, CONTEXTUAL_ROW),
        **BY_BATCH_AND_CLUSTER,
    ),
    Figure(
        name="grid_in_range_difficulty",
        title="Score against batch difficulty, with and without the filter, in the paper's range",
        caption=(f"{DIFFICULTY_NOTE} Lines are least-squares fits to these means and r is Pearson's correlation."),
        series=(WITH_FILTER, WITHOUT_FILTER),
        **BY_DIFFICULTY,
    ),
    Figure(
        name="grid_in_range_clusters",
        title="Score by cluster size, in the paper's range",
        caption=f"NDCG@10 by cluster size, averaged over batch sizes. {MEAN_OF_SEEDS}",
        series=(WITH_FILTER, WITHOUT_FILTER, CONTEXTUAL_ROW),
        **BY_CLUSTER,
    ),
    Figure(
        name="grid_in_range_batches",
        title="Score by batch size, in the paper's range",
        caption=(
            f"NDCG@10 by batch size, averaged over cluster sizes. {MEAN_OF_SEEDS} {EQUAL_PAIRS} The line of equal steps "
            "is an exception. Its clusters have one size, and larger batches see more pairs."
        ),
        series=(
            WITH_FILTER,
            WITHOUT_FILTER,
            CONTEXTUAL_ROW,
            Row(label="filter, equal steps", runs=pick(**PLAIN, cluster_size=by_scale(EQUAL_STEPS_CLUSTER))),
        ),
        **BY_BATCH,
    ),
)

COMMON: dict[str, Any] = {"stated": "2026-11-27", "scales": ("desk",), "seeds": SEEDS["desk"]}
COMMON_OF_DIFFERENCES = COMMON | BELOW_PAPERS_GAINS
ALL_BATCHES: dict[str, Any] = {"batch_size": by_scale(BATCHES)}
ALL_CONTEXTUAL_BATCHES: dict[str, Any] = {"batch_size": by_scale(CONTEXTUAL_BATCHES)}
SMALLEST_BATCH, LARGEST_BATCH = ({"batch_size": get_size_at(BATCHES, index)} for index in (0, -1))
BLIND_CLUSTER_SIZE = {"cluster_size": by_scale(BLIND_CLUSTER)}
EQUAL_STEPS_ROW = PLAIN | {"cluster_size": by_scale(EQUAL_STEPS_CLUSTER)}

CLAIMS = (
    Claim.correlation(
        "GR.a",
        "in the paper's range, with the filter, at each batch size, harder batches go with higher scores",
        x=term(LOSS, **PLAIN | ALL_CLUSTERS),
        y=term(NDCG, **PLAIN | ALL_CLUSTERS),
        points="runs",
        within="batch_size",
        sign=1,
        source="Figure 2 and §6",
        because="Pearson's r over cluster sizes beyond chance, the mean over batch sizes; after one phase, not two",
        **COMMON,
    ),
    claim_trend(
        "GR.b",
        "in the paper's range, with the filter, smaller clusters are better",
        *SMALLER,
        "Figure 3",
        PLAIN | ALL_CLUSTERS,
        **COMMON,
    ),
    claim_trend(
        "GR.c",
        "in the paper's range, without the filter, larger clusters are better",
        *LARGER,
        "Figure 3",
        PLAIN_UNFILTERED | ALL_CLUSTERS,
        **COMMON,
    ),
    Claim.order(
        "GR.d",
        "in the paper's range, filtered batches beat unfiltered ones over all settings",
        pairs=list_pairs(PLAIN, PLAIN_UNFILTERED, ALL_BATCHES | ALL_CLUSTERS),
        source="Figure 4",
        **COMMON_OF_DIFFERENCES,
    ),
    Claim.order(
        "GR.e",
        "in the paper's range, without the filter, larger batches are better at equal numbers of pairs",
        pairs=list_pairs(PLAIN_UNFILTERED | LARGEST_BATCH, PLAIN_UNFILTERED | SMALLEST_BATCH, ALL_CLUSTERS),
        source="§6",
        **COMMON_OF_DIFFERENCES,
    ),
    Claim.order(
        "GR.f",
        "in the paper's range, larger batches are better at equal numbers of steps",
        pairs=list_pairs(EQUAL_STEPS_ROW | LARGEST_BATCH, EQUAL_STEPS_ROW | SMALLEST_BATCH, {}),
        source="§6",
        **COMMON_OF_DIFFERENCES,
    ),
    claim_trend(
        "GR.g",
        "in the paper's range, the contextual model, too, is better with smaller clusters",
        *SMALLER,
        "Figure 9",
        CDE | ALL_CLUSTERS,
        **COMMON,
    ),
    Claim.order(
        "GR.h",
        "in the paper's range, the contextual model beats the biencoder, on average over batch and cluster sizes",
        pairs=list_pairs(CDE, PLAIN, ALL_CONTEXTUAL_BATCHES | ALL_CLUSTERS),
        source="Figure 9 and §9.5",
        **COMMON_OF_DIFFERENCES | MET_BY_BLIND,
    ),
    Claim.order(
        "GR.i",
        "in the paper's range, at one cluster size, the contextual model beats the one trained without documents",
        pairs=[(term(NDCG, **CDE | BLIND_CLUSTER_SIZE), term(NDCG_OF_BLIND, **BLIND | BLIND_CLUSTER_SIZE))],
        source="ours",
        **COMMON_OF_DIFFERENCES,
    ),
    Claim.interaction(
        "GR.j",
        "in the paper's range, the biencoder loses more than the contextual model from the smallest to the largest clusters",
        of=gain_of_small_clusters(PLAIN | ALL_CONTEXTUAL_BATCHES, CLUSTERS),
        above=gain_of_small_clusters(CDE | ALL_CONTEXTUAL_BATCHES, CLUSTERS),
        source="§9.5",
        **COMMON_OF_DIFFERENCES,
    ),
    Claim.interaction(
        "GR.k",
        "in the paper's range, small clusters gain more with the filter than without",
        of=gain_of_small_clusters(PLAIN | ALL_BATCHES, CLUSTERS),
        above=gain_of_small_clusters(PLAIN_UNFILTERED | ALL_BATCHES, CLUSTERS),
        source="Figure 12",
        **COMMON_OF_DIFFERENCES,
    ),
)

EXPERIMENT = Experiment(
    number=60,
    title="Batch size, cluster size and the filter at desk, in the paper's range",
    runs=runs,
    artefacts=FIGURES,
    claims=CLAIMS,
    scales=tuple(SEEDS),
)
