"""Figure 15: a few documents, each embedded under many contexts: how far do they move?"""

from typing import Any

from experiments.e01_table1 import BOTH, CLUSTER, CONTEXTUAL_BATCH, SEEDS
from repro.spec import Claim, Column, Experiment, Figure, Row, Run, Table, base, pick, term

LOOKED = BOTH | {"measure": "spread"}
MARKERS = "os^DvP"
COLOURS = ("#440154", "#31688e", "#1f9e89", "#6ccd5a", "#b5a000", "#d95f02")


def runs(scale: str) -> tuple[Run, ...]:
    """Table 1's contextual models, looked at otherwise: nothing more is trained."""
    sizes = {"batch_size": CONTEXTUAL_BATCH[scale], "cluster_size": CLUSTER[scale]}
    return tuple(base(scale, **LOOKED, **sizes, seed=seed) for seed in SEEDS)


def draw_documents(frame: Any, axes: Any) -> None:
    """A colour and mark for each document, a dot for each context."""
    x, y = FIGURE.x, FIGURE.y
    first = frame[frame["seed"] == frame["seed"].min()]
    for number, (name, rows) in enumerate(first.groupby("part1", sort=True)):
        look = {"marker": MARKERS[number % 6], "color": COLOURS[number % 6], "label": name}
        axes.plot(rows[x], rows[y], linestyle="none", markersize=5, alpha=0.75, **look)
    axes.set_aspect("equal", adjustable="datalim")
    axes.legend(frameon=False, fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))


FIGURE = Figure(
    name="figure15",
    caption=(
        "Six documents of one evaluation set, each under the contexts of up to 16 evaluation sets: the first two "
        "principal components of their vectors. The paper takes documents of TREC-COVID."
    ),
    kind="own",
    points="pca/*/*/x",
    x="pca/{part1}/{part2}/x",
    y="pca/{part1}/{part2}/y",
    x_label="first principal component",
    y_label="second principal component",
    series=(Row(label="contextual model", of=pick(**LOOKED)),),
    draw=draw_documents,
)

TABLE = Table(
    name="figure15_distances",
    caption="Mean Euclidean distance between unit vectors, over 64 documents and up to 16 contexts.",
    columns=(
        Column(label="within a document", value="spread/within", decimals=3),
        Column(label="to other documents", value="spread/between", decimals=3),
        Column(label="to the nearest", value="spread/nearest", decimals=3),
        Column(label="moved less than that %", value="spread/kept_apart", factor=100),
    ),
    rows=(Row(label="contextual model", of=pick(**LOOKED)),),
)

CLAIMS = (
    Claim.order(
        "F15.a",
        "a document's vectors under different contexts are nearer to each other than to other documents'",
        pairs=[
            (term("spread/between", **LOOKED), term("spread/within", **LOOKED)),
            (term("spread/nearest", **LOOKED), term("spread/within", **LOOKED)),
        ],
        source="Figure 15",
        because="any difference beyond chance; documents and seeds are drawn again",
    ),
)

EXPERIMENT = Experiment(
    number=16, title="One document under many contexts", runs=runs, shows=(FIGURE, TABLE), claims=CLAIMS
)
