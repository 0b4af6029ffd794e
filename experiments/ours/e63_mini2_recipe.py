"""Settings tried for the scale `mini2`, compared on validation collections only. One seed, which no claim uses.

Both architectures start from MiniLM with the text of the second stage at position 0, on batches of one domain. One
factor changes at a time. The criterion is the score with in-corpus context. Three layers are a start that is no finished
retriever, as in the paper, whose small setting takes the first half of NomicBERT.
"""

from typing import Any

from experiments.e01_table1 import ARCHITECTURE_DOMAIN, NEITHER_DOMAIN, get_sizes, make_context_rows
from experiments.shared import LOSS_COLUMN, NDCG_COLUMN, get_budget
from repro.spec import Experiment, Row, Run, Table, base, pick

SEED = 100
SUITE = {"smoke": "planted-validation", "mini": "desk-validation"}
RATES = (5e-5, 1e-4, 2e-4)
FULL = {"num_steps": base("mini").num_steps}
UNTRAINED = {"num_steps": 0}
BIENCODER: dict[str, Any] = NEITHER_DOMAIN | {"heads": "identity"}
CONTEXTUAL: dict[str, Any] = ARCHITECTURE_DOMAIN | {
    "first_position": 0,
    "heads": "both-identity",
    "first_stage_rate": 0.02,
    "test_contexts": "own+random+null",
}
THREE_LAYERS = {"num_layers": 3}
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("step 0: biencoder", BIENCODER | UNTRAINED),
    ("step 0: contextual", CONTEXTUAL | UNTRAINED),
    ("step 0: biencoder, three layers", BIENCODER | UNTRAINED | THREE_LAYERS),
    ("step 0: contextual, three layers in the second stage", CONTEXTUAL | UNTRAINED | THREE_LAYERS),
    ("biencoder, rate 1e-4", BIENCODER),
    ("contextual, rate 1e-4", CONTEXTUAL),
    ("biencoder, three layers, rate 1e-4", BIENCODER | THREE_LAYERS),
    ("contextual, three layers in the second stage, rate 1e-4", CONTEXTUAL | THREE_LAYERS),
    (
        "contextual, random head of the first stage, one rate",
        CONTEXTUAL | {"heads": "identity", "first_stage_rate": 1.0},
    ),
    ("contextual, first stage at 0.1 of the rate", CONTEXTUAL | {"first_stage_rate": 0.1}),
    ("biencoder, rate 2e-4", BIENCODER | {"learning_rate": 2e-4}),
    ("contextual, rate 2e-4", CONTEXTUAL | {"learning_rate": 2e-4}),
    ("biencoder, rate 5e-5", BIENCODER | {"learning_rate": 5e-5}),
    ("contextual, rate 5e-5", CONTEXTUAL | {"learning_rate": 5e-5}),
)


def runs(scale: str) -> tuple[Run, ...]:
    """Return each setting, scored on the validation suite. At `smoke`, the steps of that scale."""
    chosen = SETTINGS if scale == "mini" else SETTINGS[4:6]
    sizes = get_budget(base(scale).num_steps or 0) if scale == "smoke" else {}
    rows = ({**row, "suite": SUITE[scale], "seed": SEED} for _, row in chosen)
    return tuple(base(scale, **row | get_sizes(row, scale) | sizes) for row in rows)


def make_rows() -> tuple[Row, ...]:
    """Return a row for each setting, and one for each other context of a contextual model."""
    rows = []
    for label, setting in SETTINGS:
        selected = FULL | {"learning_rate": 1e-4, "num_layers": 6} | setting
        rows.append(Row(label=label, runs=pick(**selected), scales=("mini",)))
        if setting["architecture"] == "contextual":
            rows += make_context_rows(selected, "random", "null", scales=("mini",))
    return tuple(rows)


TABLE = Table(
    name="mini2_recipe",
    caption=(
        "Settings tried for `mini2`: NDCG@10 on validation collections (desk-validation), one seed per row. Contextual "
        "models have in-corpus context, if nothing else is said."
    ),
    columns=(LOSS_COLUMN, NDCG_COLUMN),
    rows=make_rows(),
)

EXPERIMENT = Experiment(title="The recipe of mini2", runs=runs, artefacts=(TABLE,), scales=tuple(SUITE))
