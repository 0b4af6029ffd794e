"""Table 4: sixteen pairs of one cluster of 256, and how alike the pairs of clusters are; nothing is trained."""

from repro.spec import Claim, Column, Exhibit, Experiment, Row, Run, Table, base, pick, term

# A cluster of 256 inside a whole source, as in the paper.
LOOKED = {"measure": "cluster", "architecture": "none", "sampler": "cluster", "domain_column": "source"}
CLUSTER = {"smoke": 16, "desk": 256, "lab": 256, "small": 256, "large": 256}
SEEDS = (0, 1, 2)


def runs(scale: str) -> tuple[Run, ...]:
    """Three draws of clusters and pairs."""
    return tuple(base(scale, **LOOKED, cluster_size=CLUSTER[scale], seed=seed) for seed in SEEDS)


TEXTS = Exhibit(
    name="table4",
    caption="Pairs of one cluster of training pairs; the paper shows sixteen of a cluster of 256.",
    columns=("query", "document", "domain"),
    of=pick(**LOOKED, seed=0),
    rows="pairs",
)

ALIKE = Table(
    name="table4_alike",
    caption=(
        "Pairs of one cluster against as many pairs drawn from the same source, means over 200 clusters: similarity of "
        "two documents, of a query to another document, and % of other documents that eq. 4 would leave out."
    ),
    columns=(
        Column(label="document ~ document", value="{part}/similarity", decimals=2),
        Column(label="query ~ other document", value="{part}/difficulty", decimals=2),
        Column(label="may be positives %", value="{part}/plausible", factor=100),
        Column(label="pairs a cluster", value="{part}/num_pairs", decimals=0),
    ),
    rows=(
        Row(label="of one cluster", part="cluster", of=pick(**LOOKED)),
        Row(label="of the same source", part="domain", of=pick(**LOOKED)),
    ),
)

CLAIMS = (
    Claim.order(
        "T4.a",
        "a cluster is topically coherent: its documents are more alike than documents of the same source",
        pairs=[(term("cluster/similarity", **LOOKED), term("domain/similarity", **LOOKED))],
        source="Table 4",
        because="a cosine 0.1 higher: clearly more than another draw of the source would give",
        margin=0.10,
    ),
)

EXPERIMENT = Experiment(
    number=13,
    title="The pairs of one cluster",
    runs=runs,
    shows=(TEXTS, ALIKE),
    claims=CLAIMS,
    local_seeds=SEEDS,
)
