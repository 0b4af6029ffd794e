"""When does a model begin to read its corpus? In-corpus, out-of-corpus and null context by training steps.

Uses real text and is not in the paper. It compares three models with the same budget: the biencoder, the paper's
architecture, and that architecture with our extension. The extension gives the second stage what its attention would
have to discover: it weights each word in the mean over tokens by the share of context documents that contain it
(`FrequencyWeights` in `repro/model/modeling_cde.py`).
"""

from typing import Any

from experiments import e01_table1 as table1
from experiments import fresh
from experiments.shared import (
    BELOW_PAPERS_GAINS,
    NDCG,
    NDCG_COLUMN,
    WHAT_A_READER_NOTICES,
    gain_over,
    get_budget,
    get_size_at,
)
from repro.spec import Claim, Experiment, Row, Run, Table, base, pick, term

STEPS: dict[str, tuple[int | None, ...]] = {"smoke": (6, 12), "desk": (240, 960), "lab": (240, 960, 2400)}
STEPS |= dict.fromkeys(("small", "large"), (None,))
"""Training steps. None: the scale's number of epochs."""
LONGER = {"lab": (15_000,)}
"""Further steps, for the biencoder and the paper's architecture only."""
PAPERS, OURS = table1.BOTH | {"pooling": "mean"}, table1.BOTH | {"pooling": "frequency"}


def list_steps(scale: str) -> tuple[int | None, ...]:
    """Return all numbers of steps of a scale, including the longer ones of only two models."""
    return (*STEPS[scale], *LONGER.get(scale, ()))


def runs(scale: str) -> tuple[Run, ...]:
    """Return Table 1's contextual batches with three models and growing numbers of steps."""
    sizes: dict[str, Any] = table1.get_contextual_sizes(scale)
    all_runs = []
    for num_steps in list_steps(scale):
        budget = get_budget(num_steps) if num_steps else {}
        seeds = table1.seeds_at(scale)
        is_start, is_end = num_steps == STEPS[scale][0], num_steps == STEPS[scale][-1]
        # The claims were restated with more seeds at the first and last number of steps.
        extra_lab_seeds = fresh.MORE_EMERGENCE if scale == "lab" else ()
        extra_seeds_of_ours = fresh.FREQUENCY if scale == "desk" else extra_lab_seeds
        rows = [
            (table1.BATCHES, seeds + extra_lab_seeds if is_end else seeds),
            (PAPERS, seeds + extra_lab_seeds if is_start or is_end else seeds),
        ]
        if num_steps in STEPS[scale]:
            rows.append((OURS, seeds + extra_seeds_of_ours if is_end else seeds))
        all_runs += [base(scale, **row, **sizes, **budget, seed=seed) for row, seeds in rows for seed in seeds]
    return tuple(all_runs)


SERIES = {"with word frequencies": OURS, "paper's architecture": PAPERS}
CONTEXT_LABELS = {"own": "in-corpus", "wrong": "out-of-corpus", "null": "null context"}


START, END = ({"num_steps": get_size_at(STEPS, index)} for index in (0, -1))
LONG = {"num_steps": get_size_at(LONGER, -1)}


def list_rows() -> tuple[Row, ...]:
    """Return the table's rows: each model and context at each number of steps of any scale."""
    rows: list[Row] = []
    for steps in sorted({steps for scale in STEPS for steps in list_steps(scale) if steps}):
        rows.append(Row(label=f"biencoder, {steps} steps", runs=pick(**table1.BATCHES, num_steps=steps)))
        for label, row in SERIES.items():
            rows.append(Row(label=f"{label}, {steps} steps", runs=pick(**row, num_steps=steps)))
            rows += table1.make_context_rows(row | {"num_steps": steps}, "wrong", "null")
    return tuple(rows)


TABLE = Table(
    name="context_emergence",
    caption=(
        "NDCG@10 by family with in-corpus, out-of-corpus and null context, by training steps, for models of equal budget: a "
        "biencoder, the paper's architecture, and the same with word frequencies as an input (ours)."
    ),
    columns=(*table1.FAMILY_COLUMNS, NDCG_COLUMN),
    rows=list_rows(),
)

OUR_QUESTION = "our question: the paper's central claim (§1, §4.2) at our scale, with and without an extension of ours"
COMMON: dict[str, Any] = {"source": OUR_QUESTION, "stated": "2026-11-22", "scales": table1.OWN_SCALES}
# A separate family of claims: stated when records of E existed, so it must not change the thresholds of E.
MORE_AT_LAB, MORE_AT_BOTH = (
    fresh.declare(desk, fresh.EMERGENCE_AT_LAB) for desk in (fresh.FIRST, (*fresh.FIRST, *fresh.FREQUENCY))
)
COMMON_LONG = COMMON | {"stated": "2026-11-23", "scales": tuple(LONGER)}
OTHER_FAMILIES = ("packages", "collections", "cloud", "medical")

CLAIMS = (
    Claim.order(
        "E.a",
        "given word frequencies, a model gains at least half a point from in-corpus over out-of-corpus context",
        pairs=[gain_over("wrong", OURS | END)],
        margin=0.005,
        because=WHAT_A_READER_NOTICES,
        **COMMON | MORE_AT_BOTH,
    ),
    Claim.order(
        "E.b",
        "given word frequencies, a model scores higher with in-corpus than with null context",
        pairs=[gain_over("null", OURS | END)],
        **COMMON | MORE_AT_BOTH,
    ),
    Claim.order(
        "E.c",
        "given word frequencies, a model beats a biencoder and the paper's architecture at the same budget",
        pairs=[(term(NDCG, **OURS | END), term(NDCG, **other | END)) for other in (table1.BATCHES, PAPERS)],
        **COMMON | MORE_AT_LAB,
    ),
    Claim.order(
        "E.d",
        "given word frequencies, a model gains from in-corpus over out-of-corpus context on every family but services",
        pairs=[gain_over("wrong", OURS | END, family) for family in OTHER_FAMILIES],
        **COMMON | MORE_AT_BOTH,
    ),
    Claim.order(
        "E.e",
        "on real text, the paper's architecture scores higher with in-corpus than with out-of-corpus context",
        pairs=[gain_over("wrong", PAPERS | END)],
        **BELOW_PAPERS_GAINS | COMMON | MORE_AT_LAB,
    ),
    Claim.interaction(
        "E.f",
        "the gain of the paper's architecture from in-corpus over out-of-corpus context grows with training",
        of=gain_over("wrong", PAPERS | END),
        above=gain_over("wrong", PAPERS | START),
        **BELOW_PAPERS_GAINS | COMMON | MORE_AT_LAB,
    ),
    Claim.order(
        "E.g",
        "the paper's architecture scores higher with in-corpus than with null context",
        pairs=[gain_over("null", PAPERS | END)],
        **BELOW_PAPERS_GAINS | COMMON | MORE_AT_LAB | {"scales": ("lab",)} | fresh.blind(PAPERS | END),
    ),
    Claim.order(
        "E.h",
        "the paper's architecture beats a biencoder at the same budget",
        pairs=[(term(NDCG, **PAPERS | END), term(NDCG, **table1.BATCHES | END))],
        **BELOW_PAPERS_GAINS | COMMON | MORE_AT_LAB | {"scales": ("lab",)} | fresh.blind(PAPERS | END),
    ),
    Claim.order(
        "EL.a",
        "after six times the steps, the paper's architecture gains half a point from in-corpus over out-of-corpus context",
        pairs=[gain_over("wrong", PAPERS | LONG)],
        margin=0.005,
        because=WHAT_A_READER_NOTICES,
        **COMMON_LONG | fresh.FIRST_SEEDS,
    ),
    Claim.order(
        "EL.b",
        "after six times the steps, the paper's architecture beats a biencoder at the same budget",
        pairs=[(term(NDCG, **PAPERS | LONG), term(NDCG, **table1.BATCHES | LONG))],
        **BELOW_PAPERS_GAINS | COMMON_LONG | fresh.FIRST_SEEDS | fresh.blind(PAPERS | LONG),
    ),
    Claim.interaction(
        "EL.c",
        "after six times the steps, the paper's architecture gains more from in-corpus over out-of-corpus context",
        of=gain_over("wrong", PAPERS | LONG),
        above=gain_over("wrong", PAPERS | END),
        **BELOW_PAPERS_GAINS | COMMON_LONG | fresh.FIRST_SEEDS,
    ),
)

EXPERIMENT = Experiment(title="Use of context by number of steps", runs=runs, artefacts=(TABLE,), claims=CLAIMS)
