"""MRL figure 9: disagreement across dimensions. What a query finds at each width, and whether errors stay close."""

from itertools import pairwise
from typing import Any

from experiments.companions.e31_prefixes import ALL, NESTED, WIDTHS, plain
from experiments.companions.e52_classification import SEEDS
from experiments.shared import MEAN_OF_SEEDS
from repro.spec import Claim, Experiment, Figure, Row, Run, Term, grid, pick, term

DISAGREEMENT = NESTED | {"measure": "disagreement"}
NARROWEST, WHOLE = WIDTHS["desk"][0], WIDTHS["desk"][-1]


def runs(scale: str) -> tuple[Run, ...]:
    """Return the nested model of the classification by width with another analysis. Nothing more is trained."""
    return grid(plain(scale), measure="disagreement", nested_sizes=ALL[scale], seed=SEEDS[scale])


FIGURE = Figure(
    name="mrl_figure9",
    title="The first document of a query, by width",
    caption=(
        "Share of the queries whose first document is relevant, another document of the same collection, of another "
        "collection of the same family, or of another family (elsewhere), by the number of dimensions used in the "
        "search. 'regained' queries find a relevant document at this width but not with the whole vector. All documents "
        f"of the suite are searched together. {MEAN_OF_SEEDS} The paper shows examples of images."
    ),
    kind="lines",
    points="{suite}/mean/*",
    x="part1",
    y="value",
    hue="part2",
    x_label="dimensions used in the search",
    y_label="share of the queries (%)",
    factor=100,
    x_is_log=True,
    parts=("width", "first document"),
    series=(Row(label="nested", runs=pick(**DISAGREEMENT), context="width*"),),
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
