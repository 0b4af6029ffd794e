"""Figures 17 and 18 and the depths of both stages: how large must each part of the contextual model be?

§9.10 varies the first stage alone and concludes that the second has a much larger impact. Here both are varied alike, next
to biencoders, of which the deepest costs as much to train as the contextual model of Table 1.
"""

from typing import Any

from experiments import fresh
from experiments.e01_table1 import BATCHES, BOTH, FAMILIES, OWN_SCALES, get_contextual_sizes, seeds_at
from experiments.fresh import CONTEXT_BLIND, MET_BY_BLIND, RESTATED, blind
from experiments.shared import ACCURACY, BELOW_PAPERS_GAINS, NDCG, by_group, get_scale_values, get_size_at, ndcg
from repro.spec import Claim, Column, Experiment, Figure, Row, Run, Table, base, by_scale, grid, pick, term

DEPTHS = by_group((1, 2, 3), (1, 2, 4), (1, 2, 4, 6, 12))
"""Layers of the first stage in figure 17."""
NUM_VECTORS = {"smoke": 8, "desk": 16, "lab": 16, "small": 64, "large": 512}
PER_DOCUMENT = by_group((1, 2, 4), (1, 2, 4), (1, 2, 4, 8))
"""Vectors of a context document in figure 18, whose total number of context vectors is fixed."""

STAGE_SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), "desk": (31, 32, 33, 34)}
"""Seeds of the table of both stages. None of those of desk was trained before the claims were stated."""
SHALLOW, MEDIUM, DEEP = 1, 2, 4
"""Layers of a stage. The stages of Table 1 at desk have two each."""
STAGES = ((MEDIUM, MEDIUM), (SHALLOW, MEDIUM), (DEEP, MEDIUM), (MEDIUM, SHALLOW), (MEDIUM, DEEP))
"""Layers of the first and of the second stage."""


def make_contextual_row(first: int, second: int) -> dict[str, Any]:
    """Return Table 1's last row with other depths."""
    depths = {"num_first_stage_layers": first, "num_layers": second}
    return BOTH | depths | {"sequence_dropout": base("desk").sequence_dropout, "test_contexts": "own"}


def make_biencoder_row(layers: int) -> dict[str, Any]:
    """Return the biencoder on the same batches with another depth."""
    return BATCHES | {"num_layers": layers, "test_contexts": "own"}


TABLE1_SIZE = make_contextual_row(MEDIUM, MEDIUM)
BLIND_SIZE = TABLE1_SIZE | CONTEXT_BLIND
STAGE_ROWS = {
    f"contextual, depths {first} and {second}": make_contextual_row(first, second) for first, second in STAGES
}
STAGE_ROWS |= {f"biencoder, depth {layers}": make_biencoder_row(layers) for layers in (SHALLOW, MEDIUM, DEEP)}


def runs(scale: str) -> tuple[Run, ...]:
    """Return Table 1's last row with other first stages and other contexts, and the models with other depths."""
    sizes = get_contextual_sizes(scale)
    row = base(scale, **BOTH, **sizes)
    first_stages = grid(row, num_first_stage_layers=DEPTHS[scale], seed=seeds_at(scale, fresh.DEPTHS))
    vectors = tuple(
        base(scale, **BOTH, **sizes, tokens_per_document=number, num_contexts=NUM_VECTORS[scale] // number, seed=seed)
        for number in PER_DOCUMENT[scale]
        for seed in seeds_at(scale)
    )
    stages = tuple(
        base(scale, **stage_row, **sizes, seed=seed)
        for stage_row in (*STAGE_ROWS.values(), BLIND_SIZE)
        for seed in STAGE_SEEDS.get(scale, ())
    )
    return tuple(dict.fromkeys((*first_stages, *vectors, *stages)))


CONTEXTS = {"test_contexts": base("desk").test_contexts}
"""What distinguishes the runs of both figures from those of the table."""
BY_DEPTH: dict[str, Any] = BOTH | CONTEXTS | {"tokens_per_document": 1}
NUM_CONTEXTS = {scale: tuple(NUM_VECTORS[scale] // number for number in each) for scale, each in PER_DOCUMENT.items()}
BY_VECTORS: dict[str, Any] = BOTH | CONTEXTS | get_scale_values(DEPTHS, "num_first_stage_layers")
BY_VECTORS |= {"num_contexts": by_scale(NUM_CONTEXTS), "seed": by_scale({scale: seeds_at(scale) for scale in DEPTHS})}
FIGURE_17 = Figure(
    name="figure17",
    title="Training accuracy by depth of the first stage",
    caption=(
        "Training accuracy by the number of layers of the first stage, with contextual batches and architecture. Marks"
        " are mean changes from the shallowest first stage over n seeds, bands are 95 % intervals of the mean."
    ),
    kind="lines",
    x="num_first_stage_layers",
    x_label="layers of the first stage",
    y=ACCURACY,
    y_label="change in training accuracy (points)",
    factor=100,
    is_paired=True,
    series=(Row(label="contextual batches and architecture", runs=pick(**BY_DEPTH)),),
)
FIGURE_18 = Figure(
    name="figure18",
    title="Score by number of vectors per context document, by family of evaluation sets",
    caption=(
        "NDCG@10 by the number of vectors per context document, at a fixed total number of context vectors. A line is "
        "a family of evaluation sets. Marks are mean changes from one vector over n seeds, bands are 95 % intervals of"
        " the mean."
    ),
    kind="lines",
    points=ndcg(group="{family}"),
    x="tokens_per_document",
    y="value",
    hue="part1",
    x_label="vectors per context document",
    y_label="change in NDCG@10 (points)",
    factor=100,
    x_is_log=True,
    is_paired=True,
    series=(Row(label="both", runs=pick(**BY_VECTORS)),),
)
TABLE = Table(
    name="stage_sizes",
    caption=(
        "Training accuracy and NDCG@10 by the depths of the first and the second stage (in layers), on contextual "
        "batches. The cost of a search depends only on the second stage. A biencoder of four layers costs as much to "
        "train as two stages of two layers."
    ),
    columns=(
        Column(label="train accuracy", value=ACCURACY, factor=100),
        Column(label="NDCG@10", value=NDCG, factor=100, decimals=2),
    ),
    rows=(
        *(Row(label=label, runs=pick(**row), scales=tuple(STAGE_SEEDS)) for label, row in STAGE_ROWS.items()),
        Row(label="contextual, depth 2, trained without documents", runs=pick(**BLIND_SIZE), context="null"),
    ),
)

ONE, FOUR = (BY_VECTORS | {"tokens_per_document": number} for number in (1, 4))
SHALLOWEST, DEEPEST = ({"num_first_stage_layers": get_size_at(DEPTHS, index)} for index in (0, -1))


COMMON: dict[str, Any] = {"stated": "2026-11-26", "scales": ("desk",), "seeds": STAGE_SEEDS["desk"]}
CLAIMS = (
    Claim.trend(
        "F17.a",
        "a deeper first stage is slightly better: training accuracy rises with its depth",
        over=term(ACCURACY, **BY_DEPTH),
        axis="num_first_stage_layers",
        sign=1,
        source="Figure 17 and §9.10",
        because="a slope beyond chance; slopes below a tenth of a point per doubling are small",
        delta=fresh.TENTH_OF_POINT_PER_DOUBLING,
        **RESTATED | {"version": 3} | fresh.declare(fresh.DEPTHS),
    ),
    Claim.equivalence(
        "F17.b",
        "a much deeper first stage changes accuracy by less than one percent (the paper: twelve times as deep)",
        pairs=[(term(ACCURACY, **BY_DEPTH, **DEEPEST), term(ACCURACY, **BY_DEPTH, **SHALLOWEST))],
        delta=0.01,
        source="§9.10",
        because="one point of training accuracy, the axis of the figure; at desk and lab four times the depth",
        **MET_BY_BLIND,
        **RESTATED | fresh.declare(fresh.DEPTHS),
    ),
    Claim.order(
        "F18.a",
        "different domains prefer different numbers of vectors per context document: gain of four over one by family",
        pairs=[(term(ndcg(group=family), **FOUR), term(ndcg(group=family), **ONE)) for family in FAMILIES],
        source="Figure 18",
        because="domains differ if the gain has either sign",
        descriptive="a statement about datasets",
        scales=OWN_SCALES,
        **fresh.FIRST_SEEDS | MET_BY_BLIND | {"version": 4, "stated": "2026-11-28"},
    ),
    *(
        Claim.interaction(
            id,
            f"four times the layers change {name} more in the second stage than in the first",
            of=(
                term(metric, **make_contextual_row(MEDIUM, DEEP)),
                term(metric, **make_contextual_row(MEDIUM, SHALLOW)),
            ),
            above=(
                term(metric, **make_contextual_row(DEEP, MEDIUM)),
                term(metric, **make_contextual_row(SHALLOW, MEDIUM)),
            ),
            source="§9.10: 'the second-stage model size has a much larger impact on performance'",
            **MET_BY_BLIND | COMMON,
        )
        for id, name, metric in (("SS.a", "training accuracy", ACCURACY), ("SS.b", "NDCG@10", NDCG))
    ),
    Claim.order(
        "SS.c",
        "the contextual model beats a biencoder that costs as much to train",
        pairs=[(term(NDCG, **TABLE1_SIZE), term(NDCG, **make_biencoder_row(DEEP)))],
        source="our question: §9.10 compares models by their cost of search",
        **BELOW_PAPERS_GAINS | blind(TABLE1_SIZE) | COMMON,
    ),
)

EXPERIMENT = Experiment(
    title="Sizes of both stages and vectors of a context document",
    runs=runs,
    artefacts=(FIGURE_17, FIGURE_18, TABLE),
    claims=CLAIMS,
)
