"""Figure 14: a greedy tour over the clusters, or random order, before clusters are cut into batches."""

from experiments.e04_batch_by_cluster import CLUSTERS, GRID, budget
from repro.spec import Claim, Experiment, Figure, Row, Run, base, grid, pick, term

BATCH = {"smoke": 16, "desk": 128, "lab": 1024, "small": 512, "large": 512}
SEEDS = (0, 1, 2)
TOUR = {"architecture": "biencoder", **GRID, "filter": "surrogate", "packing": "greedy"}
RANDOM = TOUR | {"packing": "random"}


def runs(scale: str) -> tuple[Run, ...]:
    """Both orders for each cluster size; the tours are runs of the grid of figures 3 and 4."""
    length = budget(scale, BATCH[scale])
    one = base(
        scale,
        **{**TOUR, **length, "test_contexts": "own", "cluster_size": CLUSTERS[scale][0], "batch_size": BATCH[scale]},
    )
    return grid(one, packing=("greedy", "random"), cluster_size=CLUSTERS[scale], seed=SEEDS)


NDCG = "{suite}/mean/ndcg_at_10"
FIGURE = Figure(
    name="figure14",
    caption="NDCG@10 by cluster size, clusters packed by a greedy tour (TSP) or in random order; biencoders, filtered.",
    kind="lines",
    x="cluster_size",
    y=NDCG,
    x_label="cluster size (pairs)",
    y_label="NDCG@10 (points)",
    factor=100,
    x_is_log=True,
    series=(Row(label="greedy tour", of=pick(**TOUR)), Row(label="random order", of=pick(**RANDOM))),
)
CLAIMS = (
    Claim.order(
        "F14.a",
        "a greedy tour is no worse than random order, over cluster sizes",
        pairs=[(term(NDCG, **TOUR), term(NDCG, **RANDOM))],
        margin=-0.002,
        source="Figure 14",
        because="the paper says at least as good: a fifth of a point is left for chance",
    ),
)

EXPERIMENT = Experiment(number=7, title="Packing", runs=runs, shows=(FIGURE,), claims=CLAIMS)
