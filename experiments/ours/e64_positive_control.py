"""The positive control of each recipe: can a model learn to read its context in as many steps?

On the planted corpus only the context reveals which words are noise (experiment 2). Here models are trained on it under
the heads, rates and start of a recipe, at its number of steps and at eight times as many. A null result about context is
stated only for lengths at which in-corpus context is worth more than two points over out-of-corpus context.
"""

from typing import Any

from experiments.e01_table1 import ARCHITECTURE_DOMAIN, get_sizes, make_context_rows
from experiments.ours.e63_mini2_recipe import CONTEXTUAL
from experiments.shared import LOSS_COLUMN, NDCG_COLUMN, get_budget
from repro.spec import Experiment, Row, Run, Table, base, pick

SEED = 100
PLANTED = {"suite": "planted", "seed": SEED, "test_contexts": "own+wrong+null"}
CORPUS = {"smoke": "planted-tiny", "mini": "planted"}
ONE_RATE: dict[str, Any] = ARCHITECTURE_DOMAIN | {"first_position": None, "heads": "identity", "first_stage_rate": 1.0}
RECIPES: dict[str, dict[str, Any]] = {"mini: one rate": ONE_RATE, "slow first stage": CONTEXTUAL}
MULTIPLES = (1, 8)


def get_length(scale: str, multiple: int) -> dict[str, int]:
    """Return the steps and the warm-up of a training run that is `multiple` times as long as one of the scale."""
    return get_budget((base(scale).num_steps or 0) * multiple)


def runs(scale: str) -> tuple[Run, ...]:
    """Return all recipes at the length of the scale, then at eight times as many steps."""
    rows = [recipe | get_length(scale, multiple) for multiple in MULTIPLES for recipe in RECIPES.values()]
    corpus = {"corpus": CORPUS[scale], "num_pairs": None}
    return tuple(base(scale, **row | PLANTED | corpus | get_sizes(row, scale)) for row in rows)


def make_rows() -> tuple[Row, ...]:
    """Return three rows for each recipe and length: in-corpus, out-of-corpus and null context."""
    rows = []
    for multiple in MULTIPLES:
        for name, recipe in RECIPES.items():
            length = get_length("mini", multiple)["num_steps"]
            selected = recipe | PLANTED | {"num_steps": length}
            rows.append(Row(label=f"{name}, {length} steps, in-corpus", runs=pick(**selected), scales=("mini",)))
            rows += make_context_rows(selected, "wrong", "null", scales=("mini",))
    return tuple(rows)


TABLE = Table(
    name="positive_control",
    caption=(
        "NDCG@10 on the planted corpus of contextual models from MiniLM, by recipe and number of steps. A recipe reads its "
        "context if in-corpus context is worth more than two points over out-of-corpus context. One seed per row."
    ),
    columns=(LOSS_COLUMN, NDCG_COLUMN),
    rows=make_rows(),
)

EXPERIMENT = Experiment(title="Positive control of a recipe", runs=runs, artefacts=(TABLE,), scales=tuple(CORPUS))
