"""Figure 16 and context sensitivity: dependence of the score on the number and the draw of context documents."""

from typing import Any

from experiments import fresh
from experiments.e01_table1 import BOTH, FAMILIES, OWN_SCALES, SURROGATE, WITH_MINI, get_contextual_sizes, seeds_at
from experiments.shared import HALF_A_POINT, NDCG, SCORE, SCORE_LINES, ignore_small, under
from repro.spec import Claim, Column, Experiment, Figure, Row, Run, Table, base, grid, pick, term

# Empty slots hold the model's null vector. The last size of each scale fills all slots.
SIZES: dict[str, tuple[int, ...]] = {"smoke": (1, 2, 4, 8)}
SIZES |= dict.fromkeys(("desk", "lab", "mini"), (1, 2, 4, 8, 16))
SIZES |= {"small": (1, 4, 16, 32, 64), "large": (1, 8, 32, 128, 512)}
CONTEXT_SEEDS = (1, 2, 3, 4)
CONTEXTUAL = BOTH | {"measure": "retrieval"}
DRAWN_SIZES = {scale: (sizes[0], sizes[2], sizes[-1]) for scale, sizes in SIZES.items()}


def runs(scale: str) -> tuple[Run, ...]:
    """Return Table 1's contextual model with other evaluations, at desk on other seeds, and the reference."""
    base_run = base(scale, **CONTEXTUAL, **get_contextual_sizes(scale), num_test_contexts=None)
    seeds = seeds_at(scale, fresh.CONTEXT_FIGURES)
    as_trained = grid(base_run, seed=seeds + (fresh.MORE_EMERGENCE if scale == "lab" else ()))
    by_number = grid(base_run, seed=seeds, num_test_contexts=SIZES[scale], test_contexts="own")
    by_draw = grid(by_number[0], num_test_contexts=DRAWN_SIZES[scale], context_seed=CONTEXT_SEEDS)
    return (base(scale, **SURROGATE), *as_trained, *by_number, *by_draw)


SCORED = CONTEXTUAL | {"context_seed": 0}
SUPPLIED = SCORED | {"num_test_contexts": tuple(sorted({size for sizes in SIZES.values() for size in sizes}))}
AS_TRAINED = SCORED | {"num_test_contexts": None}
NULL = under("null")

FIGURE = Figure(
    name="figure16",
    caption=(
        "NDCG@10 of Table 1's contextual model by the number of context documents. The other context positions hold "
        "the null vector. Marks are means over n seeds, bands are 95 % intervals of the mean. Horizontal lines show "
        "the model without context, and the surrogate, which is untrained at desk and lab."
    ),
    title="Score by number of context documents",
    x="num_test_contexts",
    x_label="context documents",
    series=(
        Row(label="contextual model", runs=pick(**SUPPLIED)),
        Row(label="no context (all null)", runs=pick(**AS_TRAINED), context="null"),
        Row(label="surrogate", runs=pick(**SURROGATE)),
    ),
    **SCORE_LINES,
)


COLOURS, MIN_VISIBLE_SPAN = ("#440154", "#21918c", "#b5a000"), 1e-9


def draw_sensitivity(frame: Any, axes: Any) -> None:
    """Draw, for each dataset, the range of its scores over draws of the context around their mean.

    The widest is on top.
    """
    scores, size = FIGURE_DRAWS.y, "num_test_contexts"
    cells = frame.groupby(["part1", size])[scores].agg(["mean", "min", "max"]).reset_index()
    order = list(cells.assign(span=cells["max"] - cells["min"]).groupby("part1")["span"].max().sort_values().index)
    sizes = sorted(cells[size].unique())
    axes.figure.set_size_inches(5.8, 1.0 + 0.2 * len(order))
    for index, count in enumerate(sizes):
        rows = cells[cells[size] == count].set_index("part1")
        heights = [order.index(name) + 0.26 * ((len(sizes) - 1) / 2 - index) for name in rows.index]
        label = f"{int(count)} document{'s' * int(count > 1)}"
        _draw_ranges(axes, heights, rows["min"] - rows["mean"], rows["max"] - rows["mean"], COLOURS[index % 3], label)
    axes.axvline(0, color="#262626", linewidth=0.8, zorder=0)
    axes.set_yticks(range(len(order)), order, fontsize="small")
    axes.set_ylim(-0.7, len(order) - 0.3)
    axes.set(xlabel="NDCG@10 − mean over four draws (points)", ylabel="")
    axes.legend(frameon=False, fontsize="small", loc="lower left", bbox_to_anchor=(0, 1), ncols=3, borderaxespad=0.2)


def _draw_ranges(axes: Any, heights: list[float], low: Any, high: Any, colour: str, label: str) -> None:
    """Draw bars from low to high. A bar of zero length would be invisible, so it becomes a dot."""
    axes.hlines(heights, low, high, color=colour, linewidth=2.2, label=label)
    point_heights = [height for height, span in zip(heights, high - low, strict=True) if span <= MIN_VISIBLE_SPAN]
    axes.plot([0.0] * len(point_heights), point_heights, "o", color=colour, markersize=4, label="_")


DRAWN = CONTEXTUAL | {"context_seed": CONTEXT_SEEDS}
FIGURE_DRAWS = Figure(
    name="sensitivity",
    caption=(
        "Variation of NDCG@10 of one trained contextual model if only the draw of its context documents changes. A bar"
        " spans the lowest to the highest of four draws, relative to their mean, for one dataset and one number of "
        "documents. A dot means that all four are equal. Datasets that vary most are on top. The paper has no such "
        "figure."
    ),
    title="How far a score moves with the draw of its context documents",
    kind="own",
    points="{suite}/*/ndcg_at_10",
    x="num_test_contexts",
    x_label="context documents",
    series=(Row(label="contextual model", runs=pick(**DRAWN)),),
    draw=draw_sensitivity,
    **SCORE | {"y": "value"},
)


def make_size_row(size: int) -> Row:
    """Return the row of one number of context documents, shown at the scales that have it."""
    scales = tuple(scale for scale, sizes in DRAWN_SIZES.items() if size in sizes)
    return Row(label=f"{size} document{'s' * (size > 1)}", runs=pick(**DRAWN, num_test_contexts=size), scales=scales)


TABLE_DRAWS = Table(
    name="sensitivity_table",
    caption="NDCG@10 of one trained contextual model: mean ± standard deviation over four draws of its context.",
    columns=(
        Column(label="NDCG@10", value=NDCG, factor=100, decimals=2),
        *(
            Column(label=family, value=f"{{suite}}/{family}/ndcg_at_10", factor=100, decimals=2, scales=OWN_SCALES)
            for family in FAMILIES
        ),
    ),
    rows=tuple(make_size_row(size) for size in sorted({size for sizes in DRAWN_SIZES.values() for size in sizes})),
)

CLAIMS = (
    Claim.trend(
        "F16.a",
        "the score rises with the number of context documents",
        over=term(NDCG, **SUPPLIED),
        axis="num_test_contexts",
        sign=1,
        source="Figure 16 and §9.5",
        because="a slope beyond chance",
        **fresh.RESTATED | fresh.MET_BY_BLIND | fresh.declare(fresh.CONTEXT_FIGURES),
    ),
    Claim.order(
        "F16.b",
        "the null context is worse than a full context, but usable: still above the surrogate",
        pairs=[
            (term(NDCG, **AS_TRAINED), term(NULL, **AS_TRAINED)),
            (term(NULL, **AS_TRAINED), term(NDCG, **SURROGATE)),
        ],
        source="Figure 16 and §9.5",
        because="any difference beyond chance; 'reasonably' is read as better than without training",
        # the surrogate of small and large is trained
        scales=("desk", "lab"),
        stated=fresh.FIRST_STATED,
        **fresh.declare((*fresh.FIRST, *fresh.CONTEXT_FIGURES), fresh.EMERGENCE_AT_LAB),
    ),
    Claim.order(
        "F16.c",
        "the documents of a context matter: a full in-corpus context is better than a full out-of-corpus one",
        pairs=[(term(NDCG, **AS_TRAINED), term(under("wrong"), **AS_TRAINED))],
        source="our question: our reading of Figure 16",
        **ignore_small(HALF_A_POINT, "a context-blind model shows none, or less than half a point"),
        # at lab E.e judges the same models
        scales=("desk", "small", "large"),
        version=2,
        **fresh.STATED | fresh.declare(fresh.CONTEXT_FIGURES),
    ),
)

EXPERIMENT = Experiment(
    number=17,
    title="Number and draw of context documents",
    runs=runs,
    artefacts=(FIGURE, FIGURE_DRAWS, TABLE_DRAWS),
    claims=CLAIMS,
    scales=WITH_MINI,
)
