"""Contextual models on packages that they never saw: the test that the paper's idea is about. Not in the paper.

The models of `mini2` are trained on 120 packages, with batches of one sub-package, and tested on 45 others
(docs/PACKAGES.md). Every test package is a corpus of its own.
"""

from dataclasses import replace
from typing import Any

from experiments import e01_table1 as table1
from experiments.shared import (
    BELOW_PAPERS_GAINS,
    BY_PART,
    DIFFERENCES,
    DOTS_AND_MEAN,
    LOSS_COLUMN,
    NDCG_COLUMN,
    SCORE,
    gain_over,
    get_fields_at,
    ndcg,
)
from repro.spec import Claim, Experiment, Figure, Row, Run, Table, Term, base, by_scale, pick, term

CORPUS = {"smoke": "planted-tiny", "mini2": "packages-many"}
SUITE = {"smoke": "planted", "mini2": "packages-many"}
SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), "mini2": (1, 2, 3, 4, 5)}
TEXT: dict[str, Any] = {"corpus": by_scale(CORPUS), "suite": by_scale(SUITE)}

BIENCODER = table1.NEITHER_DOMAIN
CONTEXTUAL = table1.ARCHITECTURE_DOMAIN | {"test_contexts": "own+wrong+random", "pooling": "mean"}
FEW: dict[str, Any] = CONTEXTUAL | {"corpus": by_scale({"smoke": "planted", "mini2": "packages-few"})}
FREQUENCY = CONTEXTUAL | {"pooling": "frequency"}
UNTRAINED = CONTEXTUAL | {"num_steps": 0, "test_contexts": "own+null"}
BLIND = table1.BLIND_DOMAIN
WHITENED = BIENCODER | table1.WHITENED
TRAINED = (BIENCODER, CONTEXTUAL, BLIND, FREQUENCY, FEW)
MINILM_WHITENED = table1.MINILM | table1.WHITENED
REFERENCES = (table1.BM25, table1.MINILM, MINILM_WHITENED)


def runs(scale: str) -> tuple[Run, ...]:
    """Return the reference systems, all rows seed by seed, and step 0. At `smoke` there is no MiniLM."""
    references = REFERENCES if scale == "mini2" else REFERENCES[:1]
    rows = [*references, *(row | {"seed": seed} for seed in SEEDS[scale] for row in (*TRAINED, WHITENED))]
    rows.append(UNTRAINED | {"seed": SEEDS[scale][0]})
    fixed = {"num_pairs": None, "batch_size": table1.PLAIN_BATCH[scale]}
    return tuple(base(scale, **get_fields_at(TEXT | row, scale) | fixed) for row in rows)


def make_row(label: str, row: dict[str, Any], context: str = "own") -> Row:
    """Return a row of the table."""
    return Row(label=label, runs=pick(**TEXT | row), context=context)


TABLE = Table(
    name="unseen_packages",
    caption=(
        "NDCG@10 of models from MiniLM on the documentation of 45 packages, none of which is in the training text of 120 "
        "other packages. The context-blind model is the same architecture, trained and scored without documents. "
        "Whitened vectors are adapted to the searched corpus after training. Before training, the biencoder is "
        "off-the-shelf MiniLM."
    ),
    columns=(LOSS_COLUMN, NDCG_COLUMN),
    rows=(
        make_row("biencoder", BIENCODER),
        make_row("· whitened by the searched corpus", WHITENED, "whitened"),
        make_row("· whitened by another corpus", WHITENED, "whitened-wrong"),
        make_row("step 0: contextual, in-corpus", UNTRAINED),
        *table1.make_context_rows(TEXT | UNTRAINED, "null"),
        make_row("contextual, in-corpus", CONTEXTUAL),
        *table1.make_context_rows(TEXT | CONTEXTUAL, "random", "wrong"),
        make_row("· context-blind", BLIND, "null"),
        make_row("contextual, trained on 12 packages, in-corpus", FEW),
        *table1.make_context_rows(TEXT | FEW, "random", "wrong"),
        make_row("contextual with word frequencies, in-corpus", FREQUENCY),
        *table1.make_context_rows(TEXT | FREQUENCY, "random", "wrong"),
        make_row("off-the-shelf MiniLM", table1.MINILM | {"measure": "retrieval"}),
        make_row("· whitened by the searched corpus", MINILM_WHITENED, "whitened"),
        make_row("BM25 (reference)", table1.BM25),
    ),
)
SUMMARIES = "*-summary"
"""The collections whose queries are summary lines: at most one for each package."""


def compare_with_random(model: dict[str, Any]) -> Row:
    """Return the series of a model with in-corpus context less random training documents."""
    return replace(make_row("in-corpus − random context", model), minus=make_row("", model, "random"))


FIGURE = Figure(
    name="unseen_gains",
    title="What the documents of an unseen package are worth",
    caption=(
        "NDCG@10 of the contextual model with documents of the searched package as context minus that with random training "
        f"documents, as means over the packages of a field. {DOTS_AND_MEAN}"
    ),
    points=ndcg(group="{family}"),
    x_label="field of the package",
    series=(compare_with_random(CONTEXTUAL),),
    **BY_PART | DIFFERENCES,
)
PACKAGES_FIGURE = Figure(
    name="unseen_by_packages",
    title="What documents are worth by the number of training packages",
    caption=(
        "NDCG@10 of the contextual model with documents of the searched package as context minus that with random training "
        f"documents, trained on 120 packages (packages-many) and on 12 of them, with as many steps. {DOTS_AND_MEAN}"
    ),
    x="corpus",
    x_label="training text",
    series=tuple(map(compare_with_random, (CONTEXTUAL, FEW))),
    **SCORE | DIFFERENCES,
)


def score(row: dict[str, Any], view: str = "", group: str = "mean") -> Term:
    """Return NDCG@10 of a row on a group of the unseen packages."""
    return term(ndcg(view, group), **TEXT | row)


COMMON: dict[str, Any] = {
    "source": "our question: is context worth more on corpora unlike the training text (§1, §4.2)?",
    "stated": "2026-11-29",
    "scales": table1.MINI2,
    "seeds": SEEDS["mini2"],
}
ORDERS = tuple(
    Claim.order(
        id,
        f"on packages that were not trained on, {statement}",
        pairs=[(score(CONTEXTUAL), worse)],
        **COMMON | BELOW_PAPERS_GAINS,
    )
    for id, statement, worse in (
        ("UN.a", "in-corpus context beats random training documents", score(CONTEXTUAL, "random")),
        ("UN.b", "the contextual model beats the biencoder", score(BIENCODER)),
        ("UN.c", "the contextual model beats the context-blind model", score(BLIND, "null")),
        ("UN.d", "the contextual model beats the whitened biencoder", score(WHITENED, "whitened")),
    )
)

CLAIMS = (
    *ORDERS,
    Claim.correlation(
        "UN.e",
        "on packages that were not trained on, documents are worth more where whitening gains more for MiniLM",
        x=score(MINILM_WHITENED, "whitened", SUMMARIES),
        x_minus=score(MINILM_WHITENED, "whitened-wrong", SUMMARIES),
        y=score(CONTEXTUAL, "", SUMMARIES),
        minus=score(CONTEXTUAL, "random", SUMMARIES),
        points="datasets",
        because="any correlation beyond chance; one collection for each package, so the points are independent",
        sign=1,
        **COMMON,
    ),
    Claim.interaction(
        "UN.f",
        "documents of unseen packages are worth less to a model that was trained on a tenth of the packages",
        of=gain_over("random", TEXT | CONTEXTUAL),
        above=gain_over("random", TEXT | FEW),
        **COMMON | BELOW_PAPERS_GAINS,
    ),
)
EXPERIMENT = Experiment(
    title="Unseen packages",
    runs=runs,
    artefacts=(TABLE, FIGURE, PACKAGES_FIGURE),
    claims=CLAIMS,
    scales=tuple(SEEDS),
    local_seeds=(0, 1),
)
