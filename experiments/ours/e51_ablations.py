"""Details of the architecture that the paper sets without a plot: sequence dropout (§5) and the number of soft prompts.

A contextual model on batches of one domain, with one value changed at a time. Table 1 has the unchanged model.
"""

from typing import Any

from experiments.e01_table1 import ARCHITECTURE_DOMAIN, BLIND, PLAIN_BATCH
from experiments.shared import BELOW_SMALLEST_GAIN, BEYOND_CHANCE, HALF_A_POINT
from repro.spec import Claim, Column, Experiment, Row, Run, Table, Term, base, pick, term

SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), "desk": (8, 9, 10)}
"""None of these seeds was trained before the claims were stated."""
REFERENCE: dict[str, Any] = ARCHITECTURE_DOMAIN | {
    "sequence_dropout": base("desk").sequence_dropout,
    "num_soft_prompts": base("desk").num_soft_prompts,
}
CHANGES: dict[str, dict[str, Any]] = {
    "no sequence dropout": {"sequence_dropout": 0.0, "test_contexts": "own+wrong"},  # such a model has no null vector
    "sequence dropout 0.5": {"sequence_dropout": 0.5},
    "no soft prompts": {"num_soft_prompts": 0},
    "8 soft prompts": {"num_soft_prompts": 8},
}


def runs(scale: str) -> tuple[Run, ...]:
    """Return the unchanged model, each change, and the context-blind model, for every seed."""
    rows = [ARCHITECTURE_DOMAIN, *(ARCHITECTURE_DOMAIN | change for change in CHANGES.values())]
    rows += [ARCHITECTURE_DOMAIN | BLIND] if scale == "desk" else []
    return tuple(base(scale, **row, batch_size=PLAIN_BATCH[scale], seed=seed) for row in rows for seed in SEEDS[scale])


MEAN_NDCG = "mean/ndcg_at_10"
CONTEXTS = {"in-corpus": "", "out-of-corpus": "+wrong", "null": "+null"}
TABLE = Table(
    name="ablations",
    caption=(
        "NDCG@10 of the contextual model on batches of one domain with one detail changed at a time, with in-corpus, "
        "out-of-corpus and null context. Sequence dropout 1 is the context-blind model."
    ),
    columns=(
        Column(label="train loss", value="train/loss", decimals=2),
        *(
            Column(label=label, value=f"{{suite}}{view}/{MEAN_NDCG}", factor=100, decimals=2)
            for label, view in CONTEXTS.items()
        ),
    ),
    rows=(
        Row(label="as in Table 1 (dropout 0.005, 2 prompts)", runs=pick(**REFERENCE)),
        *(Row(label=label, runs=pick(**REFERENCE | change)) for label, change in CHANGES.items()),
        Row(label="sequence dropout 1 (context-blind)", runs=pick(**REFERENCE | BLIND)),
    ),
)


def score(change: dict[str, Any], view: str = "") -> Term:
    """Return the mean NDCG@10 of a changed model under one context."""
    return term(f"{{suite}}{view}/{MEAN_NDCG}", **REFERENCE | change)


COMMON: dict[str, Any] = {"stated": "2026-11-25", "scales": ("desk",), "seeds": SEEDS["desk"]}
HALF_DROPPED = CHANGES["sequence dropout 0.5"]


def claim_no_change(id: str, statement: str, changes: tuple[str, ...], source: str) -> Claim:
    """Claim that none of these changes matters to the score under in-corpus context."""
    pairs = [(score(CHANGES[name]), score({})) for name in changes]
    options = COMMON | {"delta": HALF_A_POINT, "because": BELOW_SMALLEST_GAIN}
    return Claim.equivalence(id, statement, pairs=pairs, source=source, **options)


CLAIMS = (
    claim_no_change(
        "AB.a",
        "with sequence dropout 0 and 0.5, a model scores within half a point of 0.005 under in-corpus context",
        ("no sequence dropout", "sequence dropout 0.5"),
        "our question: §5 sets 0.005 and does not vary it",
    ),
    Claim.interaction(
        "AB.b",
        "a model trained with sequence dropout 0.5 loses less without context than one trained with 0.005",
        of=(score({}), score({}, "+null")),
        above=(score(HALF_DROPPED), score(HALF_DROPPED, "+null")),
        source="our question: §4.2 says that dropout lets the model work without context, and compares no rates",
        because=BEYOND_CHANCE,
        **COMMON,
    ),
    claim_no_change(
        "AB.c",
        "with no and with eight soft prompts, a model scores within half a point of two",
        ("no soft prompts", "8 soft prompts"),
        "our question: the official code has soft prompts, the paper does not mention them",
    ),
)

EXPERIMENT = Experiment(
    number=51,
    title="Sequence dropout and soft prompts",
    runs=runs,
    artefacts=(TABLE,),
    claims=CLAIMS,
    scales=tuple(SEEDS),
)
