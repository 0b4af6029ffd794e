"""Settings tried for the scale `mini`, compared on validation collections similar and dissimilar to the training text.

One factor changes at a time, starting from a biencoder and a contextual model on batches of one domain. All runs use
seed 100, which no claim uses. The test suite is not read.
"""

from typing import Any

from repro.spec import Column, Experiment, Row, Run, Table, base, pick

SCALES = ("smoke", "mini")
SEED = 100
PRETRAINED: dict[str, Any] = {
    "sampler": "domain",
    "backbone": "bert",
    "start": "minilm",
    "num_layers": 6,
    "num_first_stage_layers": 6,
    "hidden_size": 384,
    "first_stage_rate": 1.0,
    "learning_rate": 1e-4,
}
"""MiniLM in both stages, on the text and steps of `desk`. These runs were made before `mini` had its values."""
CONTEXTUAL = {"architecture": "contextual"}
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("biencoder, rate 1e-4", {}),
    ("biencoder, rate 3e-5", {"learning_rate": 3e-5}),
    ("contextual, rate 1e-4", CONTEXTUAL),
    ("contextual, rate 3e-5", CONTEXTUAL | {"learning_rate": 3e-5}),
)
SUITES = {"like training": "desk-validation", "unlike training": "desk-others"}


def runs(scale: str) -> tuple[Run, ...]:
    """Return each setting, scored on both validation suites. At `smoke`, one tiny run for each architecture."""
    if scale == "smoke":
        suite = {"suite": "planted-validation", "seed": SEED}
        return tuple(base("smoke", sampler="domain", **suite, **changes) for changes in ({}, CONTEXTUAL))
    settings = (PRETRAINED | changes for _, changes in SETTINGS)
    return tuple(base("desk", seed=SEED, suite=suite, **setting) for setting in settings for suite in SUITES.values())


def make_row(label: str, changes: dict[str, Any], suite: str, context: str = "own") -> Row:
    """Return one setting on one suite, under one context."""
    setting = {"architecture": "biencoder"} | PRETRAINED | changes
    return Row(label=label, runs=pick(**setting, suite=suite), context=context)


TABLE = Table(
    name="mini_recipe",
    caption=(
        "Settings tried for `mini` on validation collections: NDCG@10 on collections like the training text "
        "(desk-validation) and unlike it (desk-others, text of other vendors). One seed per row."
    ),
    columns=(
        Column(label="train loss", value="train/loss", decimals=2),
        Column(label="NDCG@10", value="{suite}/mean/ndcg_at_10", factor=100),
    ),
    rows=tuple(
        make_row(f"{label}{'' if context == 'own' else f', {context} context'}, {kind}", changes, suite, context)
        for label, changes in SETTINGS
        for context in (("own", "wrong", "null") if "architecture" in changes else ("own",))
        for kind, suite in SUITES.items()
    ),
)

EXPERIMENT = Experiment(number=49, title="The recipe of mini", runs=runs, artefacts=(TABLE,), scales=SCALES)
