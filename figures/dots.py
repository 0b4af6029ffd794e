"""Draw dots: a measure by category, groups side by side, with an interval over seeds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from figures.intervals import describe_interval, format_counts, summarise_seeds
from figures.style import INK, MARKERS, label_values, make_palette, place_legend_above, sort_values

GOLDEN_RATIO = 0.618034
GROUPS_WIDTH = 0.8
"""Share of a category's width that its groups fill."""
DOTS_WIDTH = 0.6
"""Share of a group's width for the dots. The rest is for the mean and whiskers next to them."""


def draw_dots(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str) -> str:
    """Draw one dot per row and, next to the dots of a group, their mean with its interval.

    Groups differ in colour, position and shape, because colour is lost in grey. Returns a description of the whiskers.
    """
    values, groups = sort_values(frame[x]), list(dict.fromkeys(frame[group]))
    width = GROUPS_WIDTH / len(groups)
    counts: list[int] = []
    handles = []
    for index, (name, colour) in enumerate(zip(groups, make_palette(len(groups)), strict=True)):
        members = frame[frame[group] == name]
        summary = summarise_seeds(members, x, y)
        positions = np.array([values.index(value) + (index - (len(groups) - 1) / 2) * width for value in summary.index])
        style: dict[str, Any] = {"color": colour, "marker": MARKERS[index % len(MARKERS)], "linestyle": "none"}
        centres = dict(zip(summary.index, positions, strict=True))
        for value, rows in members.groupby(x, sort=False):
            dots = centres[value] + width * _spread_evenly(len(rows))
            axes.plot(dots, rows[y], alpha=0.7, markersize=4.5, mew=0, **style)
        _draw_means(summary, axes, positions + 0.36 * width)
        handles.append(Line2D([], [], label=f"{name} ({format_counts(summary['n'])})", **style))
        counts += list(summary["n"])
    if frame[y].min() < 0:
        axes.axhline(0, color="grey", linewidth=0.8, zorder=0)
    label_values(axes, values, [float(position) for position in range(len(values))])
    if len(handles) > 1:
        place_legend_above(axes, handles, handlelength=1.2)
    return f"{describe_interval(counts, 'dash and whiskers')}, {format_counts(counts)}"


def _draw_means(summary: pd.DataFrame, axes: Axes, positions: np.ndarray) -> None:
    mean = summary["mean"].to_numpy()
    spread = np.abs(summary[["low", "high"]].to_numpy().T - mean)
    axes.errorbar(
        positions, mean, spread, fmt="_", markersize=9, color=INK, ecolor=INK, capsize=3, linewidth=1.2, mew=2
    )


def _spread_evenly(count: int) -> np.ndarray:
    """Return the offsets of the dots of a category, as shares of the group's width.

    Neighbours are far apart, so that the order of the dots does not resemble a trend. The offsets are not random, so
    the same data gives the same picture.
    """
    offsets = (np.arange(count) + 0.5) * GOLDEN_RATIO % 1 - 0.5
    return DOTS_WIDTH * offsets - 0.1
