"""MRL figure 9: disagreement across dimensions. What a query finds at each width, and whether errors stay close."""

from itertools import pairwise
from typing import Any

from experiments.companions.e31_prefixes import ALL, NESTED, WIDTHS, plain
from experiments.companions.e52_classification import SEEDS
from repro.spec import Claim, Experiment, Figure, Row, Run, Term, grid, pick, term

DISAGREEMENT = NESTED | {"measure": "disagreement"}
NARROWEST, WHOLE = WIDTHS["desk"][0], WIDTHS["desk"][-1]


def runs(scale: str) -> tuple[Run, ...]:
    """Return the nested model of the classification by width with another analysis. Nothing more is trained."""
    return grid(plain(scale), measure="disagreement", nested_sizes=ALL[scale], seed=SEEDS[scale])


OUTCOMES = {
    "relevant": ("relevant", "#21918c"),
    "collection": ("right collection", "#90d743"),
    "family": ("right family", "#b5a000"),
    "elsewhere": ("another family", "#440154"),
}
"""The kinds of first documents, from the best to the worst, with their colours."""


def draw_outcomes(frame: Any, axes: Any) -> None:
    """Draw a stacked bar per width: the shares of what queries find first."""
    shares = frame.pivot_table(index="part1", columns="part2", values="value")
    shares.index = shares.index.str.removeprefix("width").astype(int)
    shares = shares.sort_index()
    bottom = 0 * shares["relevant"]
    for name, (label, colour) in OUTCOMES.items():
        axes.bar(range(len(shares)), shares[name], bottom=bottom, color=colour, label=label, width=0.8)
        bottom = bottom + shares[name]
    axes.set_xticks(range(len(shares)), [str(width) for width in shares.index])
    axes.set_ylim(0, 100)
    axes.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=2)


FIGURE = Figure(
    name="mrl_figure9",
    title="The first document of a query, by width",
    caption=(
        "Share of the queries whose first document is relevant, another document of the same collection, of another "
        "collection of the same family, or of another family, by the number of dimensions used in the search. All "
        "documents of the suite are searched together. Means over seeds. The paper shows examples of images."
    ),
    kind="own",
    points="{suite}+*/mean/*",
    parts=("width", "first document"),
    x="part1",
    y="value",
    x_label="dimensions used in the search",
    y_label="share of the queries (%)",
    factor=100,
    series=(Row(label="nested", runs=pick(**DISAGREEMENT)),),
    draw=draw_outcomes,
)


def share(outcome: str, width: int) -> Term:
    """Return the share of queries with one outcome at one width."""
    return term(f"{{suite}}+width{width}/mean/{outcome}", **DISAGREEMENT)


COMMON: dict[str, Any] = {
    "source": "Figure 9 and §5.4",
    "stated": "2026-11-26",
    "scales": ("desk",),
    "seeds": SEEDS["desk"],
}
CLAIMS = (
    Claim.order(
        "M9.a",
        "wider prefixes correct narrow ones: every doubling of the width finds more relevant documents",
        pairs=[(share("relevant", wide), share("relevant", narrow)) for narrow, wide in pairwise(WIDTHS["desk"])],
        **COMMON,
    ),
    Claim.order(
        "M9.b",
        "errors of the narrowest prefix stay close: more of them inside the right family than outside",
        pairs=[(share("family", NARROWEST), share("elsewhere", NARROWEST))],
        because="any difference beyond chance, among first documents of a wrong collection",
        **COMMON,
    ),
    Claim.order(
        "M9.c",
        "some queries are answered by the narrowest prefix and not by the whole vector: at least one in a hundred",
        pairs=[(share("regained", NARROWEST), share("regained", WHOLE))],
        margin=0.01,
        because="one point; for the whole vector the share is zero by definition",
        **COMMON,
    ),
)

EXPERIMENT = Experiment(
    title="Disagreement across dimensions",
    runs=runs,
    artefacts=(FIGURE,),
    claims=CLAIMS,
    paper="MRL",
    scales=tuple(SEEDS),
)
