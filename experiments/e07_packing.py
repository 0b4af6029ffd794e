"""Figure 14: order of the clusters before they are cut into batches, greedy tour or random."""

from experiments import fresh
from experiments.e01_table1 import seeds_at
from experiments.e04_batch_by_cluster import ALL_CLUSTER_SIZES, CLUSTERS, GRID, LARGE, SMALL, budget
from repro.spec import Claim, Experiment, Figure, Row, Run, base, grid, pick, term

BATCH = {"smoke": 16, "desk": 128, "lab": 128, "small": 512, "large": 512}
TOUR = {"architecture": "biencoder", **GRID, "filter": "surrogate", "packing": "greedy"}
RANDOM = TOUR | {"packing": "random"}


def runs(scale: str) -> tuple[Run, ...]:
    """Return both orders for each cluster size, with extra seeds for the smallest at desk.

    Tours are runs of figure 3.
    """
    length = budget(scale, BATCH[scale])
    base_run = base(
        scale,
        **{**TOUR, **length, "test_contexts": "own", "cluster_size": CLUSTERS[scale][0], "batch_size": BATCH[scale]},
    )
    orders = ("greedy", "random")
    by_size = grid(base_run, packing=orders, cluster_size=CLUSTERS[scale], seed=seeds_at(scale))
    return by_size + (grid(base_run, packing=orders, seed=fresh.PACKING) if scale == "desk" else ())


NDCG = "{suite}/mean/ndcg_at_10"
FIGURE = Figure(
    name="figure14",
    title="Score by cluster size, for two ways of packing clusters into batches",
    caption=(
        "NDCG@10 of biencoders with the filter by cluster size. Clusters are packed into batches by a greedy tour "
        "(TSP) or in random order. Marks are means over n seeds, bands are 95 % intervals of the mean."
    ),
    kind="lines",
    x="cluster_size",
    y=NDCG,
    x_label="cluster size (pairs)",
    y_label="NDCG@10 (points)",
    factor=100,
    x_is_log=True,
    series=(Row(label="greedy tour", runs=pick(**TOUR)), Row(label="random order", runs=pick(**RANDOM))),
)
CLAIMS = (
    Claim.order(
        "F14.a",
        "a greedy tour beats a random order for the smallest clusters",
        pairs=[(term(NDCG, **TOUR, **SMALL), term(NDCG, **RANDOM, **SMALL))],
        source="Figure 14 and §9.5",
        because="any difference beyond chance; at the smallest clusters, because 'packing has an outsized impact' there",
        **fresh.RESTATED | fresh.declare(fresh.PACKING),
    ),
    Claim.order(
        "F14.c",
        "a greedy tour beats a random order on average over cluster sizes",
        pairs=[(term(NDCG, **TOUR, **ALL_CLUSTER_SIZES), term(NDCG, **RANDOM, **ALL_CLUSTER_SIZES))],
        source="Figure 14 and §9.5",
        because="any difference beyond chance",
        **fresh.STATED | fresh.FIRST_SEEDS,
    ),
    Claim.interaction(
        "F14.b",
        "the tour gains more for the smallest clusters than for the largest",
        of=(term(NDCG, **TOUR, **SMALL), term(NDCG, **RANDOM, **SMALL)),
        above=(term(NDCG, **TOUR, **LARGE), term(NDCG, **RANDOM, **LARGE)),
        source="Figure 14 and §9.5",
        because="any difference beyond chance",
        **fresh.STATED | fresh.FIRST_SEEDS,
    ),
)

EXPERIMENT = Experiment(number=7, title="Packing", runs=runs, artefacts=(FIGURE,), claims=CLAIMS)
