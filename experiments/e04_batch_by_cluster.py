"""Batch size by cluster size by filter, for both architectures: one grid behind figures 2, 3, 4, 9, 12 and 13."""

from typing import Any

from repro.spec import Claim, Experiment, Figure, Row, Run, base, grid, pick, term

# As in the paper, clusters are made inside a whole source (§5): they may be larger than a fine domain.
BATCHES: dict[str, tuple[int, ...]] = {"smoke": (8, 16, 24), "desk": (32, 128, 512), "lab": (256, 1024, 4096)}
BATCHES |= dict.fromkeys(("small", "large"), (256, 512, 1024, 2048, 4096))
CLUSTERS: dict[str, tuple[int, ...]] = {"smoke": (8, 16, 40), "desk": (64, 512, 4096), "lab": (64, 1024, 32768)}
CLUSTERS |= dict.fromkeys(("small", "large"), (64, 256, 1024, 4096, 65536, 2097152, 4194304))
SMALLEST, LARGE = (8, 64), (40, 4096, 32768, 65536, 2097152, 4194304)  # cluster sizes, at whatever scale
LEFT, MIDDLE, RIGHT = (8, 32, 256), (16, 128, 1024), (24, 512, 4096)  # batch sizes, at whatever scale
PAIRS = {"smoke": 192, "desk": 15360, "lab": 131072}  # of each training, so that steps fall as batches grow
SEEDS = (0, 1, 2)

GRID: dict[str, Any] = {"sampler": "cluster", "domain_column": "source", "packing": "greedy"}
BIENCODER, CONTEXTUAL = {"architecture": "biencoder", **GRID}, {"architecture": "contextual", **GRID}
FILTERED, UNFILTERED = {"filter": "surrogate"}, {"filter": "none"}


def budget(scale: str, batch_size: int) -> dict[str, int | None]:
    """How long one training of the grid is: as many pairs in each at our scales, one epoch in the paper's."""
    if scale not in PAIRS:
        return {"num_steps": None, "num_epochs": 1}
    num_steps = PAIRS[scale] // batch_size
    return {"num_steps": num_steps, "num_warmup_steps": num_steps // 10}


def cells(scale: str, **changes: object) -> tuple[Run, ...]:
    """One run for every batch size, cluster size and seed."""
    return tuple(
        run
        for batch_size in BATCHES[scale]
        for run in grid(
            base(scale, **{**GRID, "cluster_size": CLUSTERS[scale][0], "test_contexts": "own"}),
            batch_size=batch_size,
            cluster_size=CLUSTERS[scale],
            seed=SEEDS,
            **budget(scale, batch_size),
            **changes,
        )
    )


def runs(scale: str) -> tuple[Run, ...]:
    """Biencoders with and without the filter, contextual models with it."""
    filters = ("surrogate", "none")
    return cells(scale, architecture="biencoder", filter=filters) + cells(
        scale, architecture="contextual", filter="surrogate"
    )


NDCG, LOSS = "{suite}/mean/ndcg_at_10", "train/loss"
POINTS: dict[str, Any] = {"y": NDCG, "y_label": "NDCG@10 (points)", "factor": 100}
WITH, WITHOUT = (
    Row(label="filter", of=pick(**BIENCODER, **FILTERED)),
    Row(label="no filter", of=pick(**BIENCODER, **UNFILTERED)),
)
BY_BATCH_AND_CLUSTER: dict[str, Any] = {
    "kind": "heatmap",
    "x": "cluster_size",
    "y": "batch_size",
    "x_label": "cluster size (pairs)",
    "y_label": "batch size (pairs)",
    "cell": NDCG,
    "factor": 100,
}
EQUAL_PAIRS = "At our scales every training sees the same number of pairs."

FIGURES = (
    Figure(
        name="figure2",
        caption=f"NDCG@10 against batch difficulty, the loss at the end of training; biencoders. {EQUAL_PAIRS}",
        kind="scatter",
        x=LOSS,
        x_label="training loss over the last tenth of the steps",
        hue="batch_size",
        series=(Row(label="biencoder", of=pick(**BIENCODER)),),
        **POINTS,
    ),
    Figure(
        name="figure3",
        caption=f"Biencoder: NDCG@10 by batch and cluster size, with and without the filter. {EQUAL_PAIRS}",
        series=(WITH, WITHOUT),
        **BY_BATCH_AND_CLUSTER,
    ),
    Figure(
        name="figure4",
        caption="The filter on and off; a dot is a training of a biencoder: a cluster size and a seed.",
        kind="dots",
        x="filter",
        x_label="false-negative filter",
        hue="batch_size",
        series=(Row(label="biencoder", of=pick(**BIENCODER)),),
        **POINTS,
    ),
    Figure(
        name="figure9",
        caption=f"Contextual model: NDCG@10 by batch and cluster size, with the filter. {EQUAL_PAIRS}",
        series=(Row(label="contextual", of=pick(**CONTEXTUAL)), Row(label="biencoder", of=WITH.of)),
        **BY_BATCH_AND_CLUSTER,
    ),
    Figure(
        name="figure12",
        caption="Cluster size with and without the filter, the mean over batch sizes; biencoders.",
        kind="lines",
        x="cluster_size",
        x_label="cluster size (pairs)",
        x_is_log=True,
        series=(WITH, WITHOUT),
        **POINTS,
    ),
    Figure(
        name="figure13",
        caption="Batch size with and without the filter, the mean over cluster sizes; biencoders.",
        kind="lines",
        x="batch_size",
        x_label="batch size (pairs)",
        x_is_log=True,
        series=(WITH, WITHOUT),
        **POINTS,
    ),
)

BEYOND_CHANCE = "rank correlation beyond chance, the mean over batch sizes"


def by_cluster(id: str, says: str, sign: int, source: str, **of: object) -> Claim:
    """Claims a trend of NDCG@10 with cluster size at each batch size."""
    return Claim.trend(
        id,
        says,
        over=term(NDCG, **of),
        axis="cluster_size",
        within="batch_size",
        sign=sign,
        source=source,
        because=BEYOND_CHANCE,
    )


CLAIMS = (
    Claim.correlation(
        "F2.a",
        "at each batch size, harder batches go with higher scores",
        x=term(LOSS, **BIENCODER),
        y=term(NDCG, **BIENCODER),
        points="runs",
        within="batch_size",
        sign=1,
        source="Figure 2",
        because="Pearson's r beyond chance, the mean over batch sizes",
    ),
    by_cluster("F3.a", "with the filter, smaller clusters are better", -1, "Figure 3", **BIENCODER, **FILTERED),
    by_cluster("F3.b", "without the filter, larger clusters are better", 1, "Figure 3", **BIENCODER, **UNFILTERED),
    Claim.order(
        "F4.a",
        "filtered batches beat unfiltered ones over all settings",
        pairs=[(term(NDCG, **BIENCODER, **FILTERED), term(NDCG, **BIENCODER, **UNFILTERED))],
        source="Figure 4",
        because="any difference beyond chance",
    ),
    by_cluster("F9.a", "the contextual model, too, is better with smaller clusters", -1, "Figure 9", **CONTEXTUAL),
    Claim.order(
        "F9.b",
        "over the same settings the contextual model beats the biencoder",
        pairs=[(term(NDCG, **CONTEXTUAL), term(NDCG, **BIENCODER, **FILTERED))],
        source="Figure 9",
        because="any difference beyond chance",
    ),
    Claim.interaction(
        "F12.a",
        "the filter helps most where clusters are small",
        of=(
            term(NDCG, **BIENCODER, **FILTERED, cluster_size=SMALLEST),
            term(NDCG, **BIENCODER, **UNFILTERED, cluster_size=SMALLEST),
        ),
        above=(
            term(NDCG, **BIENCODER, **FILTERED, cluster_size=LARGE),
            term(NDCG, **BIENCODER, **UNFILTERED, cluster_size=LARGE),
        ),
        source="Figure 12",
        because="the filter gains more at the smallest clusters than at those of 4096 pairs and more, beyond chance",
    ),
    Claim.order(
        "F13.a",
        "the best batch size lies inside the range: past it, larger batches score lower",
        pairs=[
            (term(NDCG, **BIENCODER, batch_size=MIDDLE), term(NDCG, **BIENCODER, batch_size=end))
            for end in (LEFT, RIGHT)
        ],
        source="Figure 13",
        because="the middle size beats the smallest and the largest beyond chance",
    ),
)

EXPERIMENT = Experiment(
    number=4, title="Batch size, cluster size and the filter", runs=runs, shows=FIGURES, claims=CLAIMS
)
