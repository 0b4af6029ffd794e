"""The depth of the second stage, compared with the depth of the first (figure 17 and §9.10).

§9.10 varies the first stage alone and concludes that the second has a much larger impact. Here both are varied alike, next
to biencoders, of which the deepest costs as much to train as the contextual model of Table 1.
"""

from typing import Any

from experiments.e01_table1 import BATCHES, BOTH, get_contextual_sizes
from experiments.fresh import CONTEXT_BLIND, MET_BY_BLIND, blind
from experiments.shared import ACCURACY, BELOW_PAPERS_GAINS, BEYOND_CHANCE, NDCG
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, pick, term

SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), "desk": (31, 32, 33, 34)}
"""None of the seeds of desk was trained before the claims were stated."""
SHALLOW, MEDIUM, DEEP = 1, 2, 4
"""Layers of a stage. The stages of Table 1 at desk have two each."""
TABLE1_ROW = BOTH | {"sequence_dropout": base("desk").sequence_dropout}
SIZES = ((MEDIUM, MEDIUM), (SHALLOW, MEDIUM), (DEEP, MEDIUM), (MEDIUM, SHALLOW), (MEDIUM, DEEP))
"""Layers of the first and of the second stage."""


def make_contextual_row(first: int, second: int) -> dict[str, Any]:
    """Return Table 1's last row with other depths."""
    return TABLE1_ROW | {"num_first_stage_layers": first, "num_layers": second}


def make_biencoder_row(layers: int) -> dict[str, Any]:
    """Return the biencoder on the same batches with another depth."""
    return BATCHES | {"num_layers": layers}


TABLE1_SIZE = make_contextual_row(MEDIUM, MEDIUM)


def runs(scale: str) -> tuple[Run, ...]:
    """Return contextual models of all sizes, biencoders of all depths, and a context-blind model, for every seed."""
    rows = [make_contextual_row(*sizes) for sizes in SIZES]
    rows += [make_biencoder_row(layers) for layers in (SHALLOW, MEDIUM, DEEP)]
    rows = [row | {"test_contexts": "own"} for row in rows] + [TABLE1_SIZE | CONTEXT_BLIND]
    sizes = get_contextual_sizes(scale)
    return tuple(base(scale, **row, **sizes, seed=seed) for row in rows for seed in SEEDS[scale])


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
        *(
            Row(label=f"contextual, depths {first} and {second}", runs=pick(**make_contextual_row(first, second)))
            for first, second in SIZES
        ),
        Row(
            label="contextual, depth 2, trained without documents",
            runs=pick(**TABLE1_SIZE | CONTEXT_BLIND),
            context="null",
        ),
        *(
            Row(label=f"biencoder, depth {layers}", runs=pick(**make_biencoder_row(layers)))
            for layers in (SHALLOW, MEDIUM, DEEP)
        ),
    ),
)


def by_first(metric: str) -> tuple[Term, Term]:
    """Return the deepest and the shallowest first stage."""
    return term(metric, **make_contextual_row(DEEP, MEDIUM)), term(metric, **make_contextual_row(SHALLOW, MEDIUM))


def by_second(metric: str) -> tuple[Term, Term]:
    """Return the deepest and the shallowest second stage."""
    return term(metric, **make_contextual_row(MEDIUM, DEEP)), term(metric, **make_contextual_row(MEDIUM, SHALLOW))


COMMON: dict[str, Any] = {"stated": "2026-11-26", "scales": ("desk",), "seeds": SEEDS["desk"]}
CLAIMS = (
    *(
        Claim.interaction(
            id,
            f"four times the layers change {name} more in the second stage than in the first",
            of=by_second(metric),
            above=by_first(metric),
            source="§9.10: 'the second-stage model size has a much larger impact on performance'",
            because=BEYOND_CHANCE,
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
    number=54,
    title="Depth of the first and of the second stage",
    runs=runs,
    artefacts=(TABLE,),
    claims=CLAIMS,
    scales=tuple(SEEDS),
)
