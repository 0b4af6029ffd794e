"""Settings tried for the scale `mini`, compared on validation collections similar and dissimilar to the training text.

One factor changes at a time, starting from a biencoder and a contextual model on batches of one domain. All runs use
seed 100, which no claim uses. The test suite is not read.
"""

from typing import Any

from experiments.e01_table1 import BM25, MINILM
from experiments.shared import NDCG
from repro.spec import Column, Experiment, Row, Run, Table, base, pick

SCALES = ("smoke", "desk")
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
"""MiniLM in both stages, on the text and steps of `desk`, because the scale `mini` got its values from these runs."""
CONTEXTUAL = {"architecture": "contextual"}
SETTINGS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("biencoder, rate 1e-4", {}),
    ("biencoder, rate 3e-5", {"learning_rate": 3e-5}),
    ("contextual, rate 1e-4", CONTEXTUAL),
    ("contextual, rate 3e-5", CONTEXTUAL | {"learning_rate": 3e-5}),
)
REFERENCES: tuple[tuple[str, dict[str, Any]], ...] = (("BM25", BM25), ("off-the-shelf MiniLM", MINILM))
SUITES = {"like training": "desk-validation", "unlike training": "desk-others"}


def runs(scale: str) -> tuple[Run, ...]:
    """Return each setting, scored on both validation suites. At `smoke`, one tiny run for each architecture."""
    if scale == "smoke":
        suite = {"suite": "planted-validation", "seed": SEED}
        return tuple(base("smoke", sampler="domain", **suite, **changes) for changes in ({}, CONTEXTUAL))
    settings = [{"seed": SEED} | PRETRAINED | changes for _, changes in SETTINGS]
    settings += [reference for _, reference in REFERENCES]
    return tuple(base("desk", suite=suite, **setting) for setting in settings for suite in SUITES.values())


CONTEXT_WORDS = {"wrong": "out-of-corpus", "null": "null"}


def make_row(label: str, changes: dict[str, Any], kind: str, context: str = "own") -> Row:
    """Return one setting on the suite of one kind, under one context."""
    name = label if context == "own" else f"{label}, {CONTEXT_WORDS[context]} context"
    return Row(label=f"{name}, {kind}", runs=pick(**changes, suite=SUITES[kind]), context=context)


TABLE = Table(
    name="mini_recipe",
    caption=(
        "Settings tried for `mini` on validation collections: NDCG@10 on collections like the training text "
        "(desk-validation) and on text of other vendors, unlike it (desk-others). One seed per row."
    ),
    columns=(
        Column(label="train loss", value="train/loss", decimals=2),
        Column(label="NDCG@10", value=NDCG, factor=100),
    ),
    rows=(
        *(
            make_row(label, {"architecture": "biencoder"} | PRETRAINED | changes, kind, context)
            for label, changes in SETTINGS
            for context in (("own", "wrong", "null") if "architecture" in changes else ("own",))
            for kind in SUITES
        ),
        *(make_row(label, reference, kind) for label, reference in REFERENCES for kind in SUITES),
    ),
)

EXPERIMENT = Experiment(number=49, title="The recipe of mini", runs=runs, artefacts=(TABLE,), scales=SCALES)
