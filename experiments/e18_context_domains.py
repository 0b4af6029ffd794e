"""Figure 7: scores on each domain under the context of each other domain."""

from experiments.e01_table1 import BOTH, CLUSTER, CONTEXTUAL_BATCH, SEEDS
from repro.spec import Claim, Column, Experiment, Figure, Row, Run, Table, base, pick, term

CROSSED = BOTH | {"measure": "cross"}
A_POINT = 1.0


def runs(scale: str) -> tuple[Run, ...]:
    """Table 1's contextual models, scored under other contexts: nothing more is trained."""
    sizes = {"batch_size": CONTEXTUAL_BATCH[scale], "cluster_size": CLUSTER[scale]}
    return tuple(base(scale, **CROSSED, **sizes, seed=seed) for seed in SEEDS)


FIGURE = Figure(
    name="figure7",
    caption=(
        "NDCG@10 on each domain (rows) under context documents of each domain (columns); cells within one point of the "
        "best of their row are framed. Ten evaluation sets take the place of the paper's Stack Exchange forums."
    ),
    kind="heatmap",
    points="cross/*/*/ndcg_at_10",
    x="part1",
    y="part2",
    cell="value",
    factor=100,
    mark_within=A_POINT,
    x_label="domain of the context",
    y_label="searched domain",
    series=(Row(label="contextual model", of=pick(**CROSSED)),),
)

TABLE = Table(
    name="figure7_means",
    caption="NDCG@10 under documents of the searched corpus and of others; domains that do better under another.",
    columns=(
        Column(label="own context", value="cross/own/ndcg_at_10", factor=100, decimals=2),
        Column(label="others, mean", value="cross/other/ndcg_at_10", factor=100, decimals=2),
        Column(label="better under another %", value="cross/crossovers", factor=100),
    ),
    rows=(Row(label="contextual model", of=pick(**CROSSED)),),
)

CLAIMS = (
    Claim.order(
        "F7.a",
        "context of the searched domain is best on average (some domains do better under another's: shown, not judged)",
        pairs=[(term("cross/own/ndcg_at_10", **CROSSED), term("cross/other/ndcg_at_10", **CROSSED))],
        source="Figure 7",
        because="any difference beyond chance; queries and seeds are drawn again",
    ),
)

EXPERIMENT = Experiment(number=18, title="Context of another domain", runs=runs, shows=(FIGURE, TABLE), claims=CLAIMS)
