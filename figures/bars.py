"""Draw bars and dots: a measure by category, groups side by side, with an interval over seeds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.lines import Line2D

from figures.intervals import describe_interval, format_counts, summarise_seeds
from figures.style import GREY, INK, MARKERS, format_value, label_values, make_palette, place_legend_above, sort_values

HATCHES = ("", "//", "..", "xx", "\\\\", "++", "oo", "--")
GOLDEN_RATIO = 0.618034
ROOM = 0.8
"""Share of a category's width that its groups fill."""
SHARE_OF_DOTS = 0.6
"""Share of a group's width for the dots. The rest is for the mean and whiskers next to them."""


def draw_bars(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str) -> str:
    """Draw a bar from zero for each category and group, with its interval. Return a description of the whiskers."""
    values, groups = sort_values(frame[x]), list(dict.fromkeys(frame[group]))
    width, counts = ROOM / len(groups), []
    for number, (name, colour) in enumerate(zip(groups, make_palette(len(groups)), strict=True)):
        found = summarise_seeds(frame[frame[group] == name], x, y)
        at = _places(found.index, values) + (number - (len(groups) - 1) / 2) * width
        mean = found["mean"].to_numpy()
        label = f"{name} ({format_counts(found['n'])})"
        axes.bar(at, mean, 0.9 * width, color=colour, hatch=HATCHES[number % len(HATCHES)], ec="white", label=label)
        spread = np.abs(found[["low", "high"]].to_numpy().T - mean)
        # a single seed has no whiskers, because they would suggest certainty
        many = (found["n"] > 1).to_numpy()
        axes.errorbar(at[many], mean[many], spread[:, many], fmt="none", ecolor=INK, capsize=3, linewidth=1.2)
        counts += list(found["n"])
    label_values(axes, values, [float(place) for place in range(len(values))])
    if len(groups) > 1:
        place_legend_above(axes)
    return describe_interval(counts, "whiskers") + f", {format_counts(counts)}"


def draw_dots(frame: pd.DataFrame, axes: Axes, *, x: str, y: str, group: str, mark: str = "") -> str:
    """Draw one dot per row and, next to the dots of a group, their mean with its interval.

    Groups differ in colour and position, values of the column `mark` in the shape of the dot. Returns a description of
    the whiskers.
    """
    values, groups = sort_values(frame[x]), list(dict.fromkeys(frame[group]))
    marks = sort_values(frame[mark]) if mark else []
    shapes = dict(zip(marks, MARKERS, strict=False))
    width, counts, handles = ROOM / len(groups), [], []
    for number, (name, colour) in enumerate(zip(groups, make_palette(len(groups)), strict=True)):
        members = frame[frame[group] == name]
        found = summarise_seeds(members, x, y)
        at = _places(found.index, values) + (number - (len(groups) - 1) / 2) * width
        shape = "o" if marks else MARKERS[number % len(MARKERS)]  # colour alone is lost in grey
        look = {"color": colour, "mark": mark, "shapes": shapes, "shape": shape}
        _draw_each(members, axes, dict(zip(found.index, at, strict=True)), x=x, y=y, width=width, look=look)
        _draw_means(found, axes, at + 0.36 * width)
        drawn = {"linewidth": 6} if marks else {"marker": shape, "linestyle": "none"}
        handles.append(Line2D([], [], color=colour, label=f"{name} ({format_counts(found['n'])})", **drawn))
        counts += list(found["n"])
    for value, shape in shapes.items():
        label = f"{mark.replace('_', ' ')} {format_value(value)}"
        handles.append(Line2D([], [], color=GREY, marker=shape, linestyle="none", label=label))
    label_values(axes, values, [float(place) for place in range(len(values))])
    if len(handles) > 1:
        place_legend_above(axes, handles, handlelength=1.2, most_columns=2 if marks else 9)
    return f"{describe_interval(counts, 'dash and whiskers')}, {format_counts(counts)}"


def _places(found: pd.Index, values: list[Any]) -> np.ndarray:
    return np.array([values.index(value) for value in found], dtype=float)


def _draw_means(found: pd.DataFrame, axes: Axes, at: np.ndarray) -> None:
    mean = found["mean"].to_numpy()
    spread = np.abs(found[["low", "high"]].to_numpy().T - mean)
    axes.errorbar(at, mean, spread, fmt="_", markersize=9, color=INK, ecolor=INK, capsize=3, linewidth=1.2, mew=2)


def _draw_each(
    members: pd.DataFrame,
    axes: Axes,
    places: dict[object, float],
    *,
    x: str,
    y: str,
    width: float,
    look: Mapping[str, Any],
) -> None:
    """Spread the dots of a category evenly, with neighbours far apart, so that their order does not resemble a trend.

    The offsets are not random, so the same data gives the same picture.
    """
    for value, rows in members.groupby(x, sort=False):
        offsets = (np.arange(len(rows)) + 0.5) * GOLDEN_RATIO % 1 - 0.5
        at = places[value] + width * (SHARE_OF_DOTS * offsets - 0.1)
        marks = rows[look["mark"]] if look["mark"] else pd.Series(0, index=rows.index)
        for mark in dict.fromkeys(marks):
            is_so = (marks == mark).to_numpy()
            shape = look["shapes"].get(mark, look["shape"])
            axes.plot(at[is_so], rows[y][is_so], shape, color=look["color"], alpha=0.7, markersize=4.5, mew=0)
