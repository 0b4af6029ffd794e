"""What the context is worth by the length of training, from a pretrained start. Not in the paper.

After the 240 steps of `mini`, the contextual model gains nothing from the documents that it reads. Here the same models
are trained for 8 and 16 times as many steps, on all pairs of the text, with batches of one domain.
"""

from dataclasses import replace
from typing import Any

from experiments import e01_table1 as table1
from experiments.fresh import blind
from experiments.shared import (
    BELOW_PAPERS_GAINS,
    BY_PART,
    DIFFERENCES,
    DOTS_AND_MEAN,
    HALF_A_POINT,
    LOSS_COLUMN,
    NDCG,
    SCORE,
    WHAT_A_READER_NOTICES,
    gain_over,
    get_budget,
    get_size_at,
    ndcg,
)
from repro.spec import Claim, Column, Experiment, Figure, Row, Run, Table, Term, base, pick, term

STEPS: dict[str, tuple[int, ...]] = {"smoke": (6, 12, 24), "mini": (240, 1920, 3840), "mini2": (240, 1920, 0)}
SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), "mini": (1, 2, 3), "mini2": (1,)}
"""No seed of mini was trained on all pairs before the claims were stated. That of mini2 is descriptive, with step 0."""
PACKAGES_SEEDS = (3, 4, 5)
"""Seeds of the claims on software packages, which were stated after seeds 1 and 2. Seeds 4 and 5 have no short runs, and
only these three have runs of 3840 steps."""
FREQUENCY_SEEDS = (1, 2, 3, 4, 5)
"""Seeds of the model with word frequencies, all with 1920 steps."""
ALL_PAIRS = {"num_pairs": None}

BIENCODER = table1.NEITHER_DOMAIN | ALL_PAIRS
CONTEXTUAL = table1.ARCHITECTURE_DOMAIN | ALL_PAIRS | {"test_contexts": "own+random", "pooling": "mean"}
BLIND = table1.BLIND_DOMAIN | ALL_PAIRS
FREQUENCY = CONTEXTUAL | {"pooling": "frequency"}
"""The best way to use the corpus on validation collections (experiment 55): tokens are weighted by how often they occur."""
ROWS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("biencoder", BIENCODER, "own"),
    ("in-corpus context", CONTEXTUAL, "own"),
    ("random training text", CONTEXTUAL, "random"),
    ("context-blind", BLIND, "null"),
)
"""Label, model and context of each line."""
FREQUENCY_ROWS = (
    ("word frequencies (ours)", FREQUENCY, "own"),
    ("word frequencies (ours), of random training text", FREQUENCY, "random"),
)


def runs(scale: str) -> tuple[Run, ...]:
    """Return all models of a seed with one number of steps, then the next seed, then more steps."""
    short, long, longest = STEPS[scale]
    later_seeds = PACKAGES_SEEDS if scale == "mini" else SEEDS[scale]
    budgets = [(num_steps, seed) for num_steps in (short, long) for seed in SEEDS[scale]]
    budgets += [(long, seed) for seed in later_seeds if seed not in SEEDS[scale]]
    budgets += [(longest, seed) for seed in later_seeds]
    models = [(model, *budget) for budget in budgets for model in (BIENCODER, CONTEXTUAL, BLIND)]
    models += [(FREQUENCY, long, seed) for seed in (FREQUENCY_SEEDS if scale == "mini" else SEEDS[scale])]
    return tuple(
        base(scale, **model | get_budget(num_steps), batch_size=table1.PLAIN_BATCH[scale], seed=seed)
        for model, num_steps, seed in models
    )


START, END, LATER = ({"num_steps": get_size_at(STEPS, index)} for index in (0, 1, 2))


def list_differences(budget: dict[str, Any]) -> tuple[Row, ...]:
    """Return the contextual model less each of its three comparisons, after a number of steps or after any."""
    own, *others = (
        Row(label=label, runs=pick(**model | budget), context=context)
        for label, model, context in (ROWS[1], ROWS[0], ROWS[3], ROWS[2])
    )
    return tuple(replace(own, label=f"{own.label} − {other.label}", minus=other) for other in others)


FIGURE = Figure(
    name="context_curve",
    title="What context is worth by training steps, from MiniLM",
    caption=(
        "NDCG@10 of the contextual model with in-corpus context, minus that of the biencoder, of the same architecture "
        "trained without documents, and of the same model with random training documents as context, by training "
        f"steps. All start from MiniLM and see batches of one domain. {DOTS_AND_MEAN}"
    ),
    x="num_steps",
    x_label="training steps",
    series=list_differences({}),
    **SCORE | DIFFERENCES,
)
FAMILY_FIGURE = Figure(
    name="context_curve_families",
    title="What context is worth by family, after eight times the steps",
    caption=(
        "The differences of the first picture by family of test collections, at the second number of training steps. "
        f"The test collections of packages are whole packages that are not in the training text. {DOTS_AND_MEAN}"
    ),
    points=ndcg(group="{family}"),
    x_label="family of collections",
    series=list_differences(END),
    **BY_PART | DIFFERENCES,
)
TABLE = Table(
    name="context_curve_table",
    caption="NDCG@10 by training steps on all pairs, from MiniLM, with batches of one domain.",
    columns=(LOSS_COLUMN, *table1.FAMILY_COLUMNS, Column(label="NDCG@10", value=NDCG, factor=100, decimals=2)),
    rows=tuple(
        Row(label=f"{label}, {steps} steps", runs=pick(**model, num_steps=steps), context=context)
        for steps in sorted({steps for all_steps in STEPS.values() for steps in all_steps})
        for label, model, context in (*ROWS, *FREQUENCY_ROWS)
    ),
)


def compare_with_blind(budget: dict[str, Any]) -> tuple[Term, Term]:
    """Return the contextual model and the context-blind model."""
    return term(NDCG, **CONTEXTUAL | budget), term(ndcg("null"), **BLIND | budget)


COMMON = BELOW_PAPERS_GAINS | {
    "source": "our question: whether the use of context grows with training (§4.2)",
    "stated": "2026-11-26",
    "scales": ("mini",),
    "seeds": SEEDS["mini"],
}
ON_PACKAGES = COMMON | {
    "margin": HALF_A_POINT,
    "delta": None,
    "because": WHAT_A_READER_NOTICES,
    "seeds": PACKAGES_SEEDS,
}
WITH_FREQUENCY = COMMON | {"seeds": FREQUENCY_SEEDS, "stated": "2026-11-27"}
CLAIMS = (
    Claim.order(
        "CC.a",
        "from a pretrained start, after eight times the steps, in-corpus context beats random training documents",
        pairs=[gain_over("random", CONTEXTUAL | END)],
        **COMMON,
    ),
    Claim.order(
        "CC.b",
        "from a pretrained start, after eight times the steps, the contextual model beats the context-blind model",
        pairs=[compare_with_blind(END)],
        **COMMON,
    ),
    Claim.interaction(
        "CC.c",
        "from a pretrained start, the gain from in-corpus context over random training documents grows with training",
        of=gain_over("random", CONTEXTUAL | END),
        above=gain_over("random", CONTEXTUAL | START),
        **COMMON,
    ),
    Claim.interaction(
        "CC.d",
        "from a pretrained start, the gain over the context-blind model grows with training",
        of=compare_with_blind(END),
        above=compare_with_blind(START),
        **COMMON,
    ),
    Claim.order(
        "CC.e",
        "from a pretrained start, after eight times the steps, the contextual model beats the biencoder",
        pairs=[(term(NDCG, **CONTEXTUAL | END), term(NDCG, **BIENCODER | END))],
        **COMMON | blind(CONTEXTUAL | END),
    ),
    Claim.order(
        "CC.f",
        "on software packages, after eight times the steps, in-corpus context gains half a point over random documents",
        pairs=[gain_over("random", CONTEXTUAL | END, "packages")],
        **ON_PACKAGES,
    ),
    Claim.order(
        "CC.g",
        "on software packages, after eight times the steps, the contextual model gains half a point over the biencoder",
        pairs=[(term(ndcg(group="packages"), **CONTEXTUAL | END), term(ndcg(group="packages"), **BIENCODER | END))],
        **ON_PACKAGES,
        blind=term(ndcg("null", "packages"), **BLIND | END),
    ),
    Claim.interaction(
        "CC.h",
        "on software packages, the gain from in-corpus context over random documents grows from 8 to 16 times the steps",
        of=gain_over("random", CONTEXTUAL | LATER, "packages"),
        above=gain_over("random", CONTEXTUAL | END, "packages"),
        **ON_PACKAGES | BELOW_PAPERS_GAINS | {"margin": 0.0, "stated": "2026-11-27"},
    ),
    Claim.order(
        "CC.i",
        "with word frequencies in its pooling, the contextual model gains over the same model without them",
        pairs=[(term(NDCG, **FREQUENCY | END), term(NDCG, **CONTEXTUAL | END))],
        **WITH_FREQUENCY,
    ),
    Claim.order(
        "CC.j",
        "with word frequencies, in-corpus context gains half a point over random training documents",
        pairs=[gain_over("random", FREQUENCY | END)],
        **WITH_FREQUENCY | {"margin": HALF_A_POINT, "delta": None, "because": WHAT_A_READER_NOTICES},
    ),
    Claim.order(
        "CC.k",
        "with word frequencies, the contextual model beats the biencoder",
        pairs=[(term(NDCG, **FREQUENCY | END), term(NDCG, **BIENCODER | END))],
        **WITH_FREQUENCY | blind(CONTEXTUAL | END),
    ),
)

EXPERIMENT = Experiment(
    title="Use of context by length of training, from MiniLM",
    runs=runs,
    artefacts=(FIGURE, FAMILY_FIGURE, TABLE),
    claims=CLAIMS,
    scales=tuple(SEEDS),
)
