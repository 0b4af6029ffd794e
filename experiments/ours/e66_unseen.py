"""Contextual models on packages that they never saw: the test that the paper's idea is about. Not in the paper.

The models of `mini2` are trained on 120 packages, with batches of one sub-package, and tested on 45 others
(docs/PACKAGES.md). Every test package is a corpus of its own.
"""

from typing import Any

from experiments import e01_table1 as table1
from experiments.fresh import NDCG_OF_BLIND
from experiments.shared import BELOW_PAPERS_GAINS, LOSS_COLUMN, NDCG, NDCG_COLUMN, under
from repro.spec import Claim, Experiment, Row, Run, Table, Term, base, by_scale, pick, term

CORPUS = {"smoke": "planted-tiny", "mini2": "packages-many"}
SUITE = {"smoke": "planted", "mini2": "packages-many"}
SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), "mini2": (1, 2, 3, 4, 5)}
TEXT: dict[str, Any] = {"corpus": by_scale(CORPUS), "suite": by_scale(SUITE)}

BIENCODER = table1.NEITHER_DOMAIN
CONTEXTUAL = table1.ARCHITECTURE_DOMAIN | {"test_contexts": "own+wrong+random", "pooling": "mean"}
FREQUENCY = CONTEXTUAL | {"pooling": "frequency"}
BLIND = table1.BLIND_DOMAIN
WHITENED = BIENCODER | table1.WHITENED
TRAINED = (BIENCODER, CONTEXTUAL, BLIND, FREQUENCY)
REFERENCES = (table1.BM25, table1.MINILM, table1.MINILM | table1.WHITENED)


def runs(scale: str) -> tuple[Run, ...]:
    """Return the reference systems, then all rows seed by seed. At `smoke` there is no MiniLM."""
    text = {"corpus": CORPUS[scale], "suite": SUITE[scale], "num_pairs": None}
    references = REFERENCES if scale == "mini2" else REFERENCES[:1]
    rows = [*references, *(row | {"seed": seed} for seed in SEEDS[scale] for row in (*TRAINED, WHITENED))]
    return tuple(base(scale, **row | text, batch_size=table1.PLAIN_BATCH[scale]) for row in rows)


def make_row(label: str, row: dict[str, Any], context: str = "own", scales: tuple[str, ...] = ()) -> Row:
    """Return a row of the table."""
    return Row(label=label, runs=pick(**row | TEXT), context=context, scales=scales)


MINI2 = table1.MINI2
TABLE = Table(
    name="unseen_packages",
    caption=(
        "NDCG@10 of models from MiniLM on the documentation of 45 packages, none of which is in the training text of 120 "
        "other packages. The context-blind model is the same architecture, trained and scored without documents. "
        "Whitened vectors are adapted to the searched corpus after training."
    ),
    columns=(LOSS_COLUMN, NDCG_COLUMN),
    rows=(
        make_row("biencoder", BIENCODER),
        make_row("· whitened by the searched corpus", WHITENED, "whitened"),
        make_row("contextual, in-corpus", CONTEXTUAL),
        *table1.make_context_rows(CONTEXTUAL | TEXT, "random", "wrong"),
        make_row("· context-blind", BLIND, "null"),
        make_row("contextual with word frequencies, in-corpus", FREQUENCY),
        *table1.make_context_rows(FREQUENCY | TEXT, "random", "wrong"),
        make_row("off-the-shelf MiniLM", table1.MINILM, scales=MINI2),
        make_row("· whitened by the searched corpus", table1.MINILM | table1.WHITENED, "whitened", MINI2),
        make_row("BM25 (reference)", table1.BM25),
    ),
)


def score(row: dict[str, Any], metric: str = NDCG) -> Term:
    """Return the mean NDCG@10 of a row on the unseen packages."""
    return term(metric, **row | TEXT)


CLAIMS = tuple(
    Claim.order(
        id,
        f"on packages that were not trained on, {statement}",
        pairs=[(score(CONTEXTUAL), worse)],
        source="our question: is context worth more on corpora unlike the training text (§1, §4.2)?",
        stated="2026-11-29",
        scales=MINI2,
        seeds=SEEDS["mini2"],
        **BELOW_PAPERS_GAINS,
    )
    for id, statement, worse in (
        ("UN.a", "in-corpus context beats random training documents", score(CONTEXTUAL, under("random"))),
        ("UN.b", "the contextual model beats the biencoder", score(BIENCODER)),
        ("UN.c", "the contextual model beats the context-blind model", score(BLIND, NDCG_OF_BLIND)),
        ("UN.d", "the contextual model beats the whitened biencoder", score(WHITENED, under("whitened"))),
    )
)

EXPERIMENT = Experiment(
    title="Unseen packages", runs=runs, artefacts=(TABLE,), claims=CLAIMS, scales=tuple(SEEDS), local_seeds=(0, 1)
)
