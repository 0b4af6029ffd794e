"""Figure 17: the required depth of the first stage."""

from typing import Any

from experiments import fresh
from experiments.e01_table1 import BOTH, get_contextual_sizes, seeds_at
from experiments.shared import ACCURACY, NDCG, get_size_at
from repro.spec import Claim, Experiment, Figure, Row, Run, base, grid, pick, term

DEPTHS: dict[str, tuple[int, ...]] = {"smoke": (1, 2, 3), "desk": (1, 2, 4), "lab": (1, 2, 4)}
DEPTHS |= dict.fromkeys(("small", "large"), (1, 2, 4, 6, 12))


def runs(scale: str) -> tuple[Run, ...]:
    """Return Table 1's last row with first stages of other depths."""
    base_run = base(scale, **BOTH, **get_contextual_sizes(scale))
    return grid(base_run, num_first_stage_layers=DEPTHS[scale], seed=seeds_at(scale, fresh.DEPTHS))


DEPTH: dict[str, Any] = {
    "kind": "lines",
    "x": "num_first_stage_layers",
    "x_label": "layers of the first stage",
    "factor": 100,
    "is_paired": True,
}
FIGURE = Figure(
    name="figure17",
    title="Training accuracy by depth of the first stage",
    caption=(
        "Training accuracy by the number of layers of the first stage, with contextual batches and architecture. Marks"
        " are mean changes from the shallowest first stage over n seeds, bands are 95 % intervals of the mean."
    ),
    y=ACCURACY,
    y_label="change in training accuracy (points)",
    series=(Row(label="contextual batches and architecture", runs=pick(**BOTH)),),
    **DEPTH,
)
SCORES = Figure(
    name="figure17_scores",
    title="Score by depth of the first stage",
    caption=(
        "NDCG@10 by the number of layers of the first stage, with in-corpus and out-of-corpus context. The paper shows"
        " only training accuracy. Marks are mean changes from the shallowest first stage over n seeds, bands are 95 % "
        "intervals of the mean."
    ),
    y=NDCG,
    y_label="change in NDCG@10 (points)",
    series=(
        Row(label="in-corpus context", runs=pick(**BOTH)),
        Row(label="out-of-corpus context", runs=pick(**BOTH), context="wrong"),
    ),
    **DEPTH,
)
SHALLOWEST, DEEPEST = ({"num_first_stage_layers": get_size_at(DEPTHS, index)} for index in (0, -1))
CLAIMS = (
    Claim.trend(
        "F17.a",
        "a deeper first stage is slightly better: training accuracy rises with its depth",
        over=term(ACCURACY, **BOTH),
        axis="num_first_stage_layers",
        sign=1,
        source="Figure 17 and §9.10",
        because="a slope beyond chance; slopes below a tenth of a point per doubling are small",
        delta=fresh.TENTH_OF_POINT_PER_DOUBLING,
        **fresh.RESTATED | {"version": 3} | fresh.declare(fresh.DEPTHS),
    ),
    Claim.equivalence(
        "F17.b",
        "a much deeper first stage changes accuracy by less than one percent (the paper: twelve times as deep)",
        pairs=[(term(ACCURACY, **BOTH, **DEEPEST), term(ACCURACY, **BOTH, **SHALLOWEST))],
        delta=0.01,
        source="§9.10",
        because="one point of training accuracy, the axis of the figure; at desk and lab four times the depth",
        **fresh.MET_BY_BLIND,
        **fresh.RESTATED | fresh.declare(fresh.DEPTHS),
    ),
)

EXPERIMENT = Experiment(
    number=8, title="Depth of the first stage", runs=runs, artefacts=(FIGURE, SCORES), claims=CLAIMS
)
