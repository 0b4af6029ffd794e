"""Contextual batches compared with plain batches that are sixteen times larger (§5, Table 1).

The paper's plain rows have batches of 16,384 and its contextual rows batches of 512. Table 1 at our scales gives all
rows one size. Here the plain rows also have large batches: once with as many pairs as the small batches, in fewer
steps, and once with as many steps, on more pairs.
"""

from typing import Any

from experiments.e01_table1 import ARCHITECTURE, BATCHES, BOTH, CLUSTER, NEITHER, PLAIN_BATCH
from experiments.shared import BELOW_PAPERS_GAINS, LOSS_COLUMN, NDCG, get_budget
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, by_scale, pick, term

SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), "desk": (25, 26, 27)}
"""None of these seeds was trained before the claims were stated."""
FACTOR = {"smoke": 4, "desk": 16}
"""Size of a large batch in small ones."""
LARGE = {scale: PLAIN_BATCH[scale] * factor for scale, factor in FACTOR.items()}
STEPS = {scale: base(scale).num_steps or 0 for scale in SEEDS}
FEW_STEPS = {scale: STEPS[scale] // FACTOR[scale] for scale in SEEDS}

SMALL_BATCH: dict[str, Any] = {"batch_size": by_scale(PLAIN_BATCH)}
EQUAL_PAIRS: dict[str, Any] = {"batch_size": by_scale(LARGE), "num_steps": by_scale(FEW_STEPS)}
EQUAL_STEPS: dict[str, Any] = {"batch_size": by_scale(LARGE), "num_steps": by_scale(STEPS)}
SIZES = {"small batches": SMALL_BATCH, "large, as many pairs": EQUAL_PAIRS, "large, as many steps": EQUAL_STEPS}


def runs(scale: str) -> tuple[Run, ...]:
    """Return plain runs of all three sizes, and runs on contextual batches, for both architectures and every seed."""
    few_steps = get_budget(FEW_STEPS[scale])
    small, large = {"batch_size": PLAIN_BATCH[scale]}, {"batch_size": LARGE[scale]}
    rows: list[dict[str, Any]] = []
    for plain, contextual in ((NEITHER, BATCHES), (ARCHITECTURE, BOTH)):
        rows += [plain | small, plain | large | few_steps, plain | large]
        rows += [contextual | small | {"cluster_size": CLUSTER[scale]}]
    return tuple(base(scale, **row, test_contexts="own", seed=seed) for row in rows for seed in SEEDS[scale])


TABLE = Table(
    name="plain_batches",
    caption=(
        "NDCG@10 after training on small and large plain batches of one source, and on contextual batches (clusters "
        "with the filter). The learning rate is the same in all rows."
    ),
    columns=(
        Column(label="batch", value="batch_size", decimals=0),
        Column(label="steps", value="num_steps", decimals=0),
        LOSS_COLUMN,
        Column(label="NDCG@10", value=NDCG, factor=100, decimals=2),
    ),
    rows=tuple(
        row
        for name, plain, contextual in (("biencoder", NEITHER, BATCHES), ("contextual", ARCHITECTURE, BOTH))
        for row in (
            *(Row(label=f"{name}, plain, {size}", runs=pick(**plain | fields)) for size, fields in SIZES.items()),
            Row(label=f"{name}, contextual batches", runs=pick(**contextual | SMALL_BATCH)),
        )
    ),
)


def score(row: dict[str, Any], size: dict[str, Any] = SMALL_BATCH) -> Term:
    """Return the mean NDCG@10 of a row at one batch size."""
    return term(NDCG, **row | size)


COMMON = BELOW_PAPERS_GAINS | {"stated": "2026-11-26", "scales": ("desk",), "seeds": SEEDS["desk"]}
CLAIMS = (
    *(
        Claim.order(
            id,
            "contextual batches beat plain batches sixteen times as large, at equal numbers of "
            f"{budget} (both architectures)",
            pairs=[(score(BATCHES), score(NEITHER, size)), (score(BOTH), score(ARCHITECTURE, size))],
            source="Table 1",
            **COMMON,
        )
        for id, budget, size in (("PB.a", "pairs", EQUAL_PAIRS), ("PB.b", "steps", EQUAL_STEPS))
    ),
    Claim.order(
        "PB.c",
        "plain batches sixteen times as large are better at equal numbers of steps (both architectures)",
        pairs=[(score(row, EQUAL_STEPS), score(row)) for row in (NEITHER, ARCHITECTURE)],
        source="§6: large batches are useful without the filter",
        **COMMON,
    ),
)

EXPERIMENT = Experiment(
    title="Contextual batches and larger plain batches",
    runs=runs,
    artefacts=(TABLE,),
    claims=CLAIMS,
    scales=tuple(SEEDS),
)
