"""Figure 17: how deep the first stage has to be."""

from experiments.e01_table1 import BOTH, CLUSTER, CONTEXTUAL_BATCH
from repro.spec import Claim, Experiment, Figure, Row, Run, base, grid, pick, term

DEPTHS = {"smoke": (1, 2, 3), "desk": (1, 2, 4), "lab": (1, 3, 6), "small": (1, 2, 4, 6), "large": (1, 2, 4, 6, 12)}
SEEDS = (0, 1, 2)


def runs(scale: str) -> tuple[Run, ...]:
    """Table 1's last row with other first stages."""
    one = base(scale, **BOTH, batch_size=CONTEXTUAL_BATCH[scale], cluster_size=CLUSTER[scale])
    return grid(one, num_first_stage_layers=DEPTHS[scale], seed=SEEDS)


NDCG = "{suite}/mean/ndcg_at_10"
FIGURE = Figure(
    name="figure17",
    caption="NDCG@10 by the number of layers of the first stage; contextual batches and architecture.",
    kind="lines",
    x="num_first_stage_layers",
    y=NDCG,
    x_label="layers of the first stage",
    y_label="NDCG@10 (points)",
    factor=100,
    series=(Row(label="own corpus", of=pick(**BOTH)), Row(label="wrong corpus", of=pick(**BOTH), context="wrong")),
)
CLAIMS = (
    Claim.trend(
        "F17.a",
        "a deeper first stage scores a little higher (in the paper under one per cent over twelve times the depth)",
        over=term(NDCG, **BOTH),
        axis="num_first_stage_layers",
        sign=1,
        source="Figure 17",
        because="rank correlation beyond chance",
    ),
)

EXPERIMENT = Experiment(number=8, title="Depth of the first stage", runs=runs, shows=(FIGURE,), claims=CLAIMS)
