"""Figure 6: how hard a batch is under the surrogate, by cluster size and batch size; nothing is trained."""

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
SEEDS = (0, 1, 2)
MEASURED = {"measure": "batches", "architecture": "none", "sampler": "cluster", "domain_column": "source"}
DIFFICULTY = "batches/difficulty"


def runs(scale: str) -> tuple[Run, ...]:
    """Every cluster size with every batch size; a seed draws another packing of the same clusters."""
    one = base(scale, **MEASURED, cluster_size=CLUSTERS[scale][0])
    return grid(one, seed=SEEDS, cluster_size=CLUSTERS[scale], batch_size=BATCHES[scale])


FIGURE = Figure(
    name="figure6",
    caption=(
        "Mean similarity, under the surrogate, of a query to the other documents of its batch. Clusters inside a whole "
        "source, packed in random order; desk and lab: documentation text in place of the paper's 24 sources."
    ),
    kind="lines",
    x="cluster_size",
    y=DIFFICULTY,
    x_label="cluster size (pairs)",
    y_label="batch difficulty (mean cosine)",
    x_is_log=True,
    hue="batch_size",
    series=(Row(label="batches", of=pick(**MEASURED)),),
)

WHY = "rank correlation beyond chance, the mean over the values of the other axis"
CLAIMS = (
    Claim.trend(
        "F6.a",
        "batches get easier as clusters grow",
        over=term(DIFFICULTY, **MEASURED),
        axis="cluster_size",
        within="batch_size",
        sign=-1,
        source="Figure 6",
        because=WHY,
    ),
    Claim.trend(
        "F6.b",
        "batches get easier as batches grow",
        over=term(DIFFICULTY, **MEASURED),
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
    shows=(FIGURE,),
    claims=CLAIMS,
    local_seeds=SEEDS,
)
