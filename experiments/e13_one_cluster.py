"""Table 4: sixteen pairs of one cluster of 256, and the similarity of pairs within clusters. Nothing is trained."""

from experiments import fresh
from repro.spec import Claim, Column, Exhibit, Experiment, Row, Run, Table, base, pick, term

# A cluster of 256 within a whole source, as in the paper.
ANALYSIS = {"measure": "cluster", "architecture": "none", "sampler": "cluster", "domain_column": "source"}
CLUSTER = {"smoke": 16, "desk": 256, "lab": 256, "small": 256, "large": 256}
PAPERS = ("small", "large")  # Table 4 shows the paper's supervised data
SEEDS = (0, 1, 2)


def runs(scale: str) -> tuple[Run, ...]:
    """Return three draws of clusters and pairs, six at desk."""
    seeds = SEEDS + (fresh.DRAWS if scale == "desk" else ())
    corpus = {"corpus": "nomic-supervised"} if scale in PAPERS else {}
    return tuple(base(scale, **ANALYSIS, **corpus, cluster_size=CLUSTER[scale], seed=seed) for seed in seeds)


TEXTS = Exhibit(
    name="table4",
    caption="Sixteen pairs from one cluster of training pairs. The paper prints pairs from a cluster of 256.",
    columns=("query", "document", "domain"),
    runs=pick(**ANALYSIS, seed=0),
    rows="pairs",
)

ALIKE = Table(
    name="table4_alike",
    caption=(
        "Pairs of one cluster, compared with as many pairs drawn from the same source: mean similarity of two "
        "documents, mean similarity of a query to another document, and the percentage of other documents that eq. 4 "
        "would exclude. Means over 200 clusters."
    ),
    columns=(
        Column(label="document ~ document", value="{part}/similarity", decimals=2),
        Column(label="query ~ other document", value="{part}/difficulty", decimals=2),
        Column(label="may be positives %", value="{part}/plausible", factor=100),
        Column(label="pairs per cluster", value="{part}/num_pairs", decimals=0),
    ),
    rows=(
        Row(label="of one cluster", part="cluster", runs=pick(**ANALYSIS)),
        Row(label="of the same source", part="domain", runs=pick(**ANALYSIS)),
    ),
)

CLAIMS = (
    Claim.order(
        "T4.a",
        "pairs of a cluster belong together: their documents are more alike than documents of the same source",
        pairs=[(term("cluster/similarity", **ANALYSIS), term("domain/similarity", **ANALYSIS))],
        source="Table 4 and §9.6",
        because=(
            "any difference beyond chance, in cosine. The paper shows one cluster of supervised data, 'a combination' "
            "of two topics; ours are all drawn clusters of the scale's training text"
        ),
        **fresh.RESTATED | fresh.declare(fresh.DRAWS, fresh.FIRST),
    ),
    Claim.order(
        "S4.c",
        "false negatives are more likely in a batch of neighbours: more likely in a cluster than in its source",
        pairs=[(term("cluster/plausible", **ANALYSIS), term("domain/plausible", **ANALYSIS))],
        source="§4.1",
        because="any difference beyond chance, in the share of other documents that eq. 4 takes for positives",
        **fresh.STATED | fresh.declare(fresh.DRAWS, fresh.FIRST),
    ),
)

EXPERIMENT = Experiment(
    number=13, title="The pairs of one cluster", runs=runs, artefacts=(TEXTS, ALIKE), claims=CLAIMS, local_seeds=SEEDS
)
