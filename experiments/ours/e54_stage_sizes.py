"""The depth of the second stage, compared with the depth of the first (figure 17 and §9.10).

§9.10 varies the first stage alone and concludes that the second has a much larger impact. Here both are varied alike, next
to biencoders, of which the deepest costs as much to train as the contextual model of Table 1.
"""

from typing import Any

from experiments.e01_table1 import BATCHES, BOTH, CLUSTER, CONTEXTUAL_BATCH
from experiments.fresh import BELOW_SMALLEST_GAIN, CONTEXT_BLIND, HALF_A_POINT, MET_BY_BLIND, blind
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
    rows = [make_contextual_row(*sizes) for sizes in SIZES] + [
        make_biencoder_row(layers) for layers in (SHALLOW, MEDIUM, DEEP)
    ]
    rows = [row | {"test_contexts": "own"} for row in rows] + [TABLE1_SIZE | CONTEXT_BLIND]
    batches = {"batch_size": CONTEXTUAL_BATCH[scale], "cluster_size": CLUSTER[scale]}
    return tuple(base(scale, **row, **batches, seed=seed) for row in rows for seed in SEEDS[scale])


ACCURACY, NDCG = "train/accuracy", "{suite}/mean/ndcg_at_10"
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


def score(row: dict[str, Any], metric: str = NDCG) -> Term:
    """Return a metric of a row."""
    return term(metric, **row)


def by_first(metric: str) -> tuple[Term, Term]:
    """Return the deepest and the shallowest first stage."""
    return score(make_contextual_row(DEEP, MEDIUM), metric), score(make_contextual_row(SHALLOW, MEDIUM), metric)


def by_second(metric: str) -> tuple[Term, Term]:
    """Return the deepest and the shallowest second stage."""
    return score(make_contextual_row(MEDIUM, DEEP), metric), score(make_contextual_row(MEDIUM, SHALLOW), metric)


COMMON: dict[str, Any] = {"stated": "2026-11-26", "scales": ("desk",), "seeds": SEEDS["desk"]}
CLAIMS = (
    Claim.interaction(
        "SS.a",
        "four times the layers change training accuracy more in the second stage than in the first",
        of=by_second(ACCURACY),
        above=by_first(ACCURACY),
        source="§9.10: 'the second-stage model size has a much larger impact on performance'",
        because="any difference beyond chance",
        **MET_BY_BLIND,
        **COMMON,
    ),
    Claim.interaction(
        "SS.b",
        "four times the layers change NDCG@10 more in the second stage than in the first",
        of=by_second(NDCG),
        above=by_first(NDCG),
        source="§9.10: 'the second-stage model size has a much larger impact on performance'",
        because="any difference beyond chance",
        **MET_BY_BLIND,
        **COMMON,
    ),
    Claim.order(
        "SS.c",
        "the contextual model beats a biencoder that costs as much to train",
        pairs=[(score(TABLE1_SIZE), score(make_biencoder_row(DEEP)))],
        delta=HALF_A_POINT,
        source="our question: §9.10 compares models by their cost of search",
        because=f"any difference beyond chance; {BELOW_SMALLEST_GAIN}",
        **blind(TABLE1_SIZE),
        **COMMON,
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
