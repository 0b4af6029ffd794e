"""Clusters and the filter from a pretrained start, by the encoder behind them, on validation collections.

§4.1 clusters by GTR and filters by a strong encoder. At our scales both use averaged word vectors. A filter by a weak encoder
removes hard negatives that are no answers. All runs use seed 100, which no claim uses. The test suite is not read.
"""

from typing import Any

from experiments.e01_table1 import BATCHES, CLUSTER, NEITHER, NEITHER_DOMAIN
from repro.spec import Column, Experiment, Row, Run, Table, base, pick

SUITES = {"smoke": "planted-validation", "mini": "desk-validation"}
SEED = 100
WORDS, MINILM = base("mini").surrogate, "minilm"
CLUSTERS: dict[str, Any] = BATCHES | {"surrogate": WORDS, "filter_model": None}
WAYS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("one source a batch", NEITHER),
    ("one domain a batch", NEITHER_DOMAIN),
    ("clusters, filter by word vectors (Table 1)", CLUSTERS),
    ("clusters, no filter", CLUSTERS | {"filter": "none"}),
    ("clusters, filter by MiniLM", CLUSTERS | {"filter_model": MINILM}),
    ("clusters by MiniLM, filter by MiniLM", CLUSTERS | {"surrogate": MINILM}),
    ("clusters by MiniLM, no filter", CLUSTERS | {"surrogate": MINILM, "filter": "none"}),
)


def runs(scale: str) -> tuple[Run, ...]:
    """Return a biencoder for each way. At `smoke`, the ways that need no encoder."""
    ways = [way for _, way in WAYS if scale != "smoke" or MINILM not in way.values()]
    settings = [way | ({"cluster_size": CLUSTER[scale]} if way["sampler"] == "cluster" else {}) for way in ways]
    return tuple(base(scale, **setting, suite=SUITES[scale], seed=SEED) for setting in settings)


TABLE = Table(
    name="filter_by_surrogate",
    caption=(
        "A biencoder from MiniLM on plain batches and on clusters, by the encoder of the clusters and of the filter: "
        "share of the negatives that the filter masks, training loss, and NDCG@10 on validation collections. One seed "
        "per row."
    ),
    columns=(
        Column(label="masked", value="train/masked_fraction", factor=100),
        Column(label="train loss", value="train/loss", decimals=2),
        Column(label="NDCG@10", value="{suite}/mean/ndcg_at_10", factor=100),
    ),
    rows=tuple(Row(label=label, runs=pick(**way)) for label, way in WAYS),
)

EXPERIMENT = Experiment(
    number=56,
    title="The encoder of clusters and of the filter",
    runs=runs,
    artefacts=(TABLE,),
    scales=tuple(SUITES),
)
