"""MRL figure 8: adaptive retrieval. A narrow prefix gives a shortlist, a wider one reranks it: score against cost."""

from typing import Any

from experiments.companions.e31_prefixes import JUDGED, NESTED, list_nested_runs
from experiments.fresh import COMPANION
from experiments.shared import SCORE, draw_tradeoff, ndcg
from repro.spec import Claim, Column, Experiment, Figure, Row, Run, Table, Term, pick, term

ADAPTIVE = NESTED | {"measure": "adaptive"}


def runs(scale: str) -> tuple[Run, ...]:
    """Return the nested models of figure 2 with other searches. Nothing more is trained."""
    return list_nested_runs(scale, "adaptive")


KINDS = {
    "width|whole": ("o-", "#b5a000", "one width"),
    "from": ("s", "#21918c", "shortlist, then rerank"),
    "funnel": ("*", "#440154", "funnel"),
}


def draw_routes(frame: Any, axes: Any) -> str:
    """Draw a dot for each route, its cost against its score. Return a note."""
    draw_tradeoff(frame, axes, FIGURE.x, KINDS)
    return "squares with a number: a shortlist by so many dimensions, reranked by all; other squares: by fewer than all"


FIGURE = Figure(
    name="mrl_figure8",
    title="Score against cost: one width, a shortlist reranked, and the funnel",
    caption=(
        "NDCG@10 of the nested model against multiplications per query, mean over collections and seeds. A shortlist "
        "of 200 documents is retrieved at one width and reranked at another (squares with its number: by the whole "
        "vector; squares without a number: by widths in between). The funnel doubles the width and halves the shortlist at each step."
    ),
    kind="own",
    points=ndcg("*"),
    parts=("route",),
    x="{suite}+{part1}/mean/mflops",
    x_label="million multiplications per query",
    series=(Row(label="nested", runs=pick(**ADAPTIVE)),),
    draw=draw_routes,
    **SCORE | {"y": "value"},
)

TABLE = Table(
    name="mrl_figure8_times",
    caption="What each route finds, what it multiplies, and how many queries per second it answers on one machine.",
    columns=(
        Column(label="NDCG@10", value=ndcg("{part}"), factor=100),
        Column(label="kFLOPs", value="{suite}+{part}/mean/mflops", factor=1000),
        Column(label="queries/s", value="{suite}+{part}/mean/queries_per_second", decimals=0),
    ),
    rows=tuple(
        Row(label=label, runs=pick(**ADAPTIVE), part=part)
        for part, label in {
            "whole": "whole vector",
            "width8": "8 dimensions",
            "width16": "16 dimensions",
            "from8": "shortlist at 8, then the whole",
            "from16": "shortlist at 16, then the whole",
            "funnel": "funnel from 16",
        }.items()
    ),
)


def route(name: str) -> Term:
    """Return NDCG@10 along a route."""
    return term(ndcg(name), **ADAPTIVE)


def claim_as_good(id: str, statement: str, narrow: Term, source: str, because: str = "one point") -> Claim:
    """Claim that a route is as good as the search by whole vectors."""
    return Claim.equivalence(
        id,
        f"{statement} as good as the whole vector",
        pairs=[(narrow, route("whole"))],
        delta=0.01,
        source=source,
        because=because,
        **COMPANION,
    )


CLAIMS = (
    claim_as_good(
        "M8.a",
        "a shortlist at 16 dimensions, ranked by the whole vector, is",
        route("from16"),
        source="Figure 8, left",
        because="one point; the paper's harder set needs 64 dimensions (M8.b)",
    ),
    claim_as_good(
        "M8.b",
        "a shortlist at 64 dimensions, ranked by the whole vector, is",
        route("from64"),
        source="Figure 8, right",
    ),
    claim_as_good("M8.c", "the funnel of ever wider rankings is almost", route("funnel"), source="Figure 8"),
    Claim.order(
        "M8.d",
        "reranking a shortlist by the whole vector beats searching at the shortlist's width alone, at every width",
        pairs=[(route(f"from{width}"), route(f"width{width}")) for width in JUDGED],
        source="Figure 8: every combination lies above the line of single widths",
        because="any difference beyond chance; the paper compares at equal cost, this claim asks for less",
        **COMPANION,
    ),
)

EXPERIMENT = Experiment(title="Adaptive retrieval", runs=runs, artefacts=(FIGURE, TABLE), claims=CLAIMS, paper="MRL")
