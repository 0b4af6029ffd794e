"""The contribution of documents to the contextual architecture: the same model trained without any. Not in the paper.

A context-blind model reads learned null vectors and soft prompts in front of every text. The gain from the searched
corpus is the score of the contextual model with in-corpus context less that of the context-blind model.
"""

from typing import Any

from experiments import fresh
from experiments.e01_table1 import (
    ARCHITECTURE,
    ARCHITECTURE_DOMAIN,
    BLIND,
    FAMILY_COLUMNS,
    NEITHER,
    NEITHER_DOMAIN,
    PLAIN_BATCH,
)
from experiments.shared import BELOW_PAPERS_GAINS, NDCG, under
from repro.spec import Claim, Column, Experiment, Row, Run, Table, base, pick, term

SCALES = ("smoke", "desk")
SEEDS = {"smoke": (0,), "desk": fresh.TABLE1}
CHANGES: dict[str, dict[str, Any]] = {"smoke": {"known_positives": "mask", "backbone": "bert"}, "desk": {}}
"""Smoke compares nothing. It uses settings of mini that no other smoke run has."""
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one domain per batch": (NEITHER_DOMAIN, ARCHITECTURE_DOMAIN),
    "one source per batch": (NEITHER, ARCHITECTURE),
}
"""The biencoder and the contextual model of Table 1 on each kind of batch."""
RANDOM = {"test_contexts": "own+random"}


def runs(scale: str) -> tuple[Run, ...]:
    """Return the first kind of batches first: biencoder, contextual, contextual with random text, context-blind."""
    settings = CHANGES[scale] | {"batch_size": PLAIN_BATCH[scale]}
    return tuple(
        base(scale, **row | settings, seed=seed)
        for biencoder, contextual in KINDS.values()
        for row in (biencoder, contextual, contextual | RANDOM, contextual | BLIND)
        for seed in SEEDS[scale]
    )


def rows() -> tuple[Row, ...]:
    """Return the rows of the table. The difference of in-corpus and random context uses the same trained weights."""
    table_rows: list[Row] = []
    for kind, (biencoder, contextual) in KINDS.items():
        all_contexts = contextual | {"test_contexts": base("desk").test_contexts}
        table_rows += [
            Row(label=f"{kind}: biencoder", runs=pick(**biencoder)),
            Row(label=f"{kind}: contextual, in-corpus", runs=pick(**all_contexts)),
            Row(label="· out-of-corpus context", runs=pick(**all_contexts), context="wrong"),
            Row(label="· null context", runs=pick(**all_contexts), context="null"),
            Row(label="· in-corpus, again", runs=pick(**contextual | RANDOM)),
            Row(label="· random training text", runs=pick(**contextual | RANDOM), context="random"),
            Row(label=f"{kind}: context-blind", runs=pick(**contextual | BLIND), context="null"),
        ]
    return tuple(table_rows)


TABLE = Table(
    name="context_blind",
    caption=(
        "NDCG@10 of the contextual architecture with context documents of the searched corpus, of another corpus and "
        "of the training text, and of a model trained without any document (context-blind), on the same batches."
    ),
    columns=(*FAMILY_COLUMNS, Column(label="NDCG@10", value=NDCG, factor=100)),
    rows=rows(),
)

WITH_RANDOM = ARCHITECTURE_DOMAIN | RANDOM
COMMON = BELOW_PAPERS_GAINS | {
    "source": "our question: what documents add to learned vectors in front of the text",
    "scales": ("desk",),
    "seeds": SEEDS["desk"],
    "descriptive": "stated after some of its seeds were trained",
}
CLAIMS = (
    Claim.order(
        "CB.a",
        "on batches of one domain, the contextual model with in-corpus context beats the context-blind model",
        pairs=[(term(NDCG, **WITH_RANDOM), term(fresh.NDCG_OF_BLIND, **ARCHITECTURE_DOMAIN | BLIND))],
        **COMMON,
    ),
    Claim.order(
        "CB.b",
        "on batches of one domain, in-corpus context beats random training text as context",
        pairs=[(term(NDCG, **WITH_RANDOM), term(under("random"), **WITH_RANDOM))],
        **COMMON,
    ),
)

EXPERIMENT = Experiment(
    number=47,
    title="Gain from documents as context",
    runs=runs,
    artefacts=(TABLE,),
    claims=CLAIMS,
    local_seeds=(0,),
    scales=SCALES,
)
