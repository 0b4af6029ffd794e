"""The gain of the contextual architecture, by the kind of its training batches. Not in the paper.

The paper's architecture reads documents of the batch as its context. A batch of one domain therefore resembles a
searched collection. Table 1 has a row of such batches, but no claim covered it.
"""

from typing import Any

from experiments import fresh
from experiments.e01_table1 import (
    ARCHITECTURE,
    ARCHITECTURE_DOMAIN,
    BATCHES,
    BOTH,
    FAMILY_COLUMNS,
    NEITHER,
    NEITHER_DOMAIN,
    SEEDS,
    get_sizes,
)
from experiments.ours.e25_context_emergence import CONTEXT_LABELS, DIFFERENCE
from experiments.shared import BELOW_PAPERS_GAINS, NDCG, SCORE, under
from repro.spec import Claim, Column, Experiment, Figure, Row, Run, Table, Term, base, pick, term

SCALES = ("smoke", "desk", "lab")
KINDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "one source per batch": (NEITHER, ARCHITECTURE),
    "clusters, filter": (BATCHES, BOTH),
    "one domain per batch": (NEITHER_DOMAIN, ARCHITECTURE_DOMAIN),
}
"""The biencoder and the contextual model of Table 1 on each kind of batch."""


def runs(scale: str) -> tuple[Run, ...]:
    """Return both models on each kind of batch, on seeds trained for other rows, but not examined, when claims were stated."""
    run_scale = scale if scale in SCALES else "lab"
    seeds = {"smoke": SEEDS, "desk": fresh.BY_BATCHES, "lab": fresh.BY_BATCHES_AT_LAB}[run_scale]
    return tuple(
        base(run_scale, **row | get_sizes(row, run_scale), seed=seed)
        for pair in KINDS.values()
        for row in pair
        for seed in seeds
    )


COMPARISONS = {
    "in-corpus − biencoder": ("in-corpus", "biencoder"),
    "in-corpus − out-of-corpus": ("in-corpus", "out-of-corpus"),
    "in-corpus − no context": ("in-corpus", "no context"),
}
STYLES = {
    "in-corpus − biencoder": ("#440154", "o"),
    "in-corpus − out-of-corpus": ("#21918c", "s"),
    "in-corpus − no context": ("#b5a000", "^"),
}


def list_rows() -> tuple[Row, ...]:
    """Return a row for each kind of batch, model and context."""
    rows: list[Row] = []
    for kind, (biencoder, contextual) in KINDS.items():
        rows.append(Row(label=f"{kind}: biencoder", runs=pick(**biencoder)))
        rows += [
            Row(label=f"{kind}: {label}", runs=pick(**contextual), context=context)
            for context, label in CONTEXT_LABELS.items()
        ]
    return tuple(rows)


def draw_gains(frame: Any, axes: Any) -> str:
    """Draw the gain of a contextual model on each kind of batch. One mark per seed, and a line at the mean."""
    scores = frame.pivot_table(index="seed", columns="series", values=NDCG)
    for index, (label, (first, second)) in enumerate(COMPARISONS.items()):
        colour, marker = STYLES[label]
        for position, kind in enumerate(KINDS):
            pair = [f"{kind}: {series}" for series in (first, second)]
            if not set(pair) <= set(scores):
                continue
            gains = (scores[pair[0]] - scores[pair[1]]).dropna()
            x = position + 0.24 * (index - 1)
            legend_label = f"{label} (n = {len(gains)})" if position == 0 else None
            axes.plot([x] * len(gains), gains, marker, color=colour, markersize=4, alpha=0.6, label=legend_label)
            axes.plot([x - 0.09, x + 0.09], [gains.mean()] * 2, color=colour, linewidth=2)
    axes.axhline(0, color="grey", linewidth=0.8)
    axes.set_xticks(range(len(KINDS)), list(KINDS))
    axes.set_ylabel(DIFFERENCE)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0))
    return "mark: one seed; dash: mean over n seeds"


FIGURE = Figure(
    name="gain_by_batches",
    title="What the contextual architecture gains, by kind of batch",
    caption=(
        "NDCG@10 of the contextual model with in-corpus context, minus that of the biencoder trained on the same "
        "batches (dots), minus its own with out-of-corpus context (squares), and minus its own without context "
        "(triangles). A mark is a seed, a line is the mean over seeds."
    ),
    kind="own",
    x="sampler",
    x_label="batches",
    series=list_rows(),
    draw=draw_gains,
    **SCORE,
)

TABLE = Table(
    name="gain_by_batches_table",
    caption="NDCG@10 by family of both models on each kind of batch, the contextual model under three contexts.",
    columns=(*FAMILY_COLUMNS, Column(label="NDCG@10", value=NDCG, factor=100)),
    rows=list_rows(),
)


COMMON = BELOW_PAPERS_GAINS | {
    "source": "our question: the paper's central claim (§1, §4.2), where each batch is of one domain",
    "stated": "2026-11-24",
    "scales": ("desk", "lab"),
    **fresh.declare(fresh.TABLE1, fresh.BY_BATCHES_AT_LAB),
}
STATEMENTS: tuple[tuple[str, str, Term], ...] = (
    (
        "D.a",
        "on batches of one domain, the paper's architecture beats a biencoder trained on the same batches",
        term(NDCG, **NEITHER_DOMAIN),
    ),
    (
        "D.b",
        "the paper's architecture scores higher if it is trained on batches of one domain than of one source",
        term(NDCG, **ARCHITECTURE),
    ),
    (
        "D.c",
        "trained on batches of one domain, the paper's architecture scores higher with in-corpus context than with none",
        term(under("null"), **ARCHITECTURE_DOMAIN),
    ),
    (
        "D.d",
        "trained on batches of one domain, the paper's architecture gains from in-corpus over out-of-corpus context",
        term(under("wrong"), **ARCHITECTURE_DOMAIN),
    ),
)
"""Id, claim, and the comparison for the architecture on such batches with in-corpus context."""
CLAIMS = tuple(
    Claim.order(
        id,
        statement,
        pairs=[(term(NDCG, **ARCHITECTURE_DOMAIN), other)],
        **COMMON | ({} if id == "D.d" else fresh.blind(ARCHITECTURE_DOMAIN)),
    )
    for id, statement, other in STATEMENTS
)

EXPERIMENT = Experiment(
    number=46, title="Gain of the architecture by kind of batch", runs=runs, artefacts=(FIGURE, TABLE), claims=CLAIMS
)
