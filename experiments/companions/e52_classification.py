"""MRL figures 2, 3 and 6 on a classification of texts: linear heads, nearest neighbours and cascades by width.

The paper classifies images. Here a document is classified by its collection. Figure 6 has a second counterpart, in which
queries are classified by the nearest mean of documents (`mrl_figure6`).
"""

from typing import Any

from experiments.companions.e31_prefixes import ALL, JUDGED, NESTED, SEPARATE, WIDTHS, plain
from repro.spec import Claim, Experiment, Figure, Row, Run, Term, grid, pick, term

SEEDS = {"smoke": (0,), "desk": (28, 29, 30)}
"""None of the seeds of desk was trained before the claims were stated."""
PROBED = NESTED | {"measure": "probe"}
ALONE = SEPARATE | {"measure": "probe"}
WHOLE = WIDTHS["desk"][-1]
OTHERS = JUDGED[1:]


def runs(scale: str) -> tuple[Run, ...]:
    """Return one nested model and a model for each narrower width, for each seed."""
    narrow_widths = tuple(str(width) for width in WIDTHS[scale][:-1])
    return grid(plain(scale), measure="probe", nested_sizes=(ALL[scale], *narrow_widths), seed=SEEDS[scale])


ACCURACY = "accuracy (%)"
TASK = "A document is classified by its collection. The classifiers see half of the documents, and a quarter is scored."
FIGURE = Figure(
    name="classification_by_width",
    title="Classification accuracy by width: linear heads and nearest neighbour",
    caption=(
        f"{TASK} One nested model with a linear head per width, with one head for all widths (tied) and with the "
        "nearest neighbour, and models trained at each width alone. Marks are means over n seeds, bands are 95 % intervals "
        "of the mean. The paper shows ImageNet."
    ),
    kind="lines",
    points="{suite}/mean/accuracy",
    x="part1",
    y="value",
    x_label="dimensions",
    y_label=ACCURACY,
    factor=100,
    x_is_log=True,
    series=(
        Row(label="nested, linear", runs=pick(**PROBED), context="linear*"),
        Row(label="nested, tied head", runs=pick(**PROBED), context="tied*"),
        Row(label="nested, nearest", runs=pick(**PROBED), context="nearest*"),
        Row(label="trained alone, linear", runs=pick(**ALONE), context="linear*"),
        Row(label="trained alone, nearest", runs=pick(**ALONE), context="nearest*"),
    ),
)


def score(kind: str, width: int, row: dict[str, Any] = PROBED) -> Term:
    """Return the accuracy of one kind of classifier at one width."""
    return term(f"{{suite}}+{kind}{width}/mean/accuracy", **row)


def dimensions(kind: str) -> Term:
    """Return the mean number of dimensions up to the widest head, in doublings."""
    return term(f"log2 {{suite}}+{kind}{WHOLE}/mean/dimensions", **PROBED)


def alone(kind: str, width: int) -> Term:
    """Return the accuracy of the model trained at one width alone."""
    return score(kind, width, ALONE | {"nested_sizes": str(width)})


COMMON: dict[str, Any] = {"stated": "2026-11-26", "scales": ("desk",), "seeds": SEEDS["desk"]}
TWO_POINTS = "two points: the difference that the paper reports at low width"
CLAIMS = (
    Claim.equivalence(
        "M2.c",
        "linear heads on nested prefixes are as accurate as on models trained at each width",
        pairs=[(score("linear", width), alone("linear", width)) for width in JUDGED],
        delta=0.02,
        source="Figure 2",
        because=TWO_POINTS,
        **COMMON,
    ),
    Claim.equivalence(
        "M2.d",
        "one head for all widths (MRL-E) is as accurate as models trained at each width, from 16 dimensions on",
        pairs=[(score("tied", width), alone("linear", width)) for width in OTHERS],
        delta=0.02,
        source="Figure 2",
        because=f"{TWO_POINTS}; fitted to fixed vectors here",
        **COMMON,
    ),
    Claim.order(
        "M3.b",
        "nearest neighbours by nested prefixes are more accurate than by models trained at each width",
        pairs=[(score("nearest", width), alone("nearest", width)) for width in JUDGED],
        source="Figures 3 and 4",
        **COMMON,
    ),
    Claim.equivalence(
        "M6.d",
        "a cascade of linear heads is as accurate as the widest head",
        pairs=[(score("cascade", WHOLE), score("linear", WHOLE))],
        delta=0.01,
        source="Figure 6: 'for the same level of accuracy'",
        because="one point",
        **COMMON,
    ),
    Claim.order(
        "M6.e",
        "a cascade of linear heads needs less than half of the dimensions on average",
        pairs=[(dimensions("linear"), dimensions("cascade"))],
        margin=1.0,
        source="Figure 6: '14× smaller'",
        because="in doublings: 1 is twice; the paper's widths span 256 times, those of desk 16",
        **COMMON,
    ),
)

EXPERIMENT = Experiment(
    title="Classification by width", runs=runs, artefacts=(FIGURE,), claims=CLAIMS, paper="MRL", scales=tuple(SEEDS)
)
