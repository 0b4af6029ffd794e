"""MRL figures 2, 3 and 7: prefixes of nested vectors, compared with models of each width, SVD and truncation."""

from typing import Any

from experiments import fresh
from experiments.e01_table1 import NEITHER_RANDOM, PLAIN_BATCH
from experiments.e04_batch_by_cluster import FEWER_PAIRS, budget
from experiments.fresh import COMPANION
from experiments.shared import BY_PART, MEAN_OF_SEEDS, NDCG, ndcg
from repro.spec import (
    Claim,
    Experiment,
    Figure,
    Row,
    Run,
    Term,
    base,
    format_widths,
    grid,
    list_standard_widths,
    pick,
    term,
)

SCALES = ("smoke", "desk", "lab", "small", "large")
WIDTHS = {scale: list_standard_widths(base(scale).hidden_size) for scale in SCALES}
ALL = {scale: format_widths(widths) for scale, widths in WIDTHS.items()}
"""The paper's widths are 8, 16, … 2048 of an image model. Ours go up to the vector width of each scale."""
JUDGED = (8, 16, 32, 64)
"""Widths below the full one that every judged scale has."""
SEEDS = (0, 1, 2)
PLAIN = NEITHER_RANDOM | {"measure": "widths"}
IN_FULL: dict[str, Any] = {"protocol": "full", "rerank_depth": None}
"""Search protocol for prefixes at every scale. At `small`, all other scores only rerank a first stage's candidates."""


def plain(scale: str) -> Run:
    """Return the training of whole vectors, as long as those of figure 14."""
    batch_size = PLAIN_BATCH[scale]
    return base(scale, **PLAIN, **IN_FULL, batch_size=batch_size, **budget(scale, batch_size, FEWER_PAIRS))


def list_nested_runs(scale: str, measure: str) -> tuple[Run, ...]:
    """Return the nested training runs with another analysis."""
    return grid(plain(scale), measure=measure, nested_sizes=ALL[scale], seed=SEEDS)


def runs(scale: str) -> tuple[Run, ...]:
    """Return one nested training run, one of whole vectors, and one for each narrower width alone."""
    whole_run = plain(scale)
    narrow_widths = tuple(str(width) for width in WIDTHS[scale] if width < whole_run.hidden_size)
    extra_seeds = fresh.NESTED if scale == "desk" else ()
    return grid(whole_run, nested_sizes=(ALL[scale], None, *narrow_widths), seed=SEEDS) + grid(
        whole_run, nested_sizes=(ALL[scale], None), seed=extra_seeds
    )


NESTED = PLAIN | {"nested_sizes": tuple(sorted(set(ALL.values())))}
WHOLE = PLAIN | {"nested_sizes": None}
SEPARATE = PLAIN | {"nested_sizes": tuple(sorted({str(w) for widths in WIDTHS.values() for w in widths[:-1]}))}
BY_WIDTH = BY_PART | {"kind": "lines", "points": NDCG, "x_label": "dimensions used in the search", "x_is_log": True}
PREFIXES = Row(label="nested, prefixes", runs=pick(**NESTED), context="width*")
TRAINED_ALONE = Row(label="trained at that width alone", runs=pick(**SEPARATE), context="width*")
BY_SVD = Row(label="plain, cut by SVD", runs=pick(**WHOLE), context="svd*")
CUT = Row(label="plain, truncated", runs=pick(**WHOLE), context="width*")

FIGURE2 = Figure(
    name="mrl_figure2",
    title="Score by width: prefixes of one nested model, and a model for each width",
    caption=(
        "NDCG@10 by the number of dimensions used in the search, for one model whose loss is summed over prefixes, and "
        f"for models whose loss sees a prefix of one width only. {MEAN_OF_SEEDS} The paper shows accuracy on ImageNet."
    ),
    series=(PREFIXES, TRAINED_ALONE),
    **BY_WIDTH,
)
FIGURE7 = Figure(
    name="mrl_figure7",
    title="Score by width: nested vectors, and three ways of having fewer dimensions",
    caption=(
        "NDCG@10 by the number of dimensions used in the search, for the nested model, for models trained at each width, "
        "and for one plain model, whose vectors are truncated directly or after a rotation by SVD of training documents. "
        f"{MEAN_OF_SEEDS} The paper shows mAP@10 of image retrieval."
    ),
    series=(PREFIXES, TRAINED_ALONE, BY_SVD, CUT),
    **BY_WIDTH,
)


def at(width: int, row: dict[str, Any], truncation: str = "width") -> Term:
    """Return NDCG@10 of vectors truncated to a width."""
    return term(ndcg(f"{truncation}{width}"), **row)


def alone(width: int) -> Term:
    """Return NDCG@10 of the model trained at one width alone."""
    return at(width, PLAIN | {"nested_sizes": str(width)})


WITH_MORE_SEEDS = COMPANION | fresh.declare((*fresh.FIRST, *fresh.NESTED), fresh.FIRST)
CLAIMS = (
    Claim.equivalence(
        "M2.a",
        "prefixes of nested vectors are as good as models trained at each width",
        pairs=[(at(width, NESTED), alone(width)) for width in JUDGED],
        delta=0.02,
        source="Figure 2",
        because="two points: the difference that the paper reports at low width",
        **COMPANION,
    ),
    Claim.order(
        "M3.a",
        "the narrowest prefix of nested vectors is better than a model trained at its width (the paper: up to 2 %)",
        pairs=[(at(8, NESTED), alone(8))],
        source="Figures 3 and 4",
        because="any difference beyond chance; the paper classifies images by nearest neighbours, ours is retrieval",
        **COMPANION,
    ),
    Claim.order(
        "M7.a",
        "prefixes beat a plain model reduced by SVD to the same number of dimensions, at every width",
        pairs=[(at(width, NESTED), at(width, WHOLE, "svd")) for width in JUDGED],
        source="Figures 3 and 7",
        **WITH_MORE_SEEDS,
    ),
    Claim.order(
        "M7.b",
        "prefixes of the nested model beat those of a plain model, at every width",
        pairs=[(at(width, NESTED), at(width, WHOLE)) for width in JUDGED],
        source="Figures 3 and 7",
        because="any difference beyond chance; this baseline is ours, the paper's are SVD, slimmable networks and random features",
        **WITH_MORE_SEEDS,
    ),
    Claim.interaction(
        "M7.c",
        "SVD falls furthest behind at few dimensions: further at 8 than at 64",
        of=(at(8, NESTED), at(8, WHOLE, "svd")),
        above=(at(64, NESTED), at(64, WHOLE, "svd")),
        source="Figure 7",
        **WITH_MORE_SEEDS,
    ),
    Claim.equivalence(
        "M2.b",
        "nesting does not change the score of the whole vector",
        pairs=[(term(NDCG, **NESTED), term(NDCG, **WHOLE))],
        delta=0.01,
        source="Figure 2",
        because="one point: the lines of the picture meet at 2048",
        **WITH_MORE_SEEDS,
    ),
)

EXPERIMENT = Experiment(
    title="Prefixes of nested vectors", runs=runs, artefacts=(FIGURE2, FIGURE7), claims=CLAIMS, paper="MRL"
)
