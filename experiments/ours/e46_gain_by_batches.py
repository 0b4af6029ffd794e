"""What the contextual architecture gains, by its training batches, its context documents and its details. Not in the paper.

A batch of one domain resembles a searched collection, so the architecture may learn to read it. A context-blind model reads
learned null vectors and soft prompts in front of every text, and never a document. The gain from the searched corpus is the
score with in-corpus context less that of the context-blind model. The ablations vary two settings that the paper does not:
sequence dropout (§5) and the number of soft prompts.
"""

from typing import Any

from experiments import e01_table1 as table1
from experiments import fresh
from experiments.ours.e25_context_emergence import CONTEXT_LABELS
from experiments.shared import (
    BELOW_PAPERS_GAINS,
    BELOW_SMALLEST_GAIN,
    HALF_A_POINT,
    LOSS_COLUMN,
    NDCG,
    NDCG_COLUMN,
    gain_over,
    ndcg,
)
from repro.spec import Claim, Column, Experiment, Row, Run, Table, base, by_scale, pick, term

KIND_SEEDS = {"smoke": table1.SEEDS, "desk": fresh.BY_BATCHES, "lab": fresh.BY_BATCHES_AT_LAB}
"""Seeds by kind of batch. They were trained for other rows, but not examined, when the claims were stated."""
BLIND_SEEDS = {"smoke": (0,), "desk": fresh.TABLE1}
"""Seeds with random context and of the context-blind model."""
ABLATION_SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), "desk": (8, 9, 10)}
"""Seeds of the ablations. None of those of desk was trained before the claims were stated."""
SMOKE_SETTINGS = {"known_positives": "mask", "backbone": "bert"}
"""Smoke compares nothing. Its context-blind models have settings of mini that no other smoke run has."""

AS_IN_TABLE1: dict[str, Any] = {
    name: getattr(base("desk"), name) for name in ("test_contexts", "sequence_dropout", "num_soft_prompts")
}
RANDOM = {"test_contexts": "own+random"}
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one source per batch": (table1.NEITHER, table1.ARCHITECTURE),
    "clusters, filter": (table1.BATCHES, table1.BOTH),
    "one domain per batch": (table1.NEITHER_DOMAIN, table1.ARCHITECTURE_DOMAIN),
}
"""The biencoder and the contextual model of Table 1 on each kind of batch."""
KINDS_WITH_BLIND = ("one domain per batch", "one source per batch")
CHANGES: dict[str, dict[str, Any]] = {
    "no sequence dropout": {"sequence_dropout": 0.0, "test_contexts": "own+wrong"},  # such a model has no null vector
    "sequence dropout 0.5": {"sequence_dropout": 0.5},
    "no soft prompts": {"num_soft_prompts": 0},
    "8 soft prompts": {"num_soft_prompts": 8},
}


def runs(scale: str) -> tuple[Run, ...]:
    """Return both models on each kind of batch, those with random context or none, and the ablations."""
    settings = [
        row | table1.get_sizes(row, scale) | {"seed": seed}
        for pair in KINDS.values()
        for row in pair
        for seed in KIND_SEEDS[scale]
    ]
    sizes = {"batch_size": table1.PLAIN_BATCH[scale]} | (SMOKE_SETTINGS if scale == "smoke" else {})
    settings += [
        row | sizes | {"seed": seed}
        for biencoder, contextual in map(KINDS.__getitem__, KINDS_WITH_BLIND)
        for row in (biencoder, contextual, contextual | RANDOM, contextual | table1.BLIND)
        for seed in BLIND_SEEDS.get(scale, ())
    ]
    changes = [{}, *CHANGES.values(), *([table1.BLIND] if scale == "desk" else [])]
    settings += [
        table1.ARCHITECTURE_DOMAIN | change | {"batch_size": table1.PLAIN_BATCH[scale], "seed": seed}
        for change in changes
        for seed in ABLATION_SEEDS.get(scale, ())
    ]
    return tuple(dict.fromkeys(base(scale, **setting) for setting in settings))


def list_rows() -> tuple[Row, ...]:
    """Return a row for each kind of batch, model and context."""
    rows: list[Row] = []
    for kind, (biencoder, contextual) in KINDS.items():
        seeds = {"seed": by_scale(KIND_SEEDS)}
        rows.append(Row(label=f"{kind}: biencoder", runs=pick(**biencoder | seeds)))
        rows += [
            Row(label=f"{kind}: {label}", runs=pick(**contextual | AS_IN_TABLE1 | seeds), context=context)
            for context, label in CONTEXT_LABELS.items()
        ]
    return tuple(rows)


def list_blind_rows() -> tuple[Row, ...]:
    """Return the rows of random and no documents. In-corpus and random context use the same trained weights."""
    seeds = {"seed": by_scale(BLIND_SEEDS)}
    return tuple(
        Row(label=f"{kind}: {label}", runs=pick(**KINDS[kind][1] | seeds | change), context=context)
        for kind in KINDS_WITH_BLIND
        for label, change, context in (
            ("in-corpus, again", RANDOM, "own"),
            ("random training text", RANDOM, "random"),
            ("context-blind", table1.BLIND, "null"),
        )
    )


TABLE = Table(
    name="context_blind",
    caption=(
        "NDCG@10 of the biencoder and of the contextual model by kind of batch: with in-corpus, out-of-corpus and null "
        "context, with random training text as context, and trained without any document (context-blind)."
    ),
    columns=(*table1.FAMILY_COLUMNS, NDCG_COLUMN),
    rows=(*list_rows(), *list_blind_rows()),
)

REFERENCE: dict[str, Any] = table1.ARCHITECTURE_DOMAIN | AS_IN_TABLE1 | {"seed": by_scale(ABLATION_SEEDS)}
ABLATIONS = Table(
    name="ablations",
    caption=(
        "NDCG@10 of the contextual model on batches of one domain with one detail changed at a time, with in-corpus, "
        "out-of-corpus and null context. Sequence dropout 1 is the context-blind model."
    ),
    columns=(
        LOSS_COLUMN,
        *(
            Column(label=label, value=ndcg(view), factor=100, decimals=2)
            for label, view in (("in-corpus", ""), ("out-of-corpus", "wrong"), ("null", "null"))
        ),
    ),
    rows=(
        Row(label="as in Table 1 (dropout 0.005, 2 prompts)", runs=pick(**REFERENCE)),
        *(Row(label=label, runs=pick(**REFERENCE | change)) for label, change in CHANGES.items()),
        Row(label="sequence dropout 1 (context-blind)", runs=pick(**REFERENCE | table1.BLIND)),
    ),
)

ON_DOMAIN = table1.ARCHITECTURE_DOMAIN | AS_IN_TABLE1
ON_DOMAIN_AGAIN = table1.ARCHITECTURE_DOMAIN | RANDOM
OF_BATCHES = BELOW_PAPERS_GAINS | {
    "source": "our question: the paper's central claim (§1, §4.2), where each batch is of one domain",
    "stated": "2026-11-24",
    "scales": ("desk", "lab"),
    **fresh.declare(fresh.TABLE1, fresh.BY_BATCHES_AT_LAB),
}
OVER_BLIND = fresh.blind(table1.ARCHITECTURE_DOMAIN)
OF_DOCUMENTS = BELOW_PAPERS_GAINS | {
    "source": "our question: what documents add to learned vectors in front of the text",
    "scales": ("desk",),
    "seeds": BLIND_SEEDS["desk"],
    "descriptive": "stated after some of its seeds were trained",
}
OF_ABLATIONS: dict[str, Any] = {"stated": "2026-11-25", "scales": ("desk",), "seeds": ABLATION_SEEDS["desk"]}


def claim_no_change(id: str, statement: str, changes: tuple[str, ...], source: str) -> Claim:
    """Claim that none of these changes matters to the score under in-corpus context."""
    pairs = [(term(NDCG, **REFERENCE | CHANGES[name]), term(NDCG, **REFERENCE)) for name in changes]
    options = OF_ABLATIONS | {"delta": HALF_A_POINT, "because": BELOW_SMALLEST_GAIN}
    return Claim.equivalence(id, statement, pairs=pairs, source=source, **options)


CLAIMS = (
    Claim.order(
        "D.a",
        "on batches of one domain, the paper's architecture beats a biencoder trained on the same batches",
        pairs=[(term(NDCG, **ON_DOMAIN), term(NDCG, **table1.NEITHER_DOMAIN))],
        **OF_BATCHES | OVER_BLIND,
    ),
    Claim.order(
        "D.b",
        "the paper's architecture scores higher if it is trained on batches of one domain than of one source",
        pairs=[(term(NDCG, **ON_DOMAIN), term(NDCG, **table1.ARCHITECTURE | AS_IN_TABLE1))],
        **OF_BATCHES | OVER_BLIND,
    ),
    Claim.order(
        "D.c",
        "trained on batches of one domain, the paper's architecture scores higher with in-corpus than with null context",
        pairs=[gain_over("null", ON_DOMAIN)],
        **OF_BATCHES | OVER_BLIND,
    ),
    Claim.order(
        "D.d",
        "trained on batches of one domain, the paper's architecture gains from in-corpus over out-of-corpus context",
        pairs=[gain_over("wrong", ON_DOMAIN)],
        **OF_BATCHES,
    ),
    Claim.order(
        "CB.a",
        "on batches of one domain, the contextual model with in-corpus context beats the context-blind model",
        pairs=[(term(NDCG, **ON_DOMAIN_AGAIN), term(ndcg("null"), **table1.BLIND_DOMAIN))],
        **OF_DOCUMENTS,
    ),
    Claim.order(
        "CB.b",
        "on batches of one domain, in-corpus context beats random training text as context",
        pairs=[gain_over("random", ON_DOMAIN_AGAIN)],
        **OF_DOCUMENTS,
    ),
    claim_no_change(
        "AB.a",
        "with sequence dropout 0 and 0.5, a model scores within half a point of 0.005 under in-corpus context",
        ("no sequence dropout", "sequence dropout 0.5"),
        "our question: §5 sets 0.005 and does not vary it",
    ),
    Claim.interaction(
        "AB.b",
        "a model trained with sequence dropout 0.5 loses less without context than one trained with 0.005",
        of=gain_over("null", REFERENCE),
        above=gain_over("null", REFERENCE | CHANGES["sequence dropout 0.5"]),
        source="our question: §4.2 says that dropout lets the model work without context, and compares no rates",
        **OF_ABLATIONS,
    ),
    claim_no_change(
        "AB.c",
        "with no and with eight soft prompts, a model scores within half a point of two",
        ("no soft prompts", "8 soft prompts"),
        "our question: the official code has soft prompts, the paper does not mention them",
    ),
)

EXPERIMENT = Experiment(
    title="Gain of the architecture by batches, documents and details",
    runs=runs,
    artefacts=(TABLE, ABLATIONS),
    claims=CLAIMS,
    scales=tuple(KIND_SEEDS),
)
