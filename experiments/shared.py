"""Metrics, axes, thresholds and wordings that several experiments share."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from repro.spec import ByScale, Column, Term, base, by_scale, pick, term


def ndcg(view: str = "", group: str = "mean") -> str:
    """Return the metric NDCG@10 of a group of collections under a view: a context, a width, an adaptation ("": none)."""
    return f"{{suite}}+{view}/{group}/ndcg_at_10" if view else f"{{suite}}/{group}/ndcg_at_10"


NDCG, LOSS, ACCURACY = ndcg(), "train/loss", "train/accuracy"

OURS, PAPERS = ("smoke", "desk", "lab"), ("small", "large")
"""Our scales that start from word vectors or at random, and those of the paper."""


def by_group(smoke: Any, ours: Any, papers: Any) -> dict[str, Any]:
    """Return a value for each scale: at smoke, at desk and lab, and at those of the paper."""
    return {"smoke": smoke} | dict.fromkeys(("desk", "lab"), ours) | dict.fromkeys(PAPERS, papers)


# ---- columns and figures

LOSS_COLUMN = Column(label="train loss", value=LOSS, decimals=2)
ACCURACY_COLUMN = Column(label="train acc.", value=ACCURACY, factor=100)
NDCG_COLUMN = Column(label="NDCG@10", value=NDCG, factor=100)

SCORE: dict[str, Any] = {"y": NDCG, "y_label": "NDCG@10 (points)", "factor": 100}
"""The axis of the score. Figures with `points` replace `y`."""
SCORE_LINES = SCORE | {"kind": "lines", "x_is_log": True}
BY_PART: dict[str, Any] = SCORE | {"x": "part1", "y": "value"}
"""The axes of a figure that shows the score of each part of its `points`."""
DIFFERENCES: dict[str, Any] = {"kind": "dots", "y_label": "difference in NDCG@10 (points)"}
"""A figure whose series are differences at the same seed (`Row.minus`). Seeds are dots, next to their mean."""
DOTS_AND_MEAN = "A dot is a seed, a dash with whiskers the mean over n seeds with its 95 % interval."
MEAN_OF_SEEDS = "Marks are means over n seeds, bands are 95 % intervals of the mean."


def draw_tradeoff(frame: Any, axes: Any, cost: str, kinds: Mapping[str, tuple[str, str, str]]) -> None:
    """Draw the mean of each route (part1) at its cost, on a logarithmic axis.

    `kinds` has the style, colour and label of the routes whose name begins with a pattern. The first kind sets the ticks.
    """
    means = frame.groupby("part1")[[cost, "value"]].mean().sort_values(cost)
    for index, (pattern, (style, colour, label)) in enumerate(kinds.items()):
        routes = means[means.index.str.match(pattern)]
        axes.plot(routes[cost], routes["value"], style, color=colour, label=label, markersize=5)
        for name, point in zip(routes.index, routes[[cost, "value"]].to_numpy(), strict=True):
            if (width := name.lstrip("abcdefghijklmnopqrstuvwxyz")).isdecimal():
                place = {"xytext": (0, 6 if index else -12), "textcoords": "offset points", "ha": "center"}
                axes.annotate(width, point, size=7, **place)
        if index == 0:
            axes.set_xscale("log")
            axes.set_xticks(routes[cost], [f"{tick:.3g}" for tick in routes[cost]])
    axes.minorticks_off()
    axes.margins(y=0.2)
    axes.legend(frameon=False, fontsize="small", loc="lower right")


# ---- reasons for the thresholds of claims

HALF_A_POINT = 0.005
"""The δ of an order. The smallest gain that the paper's Table 1 counts is 0.7 points (62.4 to 63.1)."""
BELOW_SMALLEST_GAIN = "half a point is below the smallest gain that the paper's table counts"


def ignore_small(delta: float, note: str) -> dict[str, Any]:
    """Return the options of a claim of any difference beyond chance, in which effects within `delta` are small."""
    return {"delta": delta, "because": f"any difference beyond chance; {note}"}


BELOW_PAPERS_GAINS = ignore_small(HALF_A_POINT, BELOW_SMALLEST_GAIN)
A_POINT_IS_SMALL = ignore_small(0.01, "effects within one point are small")
WHAT_A_READER_NOTICES = "half a point: what a reader would call an effect"


def gain_over(context: str, row: Mapping[str, Any], group: str = "mean") -> tuple[Term, Term]:
    """Return the pair of a model's scores with documents of the searched corpus and under another context."""
    return term(ndcg(group=group), **row), term(ndcg(context, group), **row)


def get_budget(num_steps: int) -> dict[str, int]:
    """Return the length of a training run, with a tenth of its steps as warm-up."""
    return {"num_steps": num_steps, "num_warmup_steps": max(1, num_steps // 10)}


def get_scale_values(scales: Iterable[str], *names: str) -> dict[str, ByScale]:
    """Return the value that each scale has in these fields, to select runs that do not change it."""
    return {name: by_scale({scale: getattr(base(scale), name) for scale in scales}) for name in names}


def get_fields_at(fields: Mapping[str, Any], scale: str) -> dict[str, Any]:
    """Return the fields with the values that they have at a scale."""
    return dict(pick(**fields).at(scale).wanted)


def get_size_at(sizes: Mapping[str, Sequence[Any]], index: int | None) -> ByScale:
    """Return, for each scale, the size at an index: 0 is the smallest, -1 the largest, None the one in the middle."""
    return by_scale({scale: each[(len(each) - 1) // 2 if index is None else index] for scale, each in sizes.items()})
