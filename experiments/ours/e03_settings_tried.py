"""Settings that were tried on validation collections: recipes, designs for reading the corpus, and starts from MiniLM.

The test suite is not read. Only E.i is a claim. Seed 100 is used by no other experiment.

1. `desk` and `lab`, random start: how batches are built and models initialised, before Table 1's recipe was chosen.
2. `desk` and `lab`, random start: designs that might make the contextual model use its corpus.
3. `desk`, start from MiniLM: the learning rate of `mini`, on collections like the training text and unlike it.
4. `mini`: the same question as in 2, after as many steps as in experiment 58, because after the 240 steps of `mini` no
   model uses its context. The threshold is the biencoder, whitened by its corpus without training.
"""

from typing import Any

from experiments.e01_table1 import ARCHITECTURE_DOMAIN, BM25, BOTH, MINILM, get_contextual_sizes
from experiments.e05_epochs import PRETRAINING
from experiments.e06_hard_negatives import LENGTH
from experiments.fresh import CONTEXT_BLIND, FIRST, MET_BY_BLIND, STATED, WIDTHS, declare
from experiments.ours.e58_context_curve import ALL_PAIRS, BIENCODER, END, STEPS
from experiments.shared import (
    HALF_A_POINT,
    LOSS_COLUMN,
    NDCG_COLUMN,
    WHAT_A_READER_NOTICES,
    gain_over,
    get_budget,
    get_fields_at,
    get_scale_values,
)
from repro.spec import Claim, Column, Experiment, Row, Run, Table, base, by_scale, pick

SCALES = ("smoke", "desk", "lab")
SUITES = {"smoke": "planted-validation", "desk": "desk-validation", "lab": "desk-validation", "mini": "desk-validation"}
CONTEXTUAL = {"architecture": "contextual"}
Settings = tuple[tuple[str, dict[str, Any]], ...]

# ---- 1. Recipes. Larger clusters over a whole source ("domain_column") bring near-copies of one document from many
# services into one batch. A second phase with one hard negative, as in Table 7, resumes from "one domain per batch".

CLUSTERS = {"sampler": "cluster", "packing": "greedy"}
ONE_DOMAIN = {"sampler": "domain"}
FILTER = {"filter": "surrogate"}
RECIPES: Settings = (
    ("random batches", {"sampler": "random"}),
    ("one domain per batch", ONE_DOMAIN),
    ("one domain per batch, filter", ONE_DOMAIN | FILTER),
    ("one source per batch", ONE_DOMAIN | {"domain_column": "source"}),
    ("clusters of 64 in a domain", CLUSTERS | {"cluster_size": 64}),
    ("clusters of 64, filter", CLUSTERS | FILTER | {"cluster_size": 64}),
    ("clusters of 256, filter", CLUSTERS | FILTER | {"cluster_size": 256}),
    ("one domain per batch, heads drawn at random", ONE_DOMAIN | {"heads": "random"}),
    ("contextual, one domain per batch", ONE_DOMAIN | CONTEXTUAL),
    ("contextual, heads drawn at random", ONE_DOMAIN | CONTEXTUAL | {"heads": "random"}),
    ("contextual, both heads open", ONE_DOMAIN | CONTEXTUAL | {"heads": "both-identity"}),
    ("contextual, one learning rate for both stages", ONE_DOMAIN | CONTEXTUAL | {"first_stage_rate": 1.0}),
)
FIXED: dict[str, Any] = {
    "backbone": base("desk").backbone,
    "seed": 0,
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
SECOND_PHASE = ONE_DOMAIN | {"num_hard_negatives": 1}
DIVISORS = {1: "the rate of the first", 4: "a quarter of it", 20: "a twentieth of it"}


def list_recipes(scale: str) -> tuple[Run, ...]:
    """Return one seed of each recipe, and second phases at three learning rates. Domains of smoke are smaller."""
    second = SECOND_PHASE | PRETRAINING[scale] | LENGTH[scale]
    changes = [recipe for _, recipe in RECIPES]
    changes += [second | {"learning_rate": base(scale).learning_rate / divisor} for divisor in DIVISORS]
    settings = [FIXED | change | {"suite": SUITES[scale]} for change in changes]
    if scale == "smoke":
        settings = [setting | {"cluster_size": SMOKE_CLUSTERS[setting["cluster_size"]]} for setting in settings]
    return tuple(base(scale, **setting) for setting in settings)


def make_second_phase_row(divisor: int, label: str) -> Row:
    """Return the row of a second phase with this fraction of the first phase's learning rate."""
    corpora = by_scale({scale: PRETRAINING[scale]["pretraining_corpus"] for scale in SCALES})
    rates = by_scale({scale: base(scale).learning_rate / divisor for scale in SCALES})
    phase = pick(**SECOND_PHASE, pretraining_corpus=corpora, learning_rate=rates)
    return Row(label=f"second phase, {label}", runs=phase, scales=SCALES)


# ---- 2. Designs: each differs from Table 1's contextual model in one field. Only the last changes the architecture.

VARIED = ("num_contexts", "tokens_per_document", "first_stage_rate", "heads", "domain_column", "pooling")
TABLE1: dict[str, Any] = BOTH | get_scale_values(SCALES, *VARIED)
DESIGNS: Settings = (
    ("as in Table 1", {}),
    (
        "four times the context documents",
        {"num_contexts": by_scale({scale: 4 * base(scale).num_contexts for scale in SCALES})},
    ),
    ("four vectors per context document", {"tokens_per_document": 4}),
    ("a first stage that learns faster", {"first_stage_rate": 0.2}),
    ("both heads start as the identity", {"heads": "both-identity"}),
    ("clusters of a whole source", {"domain_column": "source"}),
)
FREQUENCY = {"pooling": "frequency"}
ALL_DESIGNS = (*DESIGNS, ("with word frequencies (ours)", FREQUENCY))
DESIGN_SEEDS = {"smoke": (0,), "desk": (0, 1, 2, 3, 4), "lab": (1,)}
"""Seed 0 alone, at desk, left E.i without a spread. Seed 1 was added, then the two more that it was estimated to need."""


def list_designs(scale: str) -> tuple[Run, ...]:
    """Return each design with every seed."""
    fixed: dict[str, Any] = get_contextual_sizes(scale) | {"suite": SUITES[scale]}
    designs = [fixed | get_fields_at(TABLE1 | changes, scale) for _, changes in ALL_DESIGNS]
    return tuple(base(scale, **design, seed=seed) for design in designs for seed in DESIGN_SEEDS[scale])


# ---- 3. MiniLM in both stages, on the text and steps of `desk`. The scale `mini` got its values from these runs.

SEED = 100
START = ("backbone", "start", "num_layers", "num_first_stage_layers", "hidden_size", "first_stage_rate")
PRETRAINED: dict[str, Any] = ONE_DOMAIN | {name: getattr(base("mini"), name) for name in START}
FROM_MINILM: Settings = tuple(
    (
        f"from MiniLM: {architecture}, rate {rate}",
        PRETRAINED | {"architecture": architecture, "learning_rate": float(rate)},
    )
    for architecture in ("biencoder", "contextual")
    for rate in ("1e-4", "3e-5")
)
REFERENCES: Settings = (("BM25", BM25), ("off-the-shelf MiniLM", MINILM))
KINDS = {"like training": "desk-validation", "unlike training": "desk-others"}


def list_starts_from_minilm(scale: str) -> tuple[Run, ...]:
    """Return each setting on both kinds of collections. At `smoke`, one tiny run for each architecture."""
    if scale == "smoke":
        fields = ONE_DOMAIN | {"suite": SUITES[scale], "seed": SEED}
        return tuple(base(scale, **fields, **changes) for changes in ({}, CONTEXTUAL))
    settings = [changes | {"seed": SEED} for _, changes in FROM_MINILM] + [changes for _, changes in REFERENCES]
    return tuple(base(scale, suite=suite, **setting) for setting in settings for suite in KINDS.values())


# ---- 4. Ways in which the context enters a pretrained model, after long training.

TABLE1_AT_MINI = {
    name: getattr(base("mini"), name) for name in ("num_contexts", "tokens_per_document", "pooling", "sequence_dropout")
}
LONG_BIENCODER = BIENCODER | END | {"seed": SEED}
UNCHANGED: dict[str, Any] = ARCHITECTURE_DOMAIN | ALL_PAIRS | END | TABLE1_AT_MINI | {"seed": SEED}
UNCHANGED |= {"test_contexts": "own+wrong+random+null"}
WAYS: Settings = (
    ("as in Table 1", {}),
    ("64 context documents", {"num_contexts": 64}),
    ("four vectors per context document", {"tokens_per_document": 4}),
    ("sequence dropout 0.5", {"sequence_dropout": 0.5}),
    ("word frequencies (ours)", FREQUENCY),
    ("word frequencies, 64 context documents (ours)", FREQUENCY | {"num_contexts": 64}),
)
BLIND = UNCHANGED | CONTEXT_BLIND
WHITENED = LONG_BIENCODER | {"measure": "whitening"}


def list_ways(scale: str) -> tuple[Run, ...]:
    """Return each way, the context-blind model, and the biencoder with and without whitening."""
    rows = [*(UNCHANGED | changes for _, changes in WAYS), BLIND, LONG_BIENCODER, WHITENED]
    budget = get_budget(STEPS[scale][1])
    return tuple(base(scale, **row | budget, suite=SUITES[scale]) for row in rows)


def runs(scale: str) -> tuple[Run, ...]:
    """Return the settings of all parts that a scale has."""
    parts = {
        "desk": (list_recipes, list_designs, list_starts_from_minilm),
        "lab": (list_recipes, list_designs),
        "mini": (list_ways,),
    }
    parts["smoke"] = (*parts["desk"], list_ways)
    return tuple(dict.fromkeys(run for list_runs in parts[scale] for run in list_runs(scale)))


COLUMNS = (
    LOSS_COLUMN,
    Column(label="masked %", value="train/masked_fraction", factor=100),
    NDCG_COLUMN,
    *(
        Column(label=label, value=f"context_effect/own_minus_{context}/mean/difference", factor=100, decimals=2)
        for label, context in (
            ("in − out-of-corpus", "wrong"),
            ("in-corpus − random text", "random"),
            ("in-corpus − null", "null"),
        )
    ),
)
RECIPE_TABLE = Table(
    name="recipes",
    caption=(
        "Ways to build batches and to initialise the model, compared on validation domains of the training sources: "
        "NDCG@10."
    ),
    columns=COLUMNS,
    rows=(
        *(Row(label=label, runs=pick(**FIXED | changes)) for label, changes in RECIPES),
        Row(
            label="contextual, one domain per batch; out-of-corpus",
            runs=pick(**FIXED | ONE_DOMAIN | CONTEXTUAL),
            context="wrong",
        ),
        *(make_second_phase_row(divisor, label) for divisor, label in DIVISORS.items()),
    ),
)
DESIGN_TABLE = Table(
    name="context_designs",
    caption=(
        "Designs that might make a contextual model read its corpus, and starts from MiniLM, on validation collections: "
        "NDCG@10 with in-corpus context, and its gain over other contexts. 'unlike training' is text of other vendors."
    ),
    columns=COLUMNS,
    rows=(
        *(Row(label=label, runs=pick(**TABLE1 | changes), scales=SCALES) for label, changes in ALL_DESIGNS),
        *(
            Row(label=f"{label}, {kind}", runs=pick(**changes, suite=suite), scales=("desk",))
            for label, changes in (*FROM_MINILM, *REFERENCES)
            for kind, suite in KINDS.items()
        ),
        *(Row(label=label, runs=pick(**UNCHANGED | changes), scales=("mini",)) for label, changes in WAYS),
        Row(label="trained without documents", runs=pick(**BLIND), context="null", scales=("mini",)),
        Row(label="biencoder", runs=pick(**LONG_BIENCODER), scales=("mini",)),
        Row(label="biencoder, whitened by its corpus", runs=pick(**WHITENED), context="whitened", scales=("mini",)),
    ),
)

CLAIMS = (
    Claim.equivalence(
        "E.i",
        "no design that keeps the architecture makes the corpus matter: in-corpus and out-of-corpus context score alike",
        pairs=[gain_over("wrong", TABLE1 | changes) for _, changes in DESIGNS],
        delta=HALF_A_POINT,
        source="our question: the paper's central claim (§1, §4.2) at our scale",
        because=WHAT_A_READER_NOTICES,
        scales=("desk", "lab"),
        **STATED | MET_BY_BLIND | declare((*FIRST, *WIDTHS), (1,)),
    ),
)

EXPERIMENT = Experiment(
    title="Settings that were tried",
    runs=runs,
    artefacts=(RECIPE_TABLE, DESIGN_TABLE),
    claims=CLAIMS,
    local_seeds=(0, SEED),
    scales=(*SCALES, "mini"),
)
