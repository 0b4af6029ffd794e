"""Tables 3 and 4 and §4.1: neighbours of a document, pairs of a cluster, and how many of them may be positives.

Nothing is trained. The surrogate decides what may be a positive, so shares of possible positives are a statement of the
surrogate about itself. They are descriptive.
"""

from typing import Any

from experiments import fresh
from experiments.fresh import RESTATED, STATED, declare
from experiments.shared import PAPERS, by_group, get_scale_values
from repro.spec import Claim, Column, Exhibit, Experiment, Row, Run, Table, base, by_scale, grid, pick, term

NEIGHBOURS = {"measure": "neighbours", "architecture": "none"}
# A cluster of 256 within a whole source, as in the paper.
ON_CLUSTERS: dict[str, Any] = {"architecture": "none", "sampler": "cluster", "domain_column": "source"}
CLUSTER = by_group(16, 256, 256)
PAIRS = ON_CLUSTERS | {"measure": "cluster"}
ONE_BATCH = ON_CLUSTERS | {"measure": "batches", "filter": "surrogate"}
BATCH = by_group(8, 32, 32)
SIZES: dict[str, tuple[int, ...]] = {
    "smoke": (64, 128, 192),
    "desk": (8192, 32768, 65536, 131072),
    "lab": (8192, 32768, 131072),
}
SIZES |= dict.fromkeys(PAPERS, (2**18, 2**20, 2**22))
# A surrogate and a better one, on as many pairs as the better one embeds in a minute.
WEAK = by_group("minilm-words", "minilm-words", "sentence-transformers/gtr-t5-base")
STRONG = by_group("minilm", "minilm", "nomic-ai/nomic-embed-text-v1")
SEEDS = fresh.FIRST


def runs(scale: str) -> tuple[Run, ...]:
    """Return draws of documents and of clusters, one epoch of small batches, and draws by size under two surrogates."""
    extra, extra_clusters = (fresh.NEIGHBOURS, fresh.DRAWS) if scale == "desk" else ((), ())
    corpus = {"corpus": "nomic-supervised"} if scale in PAPERS else {}  # Table 4 shows the paper's supervised data
    neighbours = base(scale, **NEIGHBOURS)
    clusters = base(scale, **PAIRS, **corpus, cluster_size=CLUSTER[scale])
    batch = base(scale, **ONE_BATCH, cluster_size=CLUSTER[scale], batch_size=BATCH[scale])
    by_size = grid(neighbours, surrogate=WEAK[scale], num_pairs=SIZES[scale], seed=fresh.DRAWS)
    better = grid(neighbours, surrogate=STRONG[scale], num_pairs=SIZES[scale][0], seed=fresh.DRAWS)
    of_tables = (*grid(neighbours, seed=SEEDS + extra), *grid(clusters, seed=SEEDS + extra_clusters), batch)
    return tuple(dict.fromkeys((*of_tables, *by_size, *better)))


# As in training. The draws by size have other seeds or other numbers of pairs.
TABLE_3_RUNS: dict[str, Any] = NEIGHBOURS | get_scale_values(CLUSTER, "num_pairs", "surrogate")
NEIGHBOUR_TEXTS = Exhibit(
    name="table3",
    caption=(
        "A training document and its nearest other documents under the surrogate. A neighbour may be a positive of the"
        " query if the surrogate ranks it at or above the query's own document (eq. 4)."
    ),
    columns=("query", "document", "domain", "similarity", "may be a positive"),
    runs=pick(**TABLE_3_RUNS, seed=0),
    rows="neighbours",
)
NEIGHBOUR_SHARES = Table(
    name="table3_shares",
    title="How many of a document's neighbours may be positives",
    caption=(
        "Neighbours of 1000 training documents: percentage that eq. 4 would exclude as false negatives of their query, "
        "percentage of the same domain and of the same source, and mean similarity. The last column is the percentage "
        "of documents with at least one excluded neighbour."
    ),
    columns=(
        Column(label="may be positives %", value="{part}/plausible", factor=100),
        Column(label="same domain %", value="{part}/same_domain", factor=100),
        Column(label="same source %", value="{part}/same_source", factor=100),
        Column(label="similarity", value="{part}/similarity", decimals=2),
        Column(label="have one %", value="{part}/any_plausible", factor=100),
    ),
    rows=tuple(
        Row(label=label, part=kind, runs=pick(**TABLE_3_RUNS))
        for label, kind in (
            ("11 nearest documents", "nearest"),
            ("11 of its own domain", "domain"),
            ("11 from anywhere", "anywhere"),
        )
    ),
)
CLUSTER_TEXTS = Exhibit(
    name="table4",
    caption="Sixteen pairs from one cluster of training pairs. The paper prints pairs from a cluster of 256.",
    columns=("query", "document", "domain"),
    runs=pick(**PAIRS, seed=0),
    rows="pairs",
)
CLUSTER_SHARES = Table(
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
        Row(label="of one cluster", part="cluster", runs=pick(**PAIRS)),
        Row(label="of the same source", part="domain", runs=pick(**PAIRS)),
    ),
)
BATCH_TEXTS = Exhibit(
    name="one_batch",
    caption=(
        "The first batch of an epoch of clusters within one source. Hardest: positions and scores of the negatives "
        "that are nearest to the query under the surrogate. Removed: documents that score at least as high as the "
        "query's own (eq. 4), or have its text. The command explain-batch shows any batch of any run in this form."
    ),
    columns=("pair", "cluster", "query", "document", "score", "hardest", "removed"),
    runs=pick(**ONE_BATCH),
    rows="batch",
)

BY_WEAK = NEIGHBOURS | {"surrogate": by_scale(WEAK), "seed": fresh.DRAWS}
FEWEST_PAIRS = {"num_pairs": by_scale({scale: sizes[0] for scale, sizes in SIZES.items()})}
BY_STRONG = BY_WEAK | {"surrogate": by_scale(STRONG)} | FEWEST_PAIRS


SHARES_BY_SIZE = Table(
    name="false_negatives",
    title="False negatives by size of the data",
    caption=(
        "Percentage of the 11 nearest documents of a training document, and of 11 random documents, that eq. 4 would "
        "exclude as false negatives of its query. Means over 1000 training documents, by number of pairs, and under a "
        "better surrogate. 'have one %' is the percentage of documents with at least one excluded neighbour. Random "
        "documents are almost certainly not answers, so excluding them is over-pruning."
    ),
    columns=(
        Column(label="nearest %", value="nearest/plausible", factor=100),
        Column(label="have one %", value="nearest/any_plausible", factor=100),
        Column(label="anywhere %", value="anywhere/plausible", factor=100),
    ),
    rows=(
        *(
            Row(label=f"{size:,} pairs", runs=pick(**BY_WEAK, num_pairs=size))
            for size in sorted({size for sizes in SIZES.values() for size in sizes})
        ),
        Row(label="fewest pairs, a better surrogate", runs=pick(**BY_STRONG)),
    ),
)

BY_ITSELF = {"descriptive": "a weak surrogate decides what may be a positive"}
CLAIMS = (
    Claim.order(
        "T3.a",
        "many of the nearest documents could also answer the query: more than twice as many as in its domain",
        pairs=[(term("log2 nearest/plausible", **TABLE_3_RUNS), term("log2 domain/plausible", **TABLE_3_RUNS))],
        margin=1.0,
        source="Table 3 and §9.2",
        because="'many' is read as twice the share among other documents of the same domain",
        **RESTATED | BY_ITSELF | declare(fresh.NEIGHBOURS, fresh.FIRST),
    ),
    Claim.order(
        "T3.b",
        "the nearest documents of a large corpus are very close: closer than documents of the same domain",
        pairs=[(term("nearest/similarity", **TABLE_3_RUNS), term("domain/similarity", **TABLE_3_RUNS))],
        source="§9.2",
        because="any difference beyond chance; the paper gives no distance",
        **STATED | declare(fresh.NEIGHBOURS, fresh.FIRST),
    ),
    Claim.order(
        "T4.a",
        "pairs of a cluster belong together: their documents are more alike than documents of the same source",
        pairs=[(term("cluster/similarity", **PAIRS), term("domain/similarity", **PAIRS))],
        source="Table 4 and §9.6",
        because=(
            "any difference beyond chance, in cosine. The paper shows one cluster of supervised data, 'a combination' "
            "of two topics; ours are all drawn clusters of the scale's training text"
        ),
        **RESTATED | declare(fresh.DRAWS, fresh.FIRST),
    ),
    Claim.trend(
        "S4.a",
        "false negatives become more common as the data grows",
        over=term("nearest/plausible", **BY_WEAK),
        axis="num_pairs",
        sign=1,
        source="§4.1",
        because="a slope beyond chance, of the share of near documents that eq. 4 takes for positives",
        seeds=fresh.DRAWS,
        **STATED | BY_ITSELF,
    ),
    Claim.order(
        "S4.b",
        "the filter over-prunes: a better surrogate mistakes fewer random documents for positives",
        pairs=[(term("anywhere/plausible", **BY_WEAK, **FEWEST_PAIRS), term("anywhere/plausible", **BY_STRONG))],
        source="§4.1",
        because="any difference beyond chance; random documents are almost certainly not answers",
        seeds=fresh.DRAWS,
        **STATED | BY_ITSELF,
    ),
    Claim.order(
        "S4.c",
        "false negatives are more likely in a batch of neighbours: more likely in a cluster than in its source",
        pairs=[(term("cluster/plausible", **PAIRS), term("domain/plausible", **PAIRS))],
        source="§4.1",
        because="any difference beyond chance, in the share of other documents that eq. 4 takes for positives",
        **STATED | BY_ITSELF | declare(fresh.DRAWS, fresh.FIRST),
    ),
)

EXPERIMENT = Experiment(
    title="Neighbours, clusters and false negatives",
    runs=runs,
    artefacts=(NEIGHBOUR_TEXTS, NEIGHBOUR_SHARES, CLUSTER_TEXTS, CLUSTER_SHARES, SHARES_BY_SIZE, BATCH_TEXTS),
    claims=CLAIMS,
    local_seeds=(*SEEDS, *fresh.DRAWS),
)
