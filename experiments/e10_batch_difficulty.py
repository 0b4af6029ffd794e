"""Figure 6: how hard a batch is under the surrogate, by cluster size and batch size; nothing is trained."""

from typing import Any

from repro.spec import Claim, Experiment, Figure, Row, Run, base, grid, pick, term

# As in the paper, clusters are made inside a whole source (§5), so that they can be much larger than a fine domain.
BATCHES = {
    "smoke": (8, 16, 32),
    "desk": (32, 128, 512, 2048, 8192),
    "lab": (64, 256, 1024, 4096, 16384),
    "small": (256, 512, 1024, 2048, 4096),
    "large": (256, 512, 1024, 2048, 4096),
}
CLUSTERS = {
    "smoke": (8, 16, 64),
    "desk": (256, 1024, 4096, 16384),
    "lab": (256, 1024, 4096, 16384, 65536),
    "small": (64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304),
    "large": (64, 256, 1024, 4096, 16384, 65536, 262144, 1048576, 4194304),
}
# Numbers of pairs to cluster, and the batch size at which they are compared.
SIZES = {"smoke": (128, 192), "desk": (32768, 65536, 131072), "lab": (131072, 262144, 524288)}
SIZES |= dict.fromkeys(("small", "large"), (2**20, 2**24))
COMPARED = {"smoke": 16, "desk": 128, "lab": 256, "small": 256, "large": 256}
SEEDS = (0, 1, 2)
MEASURED = {"measure": "batches", "architecture": "none", "sampler": "cluster", "domain_column": "source"}
WHOLE = MEASURED | {"num_pairs": (None, base("desk").num_pairs)}  # as many as a scale trains on
DIFFICULTY = "batches/difficulty"
LINES: dict[str, Any] = {
    "kind": "lines",
    "y": DIFFICULTY,
    "y_label": "batch difficulty (mean cosine)",
    "x_is_log": True,
}


def runs(scale: str) -> tuple[Run, ...]:
    """Every cluster size with every batch size, then with other numbers of pairs; a seed is another packing."""
    one = base(scale, **MEASURED, cluster_size=CLUSTERS[scale][0])
    whole = grid(one, seed=SEEDS, cluster_size=CLUSTERS[scale], batch_size=BATCHES[scale])
    sizes = grid(one, seed=SEEDS, num_pairs=SIZES[scale], cluster_size=fitting(scale), batch_size=COMPARED[scale])
    return whole + sizes


def fitting(scale: str) -> tuple[int, ...]:
    """Gives the cluster sizes that the largest source holds at each number of pairs."""
    return tuple(size for size in CLUSTERS[scale] if 8 * size <= min(SIZES[scale]))


FIGURE = Figure(
    name="figure6",
    caption=(
        "Mean similarity, under the surrogate, of a query to the other documents of its batch. Clusters inside a whole "
        "source, packed in random order; desk and lab: documentation text in place of the paper's 24 sources."
    ),
    x="cluster_size",
    x_label="cluster size (pairs)",
    **LINES,
    hue="batch_size",
    series=(Row(label="batches", of=pick(**WHOLE)),),
)
BY_SIZE = Figure(
    name="figure6_sizes",
    caption="Batch difficulty by the number of pairs that are clustered, for batches of one size.",
    x="num_pairs",
    x_label="pairs clustered",
    **LINES,
    hue="cluster_size",
    series=tuple(
        Row(
            label="batches",
            of=pick(**MEASURED, num_pairs=sizes, batch_size=COMPARED[scale], cluster_size=fitting(scale)),
            scales=(scale,),
        )
        for scale, sizes in SIZES.items()
    ),
)

WHY = "rank correlation beyond chance, the mean over the values of the other axis"
CLAIMS = (
    Claim.trend(
        "F6.a",
        "batches get easier as clusters grow",
        over=term(DIFFICULTY, **WHOLE),
        axis="cluster_size",
        within="batch_size",
        sign=-1,
        source="Figure 6",
        because=WHY,
    ),
    Claim.trend(
        "F6.b",
        "batches get easier as batches grow",
        over=term(DIFFICULTY, **WHOLE),
        axis="batch_size",
        within="cluster_size",
        sign=-1,
        source="Figure 6",
        because=WHY,
    ),
)

EXPERIMENT = Experiment(
    number=10,
    title="How hard batches are, by cluster and batch size",
    runs=runs,
    shows=(FIGURE, BY_SIZE),
    claims=CLAIMS,
    local_seeds=SEEDS,
)
