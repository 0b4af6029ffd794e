"""Recipes for contextual batches at desk scale, compared only on the validation domains of the training sources."""

from typing import Any

from experiments.e05_epochs import PRETRAINING
from experiments.e06_hard_negatives import LENGTH
from experiments.shared import NDCG
from repro.spec import Column, Experiment, Row, Run, RunFilter, Table, base, pick

CONTEXTUAL = {"architecture": "contextual"}
# Alternatives tried before Table 1's recipe was chosen. Larger clusters over a whole source ("domain_column") bring
# near-copies of one document from many services into one batch.
RECIPES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("random batches", {"sampler": "random"}),
    ("one domain per batch", {"sampler": "domain"}),
    ("one domain per batch, filter", {"sampler": "domain", "filter": "surrogate"}),
    ("one source per batch", {"sampler": "domain", "domain_column": "source"}),
    ("clusters of 64 in a domain", {"sampler": "cluster", "cluster_size": 64, "packing": "greedy"}),
    ("clusters of 64, filter", {"sampler": "cluster", "cluster_size": 64, "packing": "greedy", "filter": "surrogate"}),
    (
        "clusters of 256, filter",
        {"sampler": "cluster", "cluster_size": 256, "packing": "greedy", "filter": "surrogate"},
    ),
    ("one domain per batch, heads drawn at random", {"sampler": "domain", "heads": "random"}),
    ("contextual, one domain per batch", {"sampler": "domain", **CONTEXTUAL}),
    ("contextual, heads drawn at random", {"sampler": "domain", **CONTEXTUAL, "heads": "random"}),
    ("contextual, both heads open", {"sampler": "domain", **CONTEXTUAL, "heads": "both-identity"}),
    ("contextual, one learning rate for both stages", {"sampler": "domain", **CONTEXTUAL, "first_stage_rate": 1.0}),
)
FIXED: dict[str, Any] = {
    "domain_column": "domain",
    "architecture": "biencoder",
    "filter": "none",
    "packing": "random",
    "cluster_size": None,
    "heads": "identity",
    "first_stage_rate": 0.02,
    "pretraining_corpus": None,
}
SMOKE_CLUSTERS = {None: None, 64: 8, 256: 16}


SCALES = ("smoke", "desk", "lab")
# A second phase with one hard negative, as in Table 7, resumes from "one domain per batch". Its learning rate is a
# fraction of the first phase's.
SECOND_PHASE = {"sampler": "domain", "num_hard_negatives": 1}
DIVISORS = {1: "the rate of the first", 4: "a quarter of it", 20: "a twentieth of it"}


def settings(scale: str, changes: dict[str, Any]) -> dict[str, Any]:
    """Return one recipe at one scale. The planted corpus of smoke has smaller domains and its own suite."""
    fields = FIXED | changes
    if scale != "smoke":
        return fields | {"suite": "desk-validation"}
    return fields | {"suite": "planted-validation", "cluster_size": SMOKE_CLUSTERS[fields["cluster_size"]]}


def make_filter(changes: dict[str, Any]) -> RunFilter:
    """Return the filter that selects the runs of a recipe at any scale."""
    fields = FIXED | changes
    return pick(**(fields | {"cluster_size": (fields["cluster_size"], SMOKE_CLUSTERS[fields["cluster_size"]])}))


def runs(scale: str) -> tuple[Run, ...]:
    """Return one seed of each recipe, at the scales with validation domains."""
    run_scale = scale if scale in SCALES else "lab"
    second_fields = SECOND_PHASE | PRETRAINING[run_scale] | LENGTH[run_scale]
    rates = (base(run_scale).learning_rate / divisor for divisor in DIVISORS)
    return (
        *(base(run_scale, **settings(run_scale, changes)) for _, changes in RECIPES),
        *(base(run_scale, **settings(run_scale, second_fields | {"learning_rate": rate})) for rate in rates),
    )


def second_phase(scale: str, divisor: int) -> RunFilter:
    """Return the filter that selects a second phase with this fraction of the first phase's learning rate."""
    phase = SECOND_PHASE | {"pretraining_corpus": PRETRAINING[scale]["pretraining_corpus"]}
    return pick(**phase, learning_rate=base(scale).learning_rate / divisor)


TABLE = Table(
    name="recipes",
    caption=(
        "Ways to build batches and to initialise the model, compared on validation domains of the training sources: "
        "NDCG@10."
    ),
    columns=(
        Column(label="batch", value="batch_size", decimals=0),
        Column(label="train loss", value="train/loss", decimals=2),
        Column(label="masked %", value="train/masked_fraction", factor=100),
        *(
            Column(label=family, value=f"{{suite}}/{family}/ndcg_at_10", factor=100, scales=("desk", "lab"))
            for family in ("services", "packages", "collections")
        ),
        Column(label="NDCG@10", value=NDCG, factor=100),
    ),
    rows=(
        *(Row(label=label, runs=make_filter(tried)) for label, tried in RECIPES),
        Row(
            label="contextual, one domain per batch; out-of-corpus",
            runs=make_filter({"sampler": "domain", **CONTEXTUAL}),
            context="wrong",
        ),
        *(
            Row(label=f"second phase, {words}", runs=second_phase(scale, divisor), scales=(scale,))
            for scale in SCALES
            for divisor, words in DIVISORS.items()
        ),
    ),
)

EXPERIMENT = Experiment(number=3, title="Settings tried before Table 1", runs=runs, artefacts=(TABLE,))
