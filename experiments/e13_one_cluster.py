"""Table 4: sixteen pairs of one cluster of 256, and the similarity of pairs within clusters. Nothing is trained."""

from math import dist, sqrt

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

ANNOUNCED, PRINTED = 16, 15  # pairs of Table 4
FULL, SUPERVISED = 1.5, 1.8  # millions of supervised pairs: Table 4, §5


def sixteen_pairs() -> tuple[bool, str]:
    """Whether Table 4 prints as many pairs as its caption states."""
    return PRINTED == ANNOUNCED, f"{PRINTED} are printed"


def one_size_of_the_data() -> tuple[bool, str]:
    """Whether Table 4 and §5 give the same size of the supervised data."""
    return FULL == SUPERVISED, f"{FULL} M under Table 4, {SUPERVISED} M in §5"


Pair = tuple[tuple[float, float], tuple[float, float]]
"""Unit vectors of a pair's document and query."""


def distance(one: Pair, other: Pair) -> float:
    """Return the paper's m of two pairs: the distances from each document to the other's query."""
    return dist(one[0], other[1]) + dist(other[0], one[1])


def centroid_bounds() -> tuple[bool, str]:
    """Whether m satisfies the triangle inequality, on which the bound from (2) to (3) relies."""
    pair: Pair = ((1.0, 0.0), (0.0, 1.0))
    swapped: Pair = (pair[1], pair[0])
    detour, direct = distance(pair, swapped) + distance(swapped, pair), distance(pair, pair)
    details = f"from a pair to itself: {direct:.2f} directly, {detour:.2f} by way of its swapped pair"
    return detour >= direct, details


def distances_rank_as_products() -> tuple[bool, str]:
    """Whether equal sums of dot products of unit vectors imply equal sums of distances."""
    products = {"1 and -1": (1.0, -1.0), "0 and 0": (0.0, 0.0)}
    sums = {label: sum(sqrt(2 - 2 * product) for product in pair) for label, pair in products.items()}
    details = ", ".join(f"{total:.2f} for products {label}" for label, total in sums.items())
    return len(set(sums.values())) == 1, f"{details}; squared distances are equivalent, but obey no triangle inequality"


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
    Claim.identity(
        "T4.b",
        "Table 4 shows sixteen pairs of a cluster",
        holds=sixteen_pairs,
        source="Table 4",
        because="a count of printed rows",
        **fresh.STATED,
    ),
    Claim.identity(
        "T4.c",
        "the supervised data of Table 4 is that of §5",
        holds=one_size_of_the_data,
        source="Table 4 and §5",
        because="printed numbers",
        **fresh.STATED,
    ),
    Claim.identity(
        "S4.d",
        "the distance m of pairs obeys the triangle inequality, so that (3) bounds (2)",
        holds=centroid_bounds,
        source="§4.1",
        because="one counterexample is enough; for pairs of equal vectors it holds",
        **fresh.STATED,
    ),
    Claim.identity(
        "S4.e",
        "for vectors of length 1, sums of distances are equivalent to sums of dot products",
        holds=distances_rank_as_products,
        source="§4.1",
        because="one counterexample is enough",
        **fresh.STATED,
    ),
)

EXPERIMENT = Experiment(
    number=13, title="The pairs of one cluster", runs=runs, artefacts=(TEXTS, ALIKE), claims=CLAIMS, local_seeds=SEEDS
)
