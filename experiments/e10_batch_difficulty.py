"""Figure 6: batch difficulty under the surrogate, by cluster size and batch size. Nothing is trained."""

from typing import Any

from experiments.e04_batch_by_cluster import PAPER_CLUSTER_SIZES
from experiments.fresh import FIRST, REPACKED, RESTATED, declare
from experiments.shared import by_group, get_scale_values
from repro.spec import Claim, Experiment, Figure, Row, Run, base, by_scale, grid, pick, term

# As in the paper, clusters are made within a whole source (§5), so they can be much larger than a fine domain.
BATCH_SIZES: dict[str, tuple[int, ...]] = {
    "smoke": (8, 16, 32),
    "desk": (32, 128, 512, 2048, 8192),
    "lab": (64, 256, 1024, 4096, 16384),
}
BATCH_SIZES |= dict.fromkeys(("small", "large"), (256, 512, 1024, 2048, 4096))
CLUSTER_SIZES: dict[str, tuple[int, ...]] = {
    "smoke": (8, 16, 64),
    "desk": (256, 1024, 4096, 16384),
    "lab": (256, 1024, 4096, 16384, 65536),
}
CLUSTER_SIZES |= dict.fromkeys(("small", "large"), PAPER_CLUSTER_SIZES)
# Numbers of pairs to cluster, and the batch size for their comparison.
SIZES = by_group((128, 192), (32768, 65536, 131072), (2**20, 2**24))
COMPARED_BATCH = by_group(16, 128, 256)
SEEDS = (0, 1, 2)
MEASURED = {"measure": "batches", "architecture": "none", "sampler": "cluster", "domain_column": "source"}
MEASURED |= {"packing": "random"}
ALL_PAIRS = MEASURED | get_scale_values(BATCH_SIZES, "num_pairs")  # as in training
DIFFICULTY = "batches/difficulty"
LINES: dict[str, Any] = {
    "kind": "lines",
    "y": DIFFICULTY,
    "y_label": "batch difficulty (mean cosine)",
    "x_is_log": True,
}


def runs(scale: str) -> tuple[Run, ...]:
    """Return every cluster size with every batch size, then other numbers of pairs.

    Each seed is a different packing.
    """
    base_run = base(scale, **MEASURED, cluster_size=CLUSTER_SIZES[scale][0])
    seeds = SEEDS + (REPACKED if scale == "desk" else ())
    by_batch_size = grid(base_run, seed=seeds, cluster_size=CLUSTER_SIZES[scale], batch_size=BATCH_SIZES[scale])
    by_num_pairs = grid(
        base_run,
        seed=seeds,
        num_pairs=SIZES[scale],
        cluster_size=list_fitting_sizes(scale),
        batch_size=COMPARED_BATCH[scale],
    )
    return by_batch_size + by_num_pairs


def list_fitting_sizes(scale: str) -> tuple[int, ...]:
    """Return the cluster sizes that the largest source can fill at each number of pairs."""
    return tuple(size for size in CLUSTER_SIZES[scale] if 8 * size <= min(SIZES[scale]))


FIGURE = Figure(
    name="figure6",
    title="Batch difficulty by cluster size and batch size",
    caption=(
        "Mean similarity of a query to the other documents of its batch, under the surrogate. Clusters lie within one "
        "source and are packed in random order. Desk and lab use documentation text instead of the paper's sources."
        " A batch larger than its clusters holds several random clusters, which makes it easier. Marks are means over "
        "n packings (seeds), bands are 95 % intervals of the mean."
    ),
    x="cluster_size",
    x_label="cluster size (pairs)",
    **LINES,
    hue="batch_size",
    series=(Row(label="batches", runs=pick(**ALL_PAIRS)),),
)
BY_NUM_PAIRS = {
    "num_pairs": by_scale(SIZES),
    "batch_size": by_scale(COMPARED_BATCH),
    "cluster_size": by_scale({scale: list_fitting_sizes(scale) for scale in SIZES}),
}
BY_SIZE = Figure(
    name="figure6_sizes",
    title="Batch difficulty by number of pairs that are clustered",
    caption=(
        "Mean similarity of a query to the other documents of its batch, under the surrogate, by the number of "
        "clustered pairs. All batches have one size. Marks are means over n packings (seeds), bands are 95 % intervals"
        " of the mean."
    ),
    x="num_pairs",
    x_label="pairs clustered",
    **LINES,
    hue="cluster_size",
    series=(Row(label="batches", runs=pick(**MEASURED | BY_NUM_PAIRS)),),
)


def holds_a_batch(run: Run) -> bool:
    """Return whether a cluster is at least as large as a batch. Larger batches combine several clusters at random."""
    return run.cluster_size is not None and run.cluster_size >= run.batch_size


CLAIMS = tuple(
    Claim.trend(
        id,
        f"batches get easier as {growing} grow",
        over=term(DIFFICULTY, **ALL_PAIRS),
        axis=axis,
        within=other_axis,
        sign=-1,
        only=holds_a_batch,
        source="Figure 6 and §7",
        because="a slope beyond chance, the mean over the values of the other axis, where a cluster holds a batch",
        **RESTATED | declare(REPACKED, FIRST),
    )
    for id, growing, axis, other_axis in (
        ("F6.a", "clusters", "cluster_size", "batch_size"),
        ("F6.b", "batches", "batch_size", "cluster_size"),
    )
)

EXPERIMENT = Experiment(
    title="Difficulty of batches by cluster and batch size",
    runs=runs,
    artefacts=(FIGURE, BY_SIZE),
    claims=CLAIMS,
    local_seeds=SEEDS,
)
