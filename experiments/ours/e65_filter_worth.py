"""What the false-negative filter is worth, by the encoder behind it and by how common false negatives are.

Biencoders on clusters of 256 within a domain, without a filter, and with one by word vectors, by MiniLM, by a biencoder
that was trained on the same text (the paper's condition), and at random: as many negatives per query as word vectors mask.
In the corpus of views each text occurs many times, so false negatives are common. The filter is trained without views.
"""

from dataclasses import replace
from typing import Any

from experiments import e01_table1 as table1
from experiments.shared import (
    BELOW_PAPERS_GAINS,
    DIFFERENCES,
    DOTS_AND_MEAN,
    LOSS_COLUMN,
    NDCG,
    NDCG_COLUMN,
    SCORE,
    get_fields_at,
)
from repro.spec import Claim, Column, Experiment, Figure, Row, Run, Table, Term, base, by_scale, pick, run_id, term

SCALE = "mini2"
SEEDS: dict[str, tuple[int, ...]] = {"smoke": (0,), SCALE: (9, 10, 11)}
LATER_SEED = 12
"""Of the claim that was stated once seed 9 had been trained."""
CORPORA = {
    "text": by_scale({"smoke": "planted-tiny", SCALE: base(SCALE).corpus}),
    "views": by_scale({"smoke": "planted-tiny", SCALE: "desk-views"}),
}


def make_filter_run(scale: str) -> Run:
    """Return the run whose model is the trained filter: a biencoder on batches of one domain, with a seed of its own."""
    return base(scale, **table1.NEITHER_DOMAIN, batch_size=table1.PLAIN_BATCH[scale], seed=100)


FILTERS: dict[str, dict[str, Any]] = {
    "no filter": {"filter": "none", "filter_model": None},
    "word vectors": {"filter": "surrogate", "filter_model": None},
    "a biencoder trained on the same text": {
        "filter": "surrogate",
        "filter_model": by_scale({scale: run_id(make_filter_run(scale)) for scale in SEEDS}),
    },
    "MiniLM": {"filter": "surrogate", "filter_model": "minilm"},
    "random": {"filter": "random", "filter_model": None},
}
NONE, WORDS, TRAINED, MINILM, RANDOM = FILTERS
ROWS = (*(("text", name) for name in FILTERS), *(("views", name) for name in (NONE, WORDS, TRAINED)))
LATER_ROWS = (("views", NONE), ("views", TRAINED))


def select(corpus: str, name: str) -> dict[str, Any]:
    """Return the fields of the runs on a corpus with a filter."""
    return table1.BATCHES | FILTERS[name] | {"corpus": CORPORA[corpus]}


def select_batches(corpus: str) -> dict[str, Any]:
    """Return the fields of the run that looks at the batches of a corpus and trains nothing."""
    return select(corpus, WORDS) | {"architecture": "none", "measure": "batches"}


def runs(scale: str) -> tuple[Run, ...]:
    """Return the trained filter, its batches, then all rows seed by seed. At `smoke` there is no MiniLM."""
    rows = [row for row in ROWS if scale != "smoke" or row[1] != MINILM]
    selected = [select_batches(corpus) for corpus in CORPORA]
    selected += [select(*row) | {"seed": seed} for seed in SEEDS[scale] for row in rows]
    selected += [select(*row) | {"seed": LATER_SEED} for row in LATER_ROWS if scale == SCALE]
    settings = [get_fields_at(fields, scale) for fields in selected]
    made = (base(scale, **fields | table1.get_sizes(fields, scale)) for fields in settings)
    return tuple(dict.fromkeys((make_filter_run(scale), *made)))


def make_row(corpus: str, name: str, label: str = "") -> Row:
    """Return the row of a corpus with a filter."""
    scales = (SCALE,) if name == MINILM else ()
    return Row(label=label or name, runs=pick(**select(corpus, name)), scales=scales)


TABLE = Table(
    name="filter_worth",
    caption=(
        "NDCG@10 of a biencoder from MiniLM on clusters, by the encoder of the false-negative filter, on text in which "
        "each document occurs once, and on views of it, in which a document occurs many times. The random filter masks as "
        "many negatives of a query as word vectors do. 'Same text' is the share of negatives in a batch that are views of "
        "the query's own text."
    ),
    columns=(
        Column(label="same text %", value="batches/same_text", factor=100),
        Column(label="masked %", value="train/masked_fraction", factor=100),
        LOSS_COLUMN,
        *table1.FAMILY_COLUMNS,
        NDCG_COLUMN,
    ),
    rows=(
        *(Row(label=f"{corpus}: batches", runs=pick(**select_batches(corpus))) for corpus in CORPORA),
        *(make_row(corpus, name, f"{corpus}: {name}") for corpus, name in ROWS),
    ),
)
FIGURE = Figure(
    name="filter_gain",
    title="What a filter gains, by how common false negatives are",
    caption=(
        "NDCG@10 of a biencoder with a false-negative filter minus that without it, by the training text. In `desk-views` a "
        f"text occurs many times. The table has the share of such negatives. {DOTS_AND_MEAN}"
    ),
    x="corpus",
    x_label="training text",
    series=tuple(
        replace(make_row(corpus, name), minus=make_row(corpus, NONE)) for corpus, name in ROWS if name != NONE
    ),
    **SCORE | DIFFERENCES,
)


def score(corpus: str, name: str) -> Term:
    """Return the mean NDCG@10 on a corpus with a filter."""
    return term(NDCG, **select(corpus, name))


COMMON: dict[str, Any] = BELOW_PAPERS_GAINS | {"stated": "2026-11-29", "scales": (SCALE,), "seeds": SEEDS[SCALE]}
CHOICE_OR_NUMBER = "our question: is it the choice of negatives or their number?"
ORDERS = (
    ("XF.a", "the filter by a trained biencoder beats the filter by word vectors", "text", TRAINED, WORDS, "§4.1"),
    ("XF.b", "the filter by a trained biencoder beats no filter", "text", TRAINED, NONE, "Figure 4"),
    ("XF.c", "random masking of as many negatives beats no filter", "text", RANDOM, NONE, CHOICE_OR_NUMBER),
    ("VW.a", "on views, where false negatives are common, word vectors beat no filter", "views", WORDS, NONE, "§4.1"),
)
CLAIMS = (
    *(
        Claim.order(
            id,
            f"from a pretrained start, {statement}",
            pairs=[(score(corpus, better), score(corpus, worse))],
            source=source,
            **COMMON,
        )
        for id, statement, corpus, better, worse, source in ORDERS
    ),
    Claim.interaction(
        "VW.b",
        "from a pretrained start, the filter by word vectors gains more where false negatives are common",
        of=(score("views", WORDS), score("views", NONE)),
        above=(score("text", WORDS), score("text", NONE)),
        source="§4.1",
        **COMMON,
    ),
    Claim.order(
        "VW.c",
        "from a pretrained start, on views, the filter by a trained biencoder beats no filter",
        pairs=[(score("views", TRAINED), score("views", NONE))],
        source="Figure 4",
        **COMMON | {"seeds": (*SEEDS[SCALE][1:], LATER_SEED)},
    ),
)
EXPERIMENT = Experiment(
    title="What the filter is worth",
    runs=runs,
    artefacts=(TABLE, FIGURE),
    claims=CLAIMS,
    local_seeds=(0, 9, 100),
    scales=tuple(SEEDS),
)
