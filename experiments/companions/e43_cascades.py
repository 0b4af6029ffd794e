"""MRL figure 6: cascades. A narrow prefix classifies a text, and a wider one only the uncertain cases."""

from typing import Any

from experiments.companions.e31_prefixes import NESTED, WIDTHS, list_nested_runs
from experiments.fresh import COMPANION
from experiments.shared import draw_tradeoff
from repro.spec import Claim, Experiment, Figure, Row, Run, Term, pick, term

CASCADE = NESTED | {"measure": "cascade"}
OURS = ("desk", "lab")
WHOLE = WIDTHS["desk"][-1]
DIMENSIONS = "{suite}+{part1}/mean/dimensions"


def runs(scale: str) -> tuple[Run, ...]:
    """Return the nested models of figure 2 as classifiers. Nothing more is trained."""
    return list_nested_runs(scale, "cascade")


KINDS = {"width": ("o-", "#b5a000", "one width"), "cascade": ("s-", "#21918c", "cascade up to a width")}


def draw_cascades(frame: Any, axes: Any) -> None:
    """Draw a dot for each width alone and for the cascade that ends at it, at its mean width."""
    draw_tradeoff(frame, axes, DIMENSIONS, KINDS)


FIGURE = Figure(
    name="mrl_figure6",
    title="Accuracy against mean width: one width, and cascades",
    caption=(
        "Accuracy of assigning a query to its collection by the nearest mean document vector, against the mean number "
        "of dimensions per query. Means over seeds. A cascade continues with the next width if the answer is "
        "uncertain. Its thresholds are chosen on the other half of the queries. The paper uses ImageNet-1K and an "
        "image model with 2048 dimensions."
    ),
    kind="own",
    points="{suite}+*/mean/accuracy",
    parts=("route",),
    x=DIMENSIONS,
    y="value",
    x_label="mean dimensions per query",
    y_label="accuracy (%)",
    factor=100,
    series=(Row(label="nested", runs=pick(**CASCADE)),),
    draw=draw_cascades,
)


def at(kind: str, name: str, unit: str = "") -> Term:
    """Return a metric of the whole vector at our scales, or of the cascade that ends at it."""
    return term(f"{unit}{{suite}}+{kind}{WHOLE}/mean/{name}", **CASCADE)


CLAIMS = (
    Claim.equivalence(
        "M6.a",
        "a cascade classifies as many queries correctly as the whole vector",
        pairs=[(at("cascade", "accuracy"), at("width", "accuracy"))],
        delta=0.01,
        source="Figure 6: 'for the same level of accuracy'",
        because="one point",
        scales=OURS,
        **COMPANION,
    ),
    Claim.order(
        "M6.b",
        "a cascade needs far fewer dimensions on average: less than half as many",
        pairs=[(at("width", "dimensions", "log2 "), at("cascade", "dimensions", "log2 "))],
        margin=1.0,
        source="Figure 6: '14× smaller'",
        because="in doublings: 1 is twice; the paper's widths span 256 times, those of desk 16",
        scales=OURS,
        **COMPANION,
    ),
)

EXPERIMENT = Experiment(title="Cascades", runs=runs, artefacts=(FIGURE,), claims=CLAIMS, paper="MRL")
